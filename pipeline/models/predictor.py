"""A served model: from raw rows to predictions in the user's units, and a kernel expansion over one dictionary."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

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
from ridgestream.stores.schema.row_batch import Rows

PREDICTION_BYTES = 8 * 2**20
"""Memory limit for the kernel values of one block of predictions."""


class Model(ABC):
    """A function of standardized rows, with the way from raw rows and to the user's units."""

    feature_map: FeatureMap
    """Maps raw columns to standardized features."""
    intervals: Intervals | None
    """What turns error bars into intervals; None if not requested, and for classes."""
    probabilities: Probabilities | None
    """What turns outputs into probabilities; None if not requested, and for numbers."""

    @abstractmethod
    def outputs(self, parts: Iterable[Floats]) -> Iterator[Floats]:
        """Yield f of standardized rows, part by part, in the learner's units, shape (rows, n_outputs)."""

    @abstractmethod
    def moments(self, features: Floats) -> tuple[Floats, Floats]:
        """Return f and Var f of standardized rows, each of shape (rows, n_outputs); O(n_basis²) a row.

        Raises InputError if the model was created without uncertainty.
        """

    @property
    @abstractmethod
    def noise_variance(self) -> Floats:
        """σ̂² of each output in the learner's units, shape (n_outputs,)."""

    @property
    @abstractmethod
    def row_values(self) -> int:
        """The numbers that a row takes while it is predicted."""

    def truth(self, rows: Rows, maps: Sequence[npt.NDArray[np.int64]], targets: Floats) -> Floats:  # noqa: ARG002
        """Return what predictions of rows with these targets are compared with: the targets."""
        return targets

    def having(self, **changes: Any) -> Self:  # noqa: ANN401
        """Return the model with other values of these fields."""
        return cast("Self", replace(cast("Any", self), **changes))

    def predict(
        self, numeric: npt.NDArray[np.floating], codes: npt.NDArray[np.int32], maps: Sequence[npt.NDArray[np.int64]]
    ) -> Floats:
        """Return f of raw rows in the user's units, shape (rows, n_outputs); O(n_basis·n_features) per row."""
        predictions, parts = np.empty((len(numeric), self.feature_map.target.n_outputs)), self._parts(len(numeric))
        features = (self.feature_map.features(numeric[part], codes[part], maps) for part in parts)
        with one_blas_thread():
            for part, outputs in zip(parts, self.outputs(features), strict=True):
                predictions[part] = outputs
        return self.feature_map.target.restore(predictions)

    def deviations(
        self, numeric: npt.NDArray[np.floating], codes: npt.NDArray[np.int32], maps: Sequence[npt.NDArray[np.int64]]
    ) -> tuple[Floats, Floats]:
        """Return the standard deviations of f and of a new observation, in the user's units, each like `predict`.

        O(n_basis²) per row. Raises InputError if the model was created without uncertainty.
        """
        variance, noise = np.empty((len(numeric), self.feature_map.target.n_outputs)), self.noise_variance
        with one_blas_thread():
            for part in self._parts(len(numeric)):
                variance[part] = self.moments(self.feature_map.features(numeric[part], codes[part], maps))[1]
        scale = np.array(self.feature_map.target.scale)
        return np.sqrt(variance) * scale, np.sqrt(variance + noise) * scale

    def judge(self, features: Floats) -> tuple[Floats, Floats]:
        """Return outputs and standard deviations of a new observation, in the learner's units, of standardized rows."""
        none = np.empty((0, self.feature_map.target.n_outputs))
        with one_blas_thread():
            parts = [(none, none), *(self.moments(features[part]) for part in self._parts(len(features)))]
        outputs, variance = (np.concatenate(each) for each in zip(*parts, strict=True))
        return outputs, np.sqrt(variance + self.noise_variance)

    @property
    def noise(self) -> Floats:
        """The standard deviation of the noise alone, in the learner's units, shape (n_outputs,)."""
        return np.sqrt(self.noise_variance)

    def radius(self, deviations: Floats, level: float) -> Floats:
        """Return half the width of intervals of this level, in the user's units, from deviations of new observations.

        Raises InputError if the model was created without intervals, or if they cannot have this level.
        """
        if self.intervals is None:
            raise InputError("the model was created without intervals")
        scale = np.array(self.feature_map.target.scale)
        scales = self.intervals.scales(deviations / scale, self.noise)
        return np.asarray(self.intervals.factors(level) * scales * scale)

    def _parts(self, n_rows: int) -> list[slice]:
        rows = max(256, PREDICTION_BYTES // (8 * max(1, self.row_values)) // 256 * 256)
        return [slice(start, min(start + rows, n_rows)) for start in range(0, n_rows, rows)]


@dataclass(frozen=True)
class ExpansionModel(Model):
    """f(x) = Σ β_i k(x_i, x) + b."""

    hashed_as: ClassVar[str] = "Model"

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

    @property
    def row_values(self) -> int:
        """The kernel values of a row."""
        return self.basis.n_functions

    @property
    def noise_variance(self) -> Floats:
        """σ̂² of each output in the learner's units, shape (n_outputs,)."""
        return self.known_uncertainty.noise

    @property
    def known_uncertainty(self) -> Uncertainty:
        """The data for error bars; raises InputError if the model was created without."""
        if self.uncertainty is None:
            raise InputError("the model was created without uncertainty")
        return self.uncertainty

    def outputs(self, parts: Iterable[Floats]) -> Iterator[Floats]:
        """Yield f of standardized rows, part by part, in the learner's units; one memory serves all kernel values."""
        work = np.empty((0, 0))
        for features in parts:
            if len(work) < len(features):
                work = np.empty((len(features), len(self.basis.vectors)))
            yield self.basis.expand(features, self.coefficients, work[: len(features)])

    def moments(self, features: Floats) -> tuple[Floats, Floats]:
        """Return f and Var f of standardized rows, each of shape (rows, n_outputs); O(n_basis²) a row."""
        values, diagonal = self.basis.values(features), self.basis.kernel.diagonal(features)
        return values @ self.coefficients, self.known_uncertainty.variance(values, diagonal)
