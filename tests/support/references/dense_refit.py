"""A refit the slow way: every kernel value of every stored row at once, and the normal equations by NumPy."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist
from support.stores.stores import segment_rows

from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.segments.segments import Segment

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DenseRefit:
    """What a refit of an RBF model is made of, from its stored rows."""

    values: Array
    """k of each row against each basis vector, (rows, n_basis)."""
    targets: Array
    """(rows, n_targets)."""
    weights: Array
    """(rows,)."""
    gram: Array
    """K, (n_basis, n_basis)."""
    penalty: float
    """λn."""

    @property
    def products(self) -> Array:
        return self.values.T @ (self.weights[:, np.newaxis] * self.values)

    @property
    def normal_matrix(self) -> Array:
        return np.asarray(self.products + self.penalty * self.gram)

    @property
    def rhs(self) -> Array:
        return self.values.T @ (self.weights[:, np.newaxis] * self.targets)

    @property
    def coefficients(self) -> Array:
        return np.asarray(np.linalg.solve(self.normal_matrix, self.rhs), np.float64)

    @property
    def condition(self) -> float:
        return float(np.linalg.cond(self.normal_matrix))

    @property
    def noise(self) -> Array:
        """σ̂² of each target: RSS/(n − tr(P⁻¹G))."""
        residuals = self.targets - self.values @ self.coefficients
        freedom = np.trace(np.linalg.solve(self.normal_matrix, self.products))
        return np.asarray(self.weights @ residuals**2 / (self.weights.sum() - freedom))


def dense_refit(store: Store, record: ModelRecord) -> DenseRefit:
    """Gather it over the segments that the model has learned; all of them at once in memory."""
    feature_map, root = FeatureMap.from_dict(record.encoding), store.root()
    features, targets, weights = [], [], []
    for order in record.learned:
        rows = segment_rows(root, order)
        maps = feature_map.code_maps(Segment.open(root, order).facts().categories)
        features.append(feature_map.features(rows.numeric, rows.codes, maps))
        assert rows.targets is not None
        targets.append(feature_map.target.standardize(rows.targets))
        weights.append(np.ones(len(rows)) if rows.weights is None else rows.weights)
    kernel, basis = record.parameters["learner"]["kernel"], record.arrays["basis_vectors"]
    assert kernel["name"] == "rbf"
    w = np.concatenate(weights)
    return DenseRefit(
        np.exp(-kernel["gamma"] * cdist(np.concatenate(features), basis, "sqeuclidean")),
        np.concatenate(targets),
        w,
        np.exp(-kernel["gamma"] * cdist(basis, basis, "sqeuclidean")),
        record.parameters["regularization"] * float(w.sum()),
    )


def assert_solves(record: ModelRecord, dense: DenseRefit) -> None:
    """The record's coefficients are the direct solution's, as far as the condition allows."""
    expected = dense.coefficients
    off = np.abs(record.arrays["coefficients"] - expected).max() / np.abs(expected).max()
    assert off < 100 * dense.condition * np.finfo(float).eps, (off, dense.condition)
