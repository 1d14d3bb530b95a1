"""A served model: a kernel expansion over a dictionary, from raw rows to predictions in the user's units."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.arrays import Floats
from ridgestream.pipeline.features import FeatureMap
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.threads import one_blas_thread

PREDICTION_BYTES = 8 * 2**20
"""What the kernel values of one block of predictions may take."""


@dataclass(frozen=True)
class Model:
    """f(x) = Σ β_i k(x_i, x)."""

    kernel: Kernel
    """k."""
    centre: Floats
    """Where a stationary kernel measures from, shape (n_features,)."""
    basis_vectors: Floats
    """The x_i, standardized, shape (n_basis, n_features)."""
    coefficients: Floats
    """β, shape (n_basis, n_targets)."""
    feature_map: FeatureMap
    """From raw columns to the features of the basis vectors."""

    def predict(
        self, numeric: npt.NDArray[np.floating], codes: npt.NDArray[np.int32], maps: Sequence[npt.NDArray[np.int64]]
    ) -> Floats:
        """Return f of raw rows in the user's units, shape (rows, n_targets); O(n_basis·n_features) a row, in blocks."""
        n_basis = max(1, len(self.basis_vectors))
        rows = max(256, PREDICTION_BYTES // (8 * n_basis) // 256 * 256)
        predictions = np.empty((len(numeric), self.coefficients.shape[1]))
        with one_blas_thread():
            for start in range(0, len(numeric), rows):
                part = slice(start, start + rows)
                features = self.feature_map.features(numeric[part], codes[part], maps)
                predictions[part] = self.expand(features)
        return self.feature_map.raw_targets(predictions)

    def expand(self, features: Floats) -> Floats:
        """Return Σ β_i k(x_i, x) of standardized rows, in the learner's units."""
        return np.asarray(self.kernel.block(features, self.basis_vectors, self.centre) @ self.coefficients)
