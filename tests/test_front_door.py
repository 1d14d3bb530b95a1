"""The front door: `import ridgestream`, its public names, `python -m ridgestream`, and what the distributions hold."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import metadata, version
from importlib.resources import files
from pathlib import Path

import pytest
from support.jobs.jobs import FOREST, clean_environment, run_program

import ridgestream

TOP = Path(__file__).parents[1]
HEAVY = ("numpy", "scipy", "numba", "zarr", "icechunk", "dask", "distributed", "pyarrow", "pydantic", "typer")
NAMES = {
    "ClusterError",
    "DaskDataset",
    "ExpertsState",
    "InputError",
    "InputWarning",
    "JobFileError",
    "KernelLSTD",
    "Linear",
    "LocalExperts",
    "ModelError",
    "NumericalBreakdown",
    "OnlineLSSVM",
    "OnlineLSSVMClassifier",
    "OnlineLSSVMRegressor",
    "OnlineLSTD",
    "OnlineState",
    "OpenStore",
    "PartitionError",
    "Polynomial",
    "RBF",
    "RunResult",
    "SchemaMismatch",
    "SparseKernelClassifier",
    "SparseKernelRegressor",
    "Store",
    "StoreError",
    "StoreLocation",
    "StoreLocked",
    "StoredModel",
    "open",
    "open_dask_arrays",
    "run",
    "log_mlflow",
    "save_mlflow",
    "to_onnx",
    "to_sklearn",
}


def run_python(*arguments: str | Path, cwd: Path) -> str:
    done = run_program([sys.executable, *arguments], cwd=cwd)
    assert (done.code, done.err) == (0, ""), done
    return done.out


def test_every_public_name_can_be_imported() -> None:
    assert set(ridgestream.__all__) == NAMES | {"__version__"}
    for name in NAMES:
        value = getattr(ridgestream, name)
        assert value.__name__ == name
        assert value.__module__.startswith("ridgestream.")
        assert getattr(ridgestream, name) is value


def test_the_public_names_are_those_of_the_rooms() -> None:
    from ridgestream import RBF, Store
    from ridgestream.pipeline import kernels
    from ridgestream.stores.repository import repository

    assert (RBF, Store) == (kernels.RBF, repository.Store)


def test_the_version_is_that_of_the_installed_package() -> None:
    assert ridgestream.__version__ == version("ridgestream")


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'ridgestream' has no attribute 'OnlineLSVM'"):
        ridgestream.OnlineLSVM  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'OnlineLSVM' from 'ridgestream'"):
        from ridgestream import OnlineLSVM  # type: ignore[attr-defined]  # noqa: F401


def test_the_directory_lists_the_public_names() -> None:
    assert dir(ridgestream) == sorted(NAMES | {"__version__"})


def test_importing_the_package_loads_nothing_heavy(tmp_path: Path) -> None:
    code = "import sys, ridgestream; print(ridgestream.__version__, dir(ridgestream) != []); print(*sys.modules)"
    first, modules = run_python("-c", code, cwd=tmp_path).splitlines()
    assert first == f"{ridgestream.__version__} True"
    assert {name.split(".")[0] for name in modules.split()}.isdisjoint(HEAVY)


@pytest.mark.parametrize("python_files", [(), ("thing.py", "pipeline/kernels.py")], ids=["empty", "with code"])
def test_a_folder_of_the_same_name_does_not_hide_the_package(tmp_path: Path, python_files: tuple[str, ...]) -> None:
    for folder in (tmp_path / "scripts" / "ridgestream", tmp_path / "here" / "ridgestream"):
        for name in ("README.md", *python_files):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
    code = "import ridgestream.pipeline.kernels as k; from ridgestream import RBF; print(RBF is k.RBF, k.__file__)"
    (tmp_path / "scripts" / "script.py").write_text(code)
    for arguments in (["../scripts/script.py"], ["-c", code]):
        is_same, _, file = run_python(*arguments, cwd=tmp_path / "here").strip().partition(" ")
        assert is_same == "True"
        assert not Path(file).is_relative_to(tmp_path)


def test_the_package_runs_as_a_module_under_its_own_name(tmp_path: Path) -> None:
    assert run_python("-m", "ridgestream", "--version", cwd=tmp_path) == f"{ridgestream.__version__}\n"
    assert "Usage: ridgestream [OPTIONS] COMMAND" in run_python("-m", "ridgestream", "--help", cwd=tmp_path)
    failed = run_program([sys.executable, "-m", "ridgestream", "runs"], cwd=tmp_path)
    assert failed.code == 2
    assert "Usage: ridgestream " in failed.err


def test_recipes_types_and_templates_are_installed() -> None:
    package = files("ridgestream")
    assert package.joinpath("py.typed").is_file()
    assert package.joinpath("jobs/report/page/report.html.jinja").is_file()
    bundled = [
        file.relative_to(FOREST.parent).as_posix() for file in FOREST.parent.rglob("*.*") if file.suffix != ".pyc"
    ]
    assert len(bundled) == 5 + 2 + 1 + 11
    for name in bundled:
        assert package.joinpath(f"jobs/recipes/{name}").is_file(), name


def test_the_package_index_links_to_where_the_project_lives() -> None:
    urls = dict(line.split(", ") for line in metadata("ridgestream").get_all("Project-URL") or ())
    assert set(urls) == {"Homepage", "Repository", "Issues", "Changelog"}
    links = re.findall(r"\]\(([^)]+)\)", (TOP / "README.md").read_text())
    assert links
    assert all(link.startswith(("https://", "#")) for link in links), "a package index has no files beside the README"
    for link in links:
        if link.startswith(urls["Repository"]):
            assert (TOP / link.split("/main/")[1]).exists(), link


SCRIPT = """
from pathlib import Path

import numpy as np
import ridgestream
from ridgestream import (
    RBF, DaskDataset, InputError, Linear, NumericalBreakdown, OnlineLSSVM, OnlineState, Polynomial, Store, StoreError,
    StoreLocation, open_dask_arrays,
)

learner: OnlineLSSVM = OnlineLSSVM(RBF(gamma=0.5), regularization=1e-5, max_basis=10)
learner.partial_fit(np.zeros((3, 2)), np.zeros(3))
state: OnlineState = learner.state()
dataset: DaskDataset = open_dask_arrays(Store.open(StoreLocation.parse("store", Path.cwd())))
errors: tuple[type[Exception], ...] = (InputError, NumericalBreakdown, StoreError)
kernels = [Linear(), Polynomial(gamma=1.0, degree=3, coef0=1.0)]
text: str = ridgestream.__version__
reveal_type(RBF(gamma=0.5))
wrong: int = RBF(gamma=0.5)
ridgestream.OnlineLSVM
"""


@pytest.mark.thorough
def test_a_type_checker_resolves_the_public_names_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run_program([sys.executable, "-m", "mypy", "--strict", "script.py"], cwd=tmp_path)
    notes = [line.split(": ", 1)[1] for line in done.out.splitlines()[:-1]]
    assert [re.sub(r"\s+\[.*", "", note) for note in notes] == [
        'note: Revealed type is "ridgestream.pipeline.kernels.RBF"',
        'error: Incompatible types in assignment (expression has type "RBF", variable has type "int")',
        'error: Module has no attribute "OnlineLSVM"; maybe "OnlineLSSVM" or "OnlineLSTD"?',
    ]


@pytest.mark.thorough
@pytest.mark.skipif(not (TOP / ".git").exists(), reason="a source distribution is made from what git tracks")
def test_wheel_and_source_distribution_hold_what_belongs_to_them(tmp_path: Path) -> None:
    clone, backend, made = tmp_path / "clone", tmp_path / "backend", tmp_path / "dist"
    requires = tomllib.loads((TOP / "pyproject.toml").read_text())["build-system"]["requires"]
    code = (
        f"from setuptools import build_meta as b; print([b.build_sdist({str(made)!r}), b.build_wheel({str(made)!r})])"
    )
    for command in (
        ["git", "clone", "--quiet", str(TOP), str(clone)],
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(backend), *requires],
    ):
        subprocess.run(command, check=True)
    subprocess.run([sys.executable, "-c", code], check=True, cwd=clone, env=clean_environment(PYTHONPATH=str(backend)))
    tracked = set(
        subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True, cwd=clone).stdout.split()
    )
    (source,), (wheel,) = made.glob("*.tar.gz"), made.glob("*.whl")
    with tarfile.open(source) as archive:
        assert tracked <= {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    installed = {file for file in tracked if file.split("/")[0] in ("pipeline", "stores", "jobs")}
    assert names == {f"ridgestream/{file.removeprefix('pipeline/public/')}" for file in installed}
