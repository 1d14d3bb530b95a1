"""Models of jobs that state nothing but their data, against Nystroem + ridge, gradient boosting and a constant.

`python tests/benchmarks/defaults.py [--splits 5] [--data FOLDER] [--sets NAME …]`: for each set and model, the test
error of random splits, with mean and standard deviation: the percentage misclassified, or the mean squared error. The
job has three lines, with store, source and evaluate; the comparators are scikit-learn's, of its default settings except
that `Nystroem` (1,000 vectors) and its ridge choose γ and α by cross-validation, γ on at most 5,000 rows. Sets come
from scikit-learn and from the packages of `package_sets.py`, where installed; `--data` adds the Parquet files of a
folder, each with a column `target`. Where values are missing, the job says `missing = "impute"`, and `Nystroem` has an
imputer and indicators; where there are texts, `unseen_categories = "ignore"`, as the comparators do. Prints a line a
split with errors and seconds to standard error, JSON at the end. A split depends on the set and its number alone, so
that processes can share the work: `--models` runs some of the models, `--first` begins with a later split.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.package_sets import PACKAGE_SETS, read_package_set
from sklearn import datasets
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent

VECTORS = 1_000
WIDTHS = tuple(2.0**power for power in range(-4, 4))
"""γ of Nystroem in units of one over the number of columns."""

ALPHAS = tuple(10.0**power for power in range(-6, 4))
SEARCHED_ROWS = 5_000
"""Rows with which γ of Nystroem is chosen, at most; the chosen one learns all."""

CLASSES = 26
"""A target of text is a class, and a whole-numbered one with at most so many values."""


@dataclass(frozen=True)
class DataSet:
    """Columns, of which `target` is to be predicted."""

    table: pa.Table

    @property
    def target(self) -> npt.NDArray[Any]:
        return np.asarray(self.table["target"].to_numpy())

    @property
    def classifies(self) -> bool:
        kind = self.target.dtype.kind
        return kind in "OUT" or (kind != "f" and len(np.unique(self.target)) <= CLASSES)

    def error(self, predicted: npt.NDArray[Any], held_out: npt.NDArray[Any]) -> float:
        truth = self.target[held_out]
        return float(100 * np.mean(predicted != truth) if self.classifies else np.mean((predicted - truth) ** 2))

    def constant(self, learned: npt.NDArray[Any]) -> Any:
        values = self.target[learned]
        if not self.classifies:
            return values.mean()
        classes, counts = np.unique(values, return_counts=True)
        return classes[counts.argmax()]


def _of_sklearn(load: Callable[[], Any]) -> Callable[[], DataSet]:
    def read() -> DataSet:
        data = load()
        columns = {f"x{i}": column.astype(float) for i, column in enumerate(data.data.T)}
        return DataSet(pa.table({**columns, "target": data.target}))

    return read


def _generated(make: Callable[..., Any], n_samples: int) -> Callable[[], DataSet]:
    def read() -> DataSet:
        X, y = make(n_samples=n_samples, noise=1.0, random_state=0)
        return DataSet(pa.table({**{f"x{i}": column for i, column in enumerate(X.T)}, "target": y}))

    return read


def _waves(n_samples: int, noise: float, random_state: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return rows and targets of a wave over two columns, and effects of three."""
    rng = np.random.default_rng(random_state)
    X = rng.uniform(size=(n_samples, 8))
    wave = 10 * np.sin(22 * X[:, 0]) * np.cos(17 * X[:, 1]) + 4 * np.sin(30 * X[:, 1])
    return X, wave + 5 * (X[:, 2] < 0.2) + 3 * np.sin(2 * np.pi * X[:, 3]) + noise * rng.normal(size=n_samples)


def _amounts(
    n_samples: int, noise: float, random_state: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return rows of log-normal columns, and targets in which a factor matters, as of incomes."""
    rng = np.random.default_rng(random_state)
    logarithms = rng.normal(size=(n_samples, 8))
    effects = 5 * np.sin(2 * logarithms[:, 0]) + 3 * logarithms[:, 1] * logarithms[:, 2] + 2 * logarithms[:, 3]
    return np.exp(2 * logarithms), effects + noise * rng.normal(size=n_samples)


SETS: dict[str, Callable[[], DataSet]] = {
    "diabetes": _of_sklearn(datasets.load_diabetes),
    "breast cancer": _of_sklearn(datasets.load_breast_cancer),
    "wine": _of_sklearn(datasets.load_wine),
    "iris": _of_sklearn(datasets.load_iris),
    "digits": _of_sklearn(datasets.load_digits),
    "friedman1": _generated(datasets.make_friedman1, 5_000),
    "waves": _generated(_waves, 15_000),
    "amounts": _generated(_amounts, 5_000),
    "friedman1 of 200 columns": _generated(partial(datasets.make_friedman1, n_features=200), 1_500),
}


def read_sets(folder: Path | None, names: list[str] | None) -> dict[str, Callable[[], DataSet]]:
    files = sorted(folder.glob("*.parquet")) if folder else []
    packaged = {name: (lambda name=name: DataSet(read_package_set(name))) for name in PACKAGE_SETS}
    found = SETS | packaged | {file.stem: (lambda file=file: DataSet(pq.read_table(file))) for file in files}
    return {name: found[name] for name in names or found}


def ours(data: DataSet, learned: npt.NDArray[Any], held_out: npt.NDArray[Any], *settings: str) -> float:
    """Return the error of a job with these lines of `[model]`."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for part, rows in (("rows", learned), ("test", held_out)):
            (folder / part).mkdir()
            pq.write_table(data.table.take(rows), folder / part / "part-00.parquet")
        features = data.table.schema.remove(data.table.schema.get_field_index("target")).types
        kind = ', classes = "all"' if data.classifies else ""
        job = folder / "job.toml"
        missing = ', missing = "impute"' if any(column.null_count for column in data.table.columns) else ""
        unseen = ', unseen_categories = "ignore"' if any("string" in str(each) for each in features) else ""
        source = f'source = {{ path = "rows", target = "target"{kind}{missing}{unseen} }}'
        lines = ['store = "store"', source, 'evaluate = { path = "test" }', "[model]", *settings, ""]
        job.write_text("\n".join(lines))
        result = run_job(read_job(job, {}), InProcess(), Silent(), 0.0, new_model=False)
    return 100 * result["test_error"] if data.classifies else float(result["test_mse"])


def _frame(data: DataSet) -> pd.DataFrame:
    """Return the features, of a date the numbers that a job makes of it: weekday, day of the year and hour."""
    frame = data.table.drop_columns("target").to_pandas()
    for name in frame.select_dtypes("datetimetz"):
        date = frame.pop(name).dt
        frame[[f"{name} {part}" for part in ("weekday", "day", "hour")]] = np.c_[
            date.weekday, date.dayofyear, date.hour
        ]
    return frame


def nystroem(data: DataSet, learned: npt.NDArray[Any], held_out: npt.NDArray[Any]) -> float:
    frame = _frame(data)
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    scale = ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include="number")),
            ("texts", OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
        ],
        sparse_threshold=0,
    )
    n_columns = scale.fit(frame).transform(frame[:1]).shape[1]
    ridge = RidgeClassifierCV(ALPHAS) if data.classifies else RidgeCV(ALPHAS)
    vectors = min(VECTORS, 2 * len(learned) // 3)
    grid = {"nystroem__gamma": [width / n_columns for width in WIDTHS]}
    model = make_pipeline(scale, Nystroem(n_components=vectors, random_state=0), ridge)
    few = learned[:SEARCHED_ROWS]
    search = GridSearchCV(model, grid, cv=3, refit=False).fit(frame.iloc[few], data.target[few])
    model.set_params(**search.best_params_).fit(frame.iloc[learned], data.target[learned])
    return data.error(model.predict(frame.iloc[held_out]), held_out)


def boosting(data: DataSet, learned: npt.NDArray[Any], held_out: npt.NDArray[Any]) -> float:
    frame = _frame(data)
    codes = ColumnTransformer(
        [
            (
                "texts",
                OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
                make_column_selector(dtype_exclude="number"),
            )
        ],
        remainder="passthrough",
    )
    kind = HistGradientBoostingClassifier if data.classifies else HistGradientBoostingRegressor
    model = make_pipeline(codes, kind(random_state=0)).fit(frame.iloc[learned], data.target[learned])
    return data.error(model.predict(frame.iloc[held_out]), held_out)


def constant(data: DataSet, learned: npt.NDArray[Any], held_out: npt.NDArray[Any]) -> float:
    return data.error(data.constant(learned), held_out)


MODELS: dict[str, Callable[[DataSet, npt.NDArray[Any], npt.NDArray[Any]], float]] = {
    "ridgestream": ours,
    "nystroem": nystroem,
    "boosting": boosting,
    "constant": constant,
}


def compare(name: str, data: DataSet, splits: range, models: list[str]) -> dict[str, Any]:
    errors: dict[str, list[float]] = {model: [] for model in models}
    seconds: dict[str, list[float]] = {model: [] for model in models}
    for split in splits:
        learned, held_out = train_test_split(np.arange(len(data.table)), test_size=0.3, random_state=split)
        for model in models:
            started = perf_counter()
            errors[model].append(MODELS[model](data, learned, held_out))
            seconds[model].append(perf_counter() - started)
        last = {model: (float(f"{errors[model][-1]:.6g}"), round(seconds[model][-1], 1)) for model in models}
        print(name, split, last, file=sys.stderr, flush=True)
    return {"set": name, "rows": len(data.table), "columns": data.table.num_columns - 1} | {
        model: {
            "mean": float(np.mean(errors[model])),
            "deviation": float(np.std(errors[model])),
            "seconds": float(np.mean(seconds[model])),
            "errors": errors[model],
        }
        for model in models
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    given = parser.parse_args()
    chosen = read_sets(given.data, given.sets)
    splits = range(given.first, given.first + given.splits)
    print(json.dumps([compare(name, read(), splits, given.models) for name, read in chosen.items()], indent=1))


if __name__ == "__main__":
    main()
