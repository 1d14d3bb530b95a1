"""Untrained models with random coefficients, whose predictions are easy to compute independently."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from ridgestream.pipeline.dataset.feature_map_fit import fit_feature_map
from ridgestream.pipeline.features.columns import NumericColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.models.predictor import ExpansionModel
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.column_rules import ELAPSED, ColumnRules
from ridgestream.stores.segments.segments import Segments

Array = npt.NDArray[np.float64]


def feature_map_of(store: Store, scaling_rows: int | None = None) -> FeatureMap:
    """Return the feature map of a model that is created now; a time stamp is its elapsed time, one feature."""
    root = store.root()
    return fit_feature_map(Segments(root), read_ledger(root), scaling_rows, ColumnRules(timestamps=ELAPSED))


def plain_map(names: Sequence[str], target: TargetMap | None = None) -> FeatureMap:
    """Return a map that leaves these numeric columns and one target unscaled."""
    columns = tuple(NumericColumn(name, 0.0, 1.0, 0.0) for name in names)
    return FeatureMap(columns, (), target or TargetMap((0.0,), (1.0,)))


def model_with(feature_map: FeatureMap, n_basis: int = 20, seed: int = 0) -> ExpansionModel:
    """Return a model with a random dictionary and random coefficients."""
    rng = np.random.default_rng(seed)
    n = feature_map.n_features
    basis = Basis(RBF(1 / n), rng.standard_normal((n_basis, n)), np.zeros(n))
    return ExpansionModel(basis, rng.standard_normal((n_basis, 1)), feature_map)


def predictions_of(model: ExpansionModel, columns: dict[str, Any]) -> Array:
    """Return predictions for rows of columns, from the definition: standardized features, distances, exponentials."""
    fm = model.feature_map
    names = [column.name for column in fm.numeric]
    numeric = [_seconds(columns[name]) for name in names]
    indicators = [
        [value == category for value in columns[column.name].to_pylist()]
        for column in fm.categorical
        for category in column.categories
    ]
    raw = np.array([*numeric, *indicators], dtype=np.float64).T
    features = (raw - fm.centre) / fm.scale
    values = np.exp(-cdist(features, model.basis.vectors, "sqeuclidean") / fm.n_features)
    return np.asarray((values @ model.coefficients)[:, 0] * fm.target.scale[0] + fm.target.centre[0])


def _seconds(column: Any) -> list[float]:
    return [float(v.timestamp()) if hasattr(v, "timestamp") else float(v) for v in column.to_pylist()]
