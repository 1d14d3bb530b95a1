"""A served model: a kernel expansion over a dictionary, from raw rows to predictions in the user's units."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.calibration.intervals import Intervals
from ridgestream.pipeline.calibration.probabilities import Probabilities
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.models.uncertainty import Uncertainty
from ridgestream.pipeline.sums.basis import Basis

PREDICTION_BYTES = 8 * 2**20
"""Memory limit for the kernel values of one block of predictions."""


@dataclass(frozen=True)
class Model:
    """f(x) = Σ β_i k(x_i, x) + b."""

    basis: Basis
    """The x_i, standardized, and k; includes the constant function if there is a bias."""
    coefficients: Floats
    """β, followed by the bias b if there is one, shape (n_functions, n_outputs)."""
    feature_map: FeatureMap
    """Maps raw columns to the features of the basis vectors."""
    uncertainty: Uncertainty | None = None
    """Data for error bars; None if not requested."""
    intervals: Intervals | None = None
    """What turns error bars into intervals; None if not requested, and for classes."""
    probabilities: Probabilities | None = None
    """What turns outputs into probabilities; None if not requested, and for numbers."""

    def predict(
        self, numeric: npt.NDArray[np.floating], codes: npt.NDArray[np.int32], maps: Sequence[npt.NDArray[np.int64]]
    ) -> Floats:
        """Return f of raw rows in the user's units, shape (rows, n_outputs); O(n_basis·n_features) per row."""
        predictions = np.empty((len(numeric), self.coefficients.shape[1]))
        parts = self._parts(len(numeric))
        work = np.empty((parts[0].stop if parts else 0, len(self.basis.vectors)))
        with one_blas_thread():
            for part in parts:
                features = self.feature_map.features(numeric[part], codes[part], maps)
                predictions[part] = self.basis.expand(features, self.coefficients, work[: len(features)])
        return self.feature_map.target.restore(predictions)

    def deviations(
        self, numeric: npt.NDArray[np.floating], codes: npt.NDArray[np.int32], maps: Sequence[npt.NDArray[np.int64]]
    ) -> tuple[Floats, Floats]:
        """Return the standard deviations of f and of a new observation, in the user's units, each like `predict`.

        O(n_basis²) per row. Raises InputError if the model was created without uncertainty.
        """
        uncertainty = self._known_uncertainty()
        variance = np.empty((len(numeric), self.coefficients.shape[1]))
        with one_blas_thread():
            for part in self._parts(len(numeric)):
                features = self.feature_map.features(numeric[part], codes[part], maps)
                values, diagonal = self.basis.values(features), self.basis.kernel.diagonal(features)
                variance[part] = uncertainty.variance(values, diagonal)
        scale = np.array(self.feature_map.target.scale)
        return np.sqrt(variance) * scale, np.sqrt(variance + uncertainty.noise) * scale

    def judge(self, features: Floats) -> tuple[Floats, Floats]:
        """Return outputs and standard deviations of a new observation, in the learner's units, of standardized rows."""
        uncertainty, parts = self._known_uncertainty(), []
        with one_blas_thread():
            for part in self._parts(len(features)):
                values, diagonal = self.basis.values(features[part]), self.basis.kernel.diagonal(features[part])
                variance = uncertainty.variance(values, diagonal) + uncertainty.noise
                parts.append((values @ self.coefficients, np.sqrt(variance)))
        none = np.empty((0, self.coefficients.shape[1]))
        outputs, deviations = ([none, *each] for each in zip(*parts, strict=True)) if parts else ([none], [none])
        return np.concatenate(outputs), np.concatenate(deviations)

    def radius(self, deviations: Floats, level: float) -> Floats:
        """Return half the width of intervals of this level, in the user's units, from deviations of new observations.

        Raises InputError if the model was created without intervals, or if they cannot have this level.
        """
        if self.intervals is None:
            raise InputError("the model was created without intervals")
        scale = np.array(self.feature_map.target.scale)
        scales = self.intervals.scales(deviations / scale, self.noise)
        return np.asarray(self.intervals.factors(level) * scales * scale)

    @property
    def noise(self) -> Floats:
        """The standard deviation of the noise alone, in the learner's units, shape (n_outputs,)."""
        return np.sqrt(self._known_uncertainty().noise)

    def _known_uncertainty(self) -> Uncertainty:
        if self.uncertainty is None:
            raise InputError("the model was created without uncertainty")
        return self.uncertainty

    def _parts(self, n_rows: int) -> list[slice]:
        n_basis = max(1, self.basis.n_functions)
        rows = max(256, PREDICTION_BYTES // (8 * n_basis) // 256 * 256)
        return [slice(start, min(start + rows, n_rows)) for start in range(0, n_rows, rows)]
