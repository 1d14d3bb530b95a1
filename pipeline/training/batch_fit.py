"""One fit of a batch method: a new dictionary from all rows, or the sums of new rows for the existing dictionary."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.batch.method import FitTask, Method
from ridgestream.pipeline.batch.registry import METHODS
from ridgestream.pipeline.dataset.dictionary_file import read_dictionary
from ridgestream.pipeline.dataset.stored_rows import StoredRows
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.kernels import make_kernel
from ridgestream.pipeline.models.model_record import fitted_of
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.sums.normal_equations import BlockStatistics, FoldedStatistics, Summing
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.request import BatchRequest
from ridgestream.stores.catalog.models import ModelRecord

_ADVICE = "lower the kernel's gamma or degree, or raise regularization"

_SLACK = 1e-3
"""The largest rounding error of an error, as a share of Σ w y²."""


@dataclass(frozen=True)
class BatchFit:
    """One fit of a batch method to the rows of a store."""

    request: BatchRequest
    """The model that the job requests."""
    context: TrainingContext
    """The store's contents, limits, and executor."""
    feature_map: FeatureMap
    """From raw columns to standardized features."""

    @property
    def method(self) -> Method[Any]:
        """The batch method."""
        return METHODS[self.request.method]

    def rows(self, segments: Iterable[int]) -> StoredRows:
        """Return the rows of these segments."""
        return self.context.rows(segments, self.feature_map)

    def fit(self, record: ModelRecord | None, new: StoredRows, segments: list[int]) -> Fitted:
        """Return the model over all rows, those of `segments`: by adding the new rows' sums, or by a new selection.

        Raises NumericalBreakdown for kernel values that are too large, and the errors of the method.
        """
        if record is None or self.method.always_reselects or self.request.reselect == "always":
            return self._select(segments)
        if record.parameters["regularization"] != self.request.regularization:
            self.context.report.say(events.TRAIN_RESELECTED_FOR_REGULARIZATION)
            return self._select(segments)
        before = fitted_of(record)
        sums = new.statistics((Summing(before.basis, new.n_targets),), events.STEP_ADD_SUMS).parts[0].total()
        if self.request.reselect == "on drift" and self._has_drifted(before, sums):
            return self._select(segments)
        return self._add(before, sums)

    def _select(self, segments: list[int]) -> Fitted:
        rows, request = self.rows(segments), self.request
        task = FitTask(
            rows=rows,
            kernels=tuple(make_kernel(request.kernel, k, self.feature_map.n_fitted) for k in request.kernels),
            settings=request.settings,
            others=request.others,
            given=self._read_given(),
            memory_limit_bytes=self.context.memory_limit_bytes,
            report=self.context.report,
        )
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # `check_fitted` refuses what is not finite
                fitted = self.method.fit(task)
        except OverflowError as error:
            raise NumericalBreakdown(f"kernel values are too large to compute with: {_ADVICE}") from error
        indices = fitted.places
        return replace(fitted, places=np.where(indices < 0, -1, rows.numbers(np.maximum(indices, 0))))

    def _read_given(self) -> StartingDictionary | None:
        schema = self.context.ledger.schema
        if self.request.dictionary is None or schema is None:
            return None
        return read_dictionary(self.request.dictionary, schema, self.feature_map)

    def _has_drifted(self, before: Fitted, new: BlockStatistics) -> bool:
        """Return whether the error on new rows exceeds that on old ones by more than the margin, and report it."""
        old = before.sums.total()
        errors = [float(s.squared_error(before.coefficients).sum() / max(s.weight, 1e-300)) for s in (old, new)]
        has_drifted = bool(new.weight > 0 and errors[1] > (1 + self.request.drift_margin) * errors[0])
        if has_drifted:
            self.context.report.say(events.TRAIN_RESELECTED_FOR_DRIFT, mse_of_old_rows=errors[0], mse_of_new=errors[1])
        return has_drifted

    def _add(self, before: Fitted, new: BlockStatistics) -> Fitted:
        sums = before.sums.total().merge(new)
        with one_blas_thread():
            coefficients = self.method.solve(before, sums)
        return replace(before, coefficients=coefficients, sums=FoldedStatistics((sums,)))


def check_fitted(fitted: Fitted, report: Reporter, *, shrinks: bool) -> None:
    """Raise NumericalBreakdown if the coefficients' error on the rows shows that they are not a solution.

    No penalized solution has a larger error than β = 0, whose error is Σ w y², nor one below zero. For a method that
    does not fit to all rows (`shrinks` is false), a larger error is a warning.
    """
    _warn_of_size(fitted, report)
    sums, beta = fitted.sums.total(), fitted.coefficients
    most = float(np.trace(sums.target_square))
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        error = float(sums.residual_square(beta).sum())
    if not (np.isfinite(beta).all() and np.isfinite(sums.products).all() and np.isfinite(error)):
        raise NumericalBreakdown(f"coefficients or sums are not finite: {_ADVICE}")
    if -_SLACK * most <= error <= (1 + _SLACK) * most:
        return
    if shrinks:
        raise NumericalBreakdown(
            f"the coefficients are rounding, not a solution: their squared error over the rows comes to {error:.3g}, "
            f"which must lie between 0 and {most:.3g}; {_ADVICE}"
        )
    report.warn(events.TRAIN_WORSE_THAN_CONSTANT, error=error, error_of_a_constant=most)


def _warn_of_size(fitted: Fitted, report: Reporter) -> None:
    """Warn where the path continues to a larger dictionary of less than half the error, which max_basis rules out."""
    path = fitted.path
    if path is None or path.criterion != "fold_error":
        return
    best, chosen = int(np.argmin(path.value)), path.chosen
    if path.n_basis[best] > path.n_basis[chosen] and path.value[best] < path.value[chosen] / 2:
        report.warn(
            events.TRAIN_SIZE_TOO_SMALL,
            n_basis=int(path.n_basis[chosen]),
            mse_left_out=float(path.value[chosen]),
            n_basis_compared=int(path.n_basis[best]),
            mse_left_out_of_it=float(path.value[best]),
        )
