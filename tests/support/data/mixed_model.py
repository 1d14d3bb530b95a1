"""A model of all kinds of columns with random coefficients, and rows with missing values and unknown categories."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.calibration.probabilities import Probabilities
from ridgestream.pipeline.features.calendar import CYCLES
from ridgestream.pipeline.features.columns import CategoricalColumn, NumericColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.kernels import RBF, Kernel
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.models.predictor import ExpansionModel, Model
from ridgestream.pipeline.models.uncertainty import Uncertainty
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import BlockStatistics

Array = npt.NDArray[np.float64]
YEARS = 1900, 2101
"""The first year of time stamps, and the one after the last."""

NUMERIC = (
    NumericColumn("length", 0.5, 0.1, 0.5, spread=0.8),
    NumericColumn("is_old", 0.7, 0.4, 1.0),
    NumericColumn("sold_at", 1e9, 1e9, 1e9, cycles=CYCLES),
    NumericColumn("born_at", 1e9, 1e9, 1e9, cycles=("weekday",), is_linear=False),
)
CATEGORICAL = (
    CategoricalColumn.plain("sex", ("M", "F", "I"), {"M": 3.0, "F": 2.0, "I": 1.0}),
    CategoricalColumn.fit("site", ("north", "ñandú", "3"), {"north": 5.0, "ñandú": 2.0}),
)


def mixed_map(target: TargetMap, *, metric: str = "full", circles: bool = True) -> FeatureMap:
    linear = tuple(replace(column, cycles=(), is_linear=True) for column in NUMERIC)
    plain = FeatureMap(NUMERIC if circles else linear, CATEGORICAL, target)
    rng, n = np.random.default_rng(1), plain.n_features
    roots = {"full": rng.standard_normal((n, n)), "diagonal": rng.random(n)}
    root = roots.get(metric)
    return plain if root is None else replace(plain, metric=Metric(root + root.T if root.ndim == 2 else root))


def mixed_model(
    target: TargetMap,
    kernel: Kernel | None = None,
    *,
    metric: str = "full",
    bias: bool = True,
    n_basis: int = 30,
    circles: bool = True,
) -> ExpansionModel:
    """Return a model with deviations whose dictionary is random rows."""
    feature_map, rng = mixed_map(target, metric=metric, circles=circles), np.random.default_rng(n_basis)
    vectors = features_of(feature_map, draw(n_basis, missing=0.0))
    basis = Basis(kernel or RBF(1 / feature_map.n_features), vectors, vectors.mean(axis=0), constant=bias)
    values, y = (
        basis.values(features_of(feature_map, draw(300, seed=5, missing=0.0))),
        rng.random((300, target.n_outputs)),
    )
    sums = BlockStatistics(values.T @ values, values.T @ y, y.T @ y, 300.0, 300)
    bars = Uncertainty.from_sums(sums, basis.penalty(), n_basis, 1e-3)
    return ExpansionModel(basis, bars.normal.solve(sums.rhs), feature_map, bars)


def draw(rows: int, seed: int = 3, *, missing: float = 0.1, unseen: float = 0.0) -> dict[str, Any]:
    """Return raw columns by name, with this share of missing values (NaN, "") and of unknown categories."""
    rng = np.random.default_rng(seed)
    first, last = ((year - 1970) * 31_556_952 for year in YEARS)
    numbers = {
        "length": rng.random(rows),
        "is_old": rng.integers(0, 2, rows).astype(np.float64),
        "sold_at": rng.uniform(first, last, rows),
        "born_at": rng.integers(first, last, rows).astype(np.float64),
    }
    columns: dict[str, Any] = {}
    for name, values in numbers.items():
        columns[name] = np.where(rng.random(rows) < missing, np.nan, values)
    for column in CATEGORICAL:
        texts = np.array(["", "never seen", *column.categories], dtype=object)
        known = (1 - missing - unseen) / len(column.categories)
        columns[column.name] = rng.choice(texts, rows, p=[missing, unseen, *[known] * len(column.categories)])
    return columns


def stored(columns: dict[str, Any]) -> tuple[Array, npt.NDArray[np.int32], list[list[str]]]:
    """Return columns as `Model.predict` takes them: numbers, codes (−1 for missing), and the tables of the codes."""
    numeric = np.column_stack([columns[c.name] for c in NUMERIC])
    tables = [sorted(set(columns[c.name]) - {""}) for c in CATEGORICAL]
    codes = [
        [table.index(text) if text else -1 for text in columns[c.name]]
        for c, table in zip(CATEGORICAL, tables, strict=True)
    ]
    return numeric, np.array(codes, dtype=np.int32).T, tables


def features_of(feature_map: FeatureMap, columns: dict[str, Any]) -> Array:
    numeric, codes, tables = stored(columns)
    return feature_map.features(numeric, codes, feature_map.code_maps(tables))


def predicted(model: Model, columns: dict[str, Any]) -> tuple[Array, Array, Array]:
    """Return predictions, and both deviations, of raw columns."""
    numeric, codes, tables = stored(columns)
    rows = numeric, codes, model.feature_map.code_maps(tables)
    return model.predict(*rows), *model.deviations(*rows)


def some_probabilities(n_outputs: int) -> Probabilities:
    """Return probabilities whose scores have ties, as those of few rows."""
    rng = np.random.default_rng(4)
    outputs = rng.standard_normal((200, n_outputs)).round(1)
    truth = np.where(outputs + rng.standard_normal(outputs.shape) > 0, 1.0, -1.0)
    return Probabilities.fit(outputs, truth, np.ones(200))
