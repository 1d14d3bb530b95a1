"""Batch training: a method chooses a dictionary from all rows of a model, and further nights add their sums to it.

The first training fits the method to every row that there is. A night with new partitions sums these alone over the
dictionary that there is and solves again; whether it chooses a dictionary anew is `reselect`. Where the rows and the
job are the same, so are the bits, on any number of workers.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.base.executor import Executor, Need
from ridgestream.pipeline.base.memory_plan import BatchPlan
from ridgestream.pipeline.base.pass_checkpoint import Keeper, named_pass
from ridgestream.pipeline.base.policies import ERROR
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.batch.registry import METHODS, Asked, Method
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES
from ridgestream.pipeline.dataset.dictionary_file import read_dictionary
from ridgestream.pipeline.dataset.feature_map_growth import plan_encodings
from ridgestream.pipeline.dataset.range_checks import check_errors, check_ranges
from ridgestream.pipeline.dataset.stored_rows import StoredRows
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.kernels import make_kernel
from ridgestream.pipeline.models.model_record import check_complete, fitted_of, widened, with_fitted
from ridgestream.pipeline.prediction.evaluate import Evaluation, compare
from ridgestream.pipeline.prediction.progressive_validation import Progressive, mean_errors
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.sums.normal_equations import Basis, BlockStatistics, FoldedStatistics, RowBlock, Summing
from ridgestream.pipeline.training.training_result import Trained, begin_record, find_unlearned
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.catalog.models import ModelRecord, check_parameters
from ridgestream.stores.files.paths import FileLocation
from ridgestream.stores.segments.segments import Segment

if TYPE_CHECKING:
    import zarr

_ADVICE = "lower the kernel's gamma or degree, or raise regularization"

_SLACK = 1e-3
"""By which share of Σ w y² rounding may move an error."""


@dataclass(frozen=True)
class BatchRequest:
    """What a job asks a model of a batch method to be."""

    name: str
    """The model's name in the store."""
    method: str
    """A key of METHODS."""
    kernel: str
    """rbf, polynomial or linear."""
    kernels: tuple[dict[str, float], ...]
    """gamma, degree, coef0 as far as given, of every kernel that is to be tried."""
    regularizations: tuple[float, ...]
    """Every λ per row that is to be tried."""
    max_basis: int | None
    """The largest dictionary; None for as many vectors as there are to choose from."""
    folds: int
    """How many folds judge what is tried."""
    random_seed: int
    """What rows are drawn and dealt to folds with."""
    scaling_rows: int | None
    """The first partitions with so many rows fix the standardization; None for all that are there."""
    reselect: str = "never"
    """Whether a night with new partitions chooses anew: never, always, or on drift."""
    drift_margin: float = 0.1
    """By which share the error on new rows must exceed that on the rows chosen from, to be drift."""
    dictionary: FileLocation | None = None
    """The rows of a dictionary to begin with; None where none is given."""
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What belongs to some methods alone, by the names of their sections."""
    unseen_categories: str = ERROR
    """What becomes of categories that the model has not seen; may change from one training to the next."""
    given_basis: int = 0
    """The rows of a dictionary to begin with, by the footers of its files; 0 where none is given."""

    def parameters(self) -> dict[str, Any]:
        """Return what makes a model of this name another model if it changes."""
        names = sorted({name for kernel in self.kernels for name in kernel})
        return {
            "method": self.method,
            "kernel": {"name": self.kernel, **{n: _one_or_all([k[n] for k in self.kernels]) for n in names}},
            "regularization": _one_or_all(list(self.regularizations)),
            "max_basis": self.max_basis,
            "folds": self.folds,
            "random_seed": self.random_seed,
            "scaling_rows": self.scaling_rows,
            "dictionary": "given" if self.dictionary else None,
            **self.options,
        }


def check_batch_request(record: ModelRecord, request: BatchRequest) -> None:
    """Raise ModelError, naming each parameter that differs, if the model was not asked to be what is asked now.

    Other regularizations are no other model: the next training compares them.
    """
    check_complete(record)
    kept: dict[str, Any] = {n: record.parameters[n] for n in ("learner", "regularization") if n in record.parameters}
    check_parameters(record, {**request.parameters(), **kept})


def is_regrided(record: ModelRecord, request: BatchRequest) -> bool:
    """Tell whether other regularizations are asked for than the model was chosen from."""
    return bool(record.parameters["regularization"] != request.parameters()["regularization"])


def train_batch(
    root: "zarr.Group",
    ledger: Ledger,
    record: ModelRecord | None,
    request: BatchRequest,
    memory_limit_bytes: int,
    executor: Executor,
    report: Reporter,
    keeper: Keeper | None = None,
) -> Trained:
    """Fit the model, new if `record` is None, to the partitions that it lacks and those that it has.

    What long passes have summed is kept by `keeper`, for a run that goes on after a kill. Raises ModelError if the
    request has other parameters than the record, MemoryRefused before anything is read, InputError for a category or
    class that the model does not know, and what method, executor and store raise.
    """
    began = perf_counter()
    if record is not None:
        check_batch_request(record, request)
    entries = find_unlearned(ledger, record)
    policy = request.unseen_categories
    encodings = plan_encodings(root, ledger, record, entries, request.scaling_rows, policy, report)
    feature_map = encodings.last
    plan = plan_batch(request, ledger.rows, feature_map.n_features)
    plan.check(memory_limit_bytes)
    executor.admit([Need(plan.worker_bytes)])
    record = widened(record, encodings.first, feature_map) if record else None
    check_ranges(root, entries, feature_map, ledger.schema.targets if ledger.schema else ())
    learned = record.learned if record else ()
    night = _Night(root, ledger, feature_map, executor, report, request, memory_limit_bytes, keeper)
    new = night.rows([entry.segment for entry in entries])
    judged = _judge(record, new, feature_map, ledger, entries) if record is not None and new.n_rows else None
    found = judged.errors() if judged else {}
    check_errors(found, entries)
    fitted = night.fit(record, new, [*learned, *(entry.segment for entry in entries)])
    check_fitted(fitted, report, shrinks=METHODS[request.method].shrinks)
    begun = record or begin_record(root, ledger, request.name, request.parameters(), feature_map)
    begun = replace(begun, parameters=request.parameters())
    one_class = judged.total.one_class if judged else _one_class(root, ledger, entries)
    error, errors = mean_errors(judged.total, feature_map) if judged else (None, ())
    by_partition = tuple(found.get(entry.segment) for entry in entries) if judged else None
    seconds = perf_counter() - began
    return Trained(with_fitted(begun, fitted), entries, error, errors, seconds, one_class, by_partition)


@dataclass(frozen=True)
class _Night:
    """One training of a batch method."""

    root: "zarr.Group"
    ledger: Ledger
    feature_map: FeatureMap
    executor: Executor
    report: Reporter
    request: BatchRequest
    memory_limit_bytes: int
    keeper: Keeper | None

    @property
    def method(self) -> Method:
        return METHODS[self.request.method]

    def rows(self, segments: Iterable[int]) -> StoredRows:
        where = self.root, self.ledger, segments, self.feature_map
        return StoredRows(*where, self.executor, self.report, self.keeper)

    def fit(self, record: ModelRecord | None, new: StoredRows, segments: list[int]) -> Fitted:
        """Return the model over all rows: by adding the new ones' sums, or by choosing anew."""
        if record is None or self.method.always_anew or self.request.reselect == "always":
            return self._choose(segments)
        if is_regrided(record, self.request):
            self.report.say(events.TRAIN_RESELECTED_FOR_REGULARIZATION)
            return self._choose(segments)
        before = fitted_of(record)
        sums = new.statistics((Summing(before.basis, new.n_targets),), "add sums").parts[0].total()
        if self.request.reselect == "on drift" and self._drifted(before, sums):
            return self._choose(segments)
        return self._add(before, sums)

    def _choose(self, segments: list[int]) -> Fitted:
        rows, request = self.rows(segments), self.request
        kernels = tuple(make_kernel(request.kernel, k, self.feature_map.n_fitted) for k in request.kernels)
        asked = Asked(
            rows,
            kernels,
            request.regularizations,
            request.max_basis,
            request.folds,
            request.random_seed,
            request.options,
            self._given(),
            self.memory_limit_bytes,
            self.report,
        )
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is looked at in the end
                fitted = self.method.fit(asked)
        except OverflowError as error:
            raise NumericalBreakdown(f"kernel values are too large to compute with: {_ADVICE}") from error
        places = fitted.places
        return replace(fitted, places=np.where(places < 0, -1, rows.numbers(np.maximum(places, 0))))

    def _given(self) -> StartingDictionary | None:
        if self.request.dictionary is None or self.ledger.schema is None:
            return None
        return read_dictionary(self.request.dictionary, self.ledger.schema, self.feature_map)

    def _drifted(self, before: Fitted, new: BlockStatistics) -> bool:
        """Tell whether the error on new rows exceeds that on old ones by more than the margin, and say so."""
        old = before.sums.total()
        errors = [float(s.squared_error(before.coefficients).sum() / max(s.weight, 1e-300)) for s in (old, new)]
        drifted = bool(new.weight > 0 and errors[1] > (1 + self.request.drift_margin) * errors[0])
        if drifted:
            self.report.say(events.TRAIN_RESELECTED_FOR_DRIFT, mse_of_old_rows=errors[0], mse_of_new=errors[1])
        return drifted

    def _add(self, before: Fitted, new: BlockStatistics) -> Fitted:
        sums = before.sums.total().merge(new)
        with one_blas_thread():
            coefficients = self.method.solve(before, sums)
        return replace(before, coefficients=coefficients, sums=FoldedStatistics((sums,)))


def check_fitted(fitted: Fitted, report: Reporter, *, shrinks: bool) -> None:
    """Raise NumericalBreakdown if, by their error on the rows, the coefficients are not the solution they should be.

    No penalized solution has a larger error than no model at all, nor one below zero: Σ w y² is the bound, the cost
    of β = 0. Where a method does not fit to all rows (`shrinks` is false), it is told, not refused.
    """
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


def plan_batch(request: BatchRequest, n_rows: int, n_features: int) -> BatchPlan:
    """Return what the method needs, by the job and the store alone."""
    sized = METHODS[request.method].sizes(request, n_rows)
    folds = len(request.kernels) * (1 if sized.dense_rows else request.folds)
    return BatchPlan(request.method, sized.n_functions, folds, n_features, BLOCK_BYTES, sized.dense_rows)


@dataclass(frozen=True)
class _Judging:
    """A model and how its errors are counted; the argument of a pass."""

    basis: Basis
    """The dictionary."""
    coefficients: Floats
    """β, shape (n_functions, n_targets)."""
    feature_map: FeatureMap
    """Which classes there are, if any."""
    classes: bool
    """Whether the target is a class."""
    segments: tuple[int, ...]
    """The segments whose rows are judged."""
    firsts: tuple[int, ...]
    """The place of each one's first row."""

    def segment_of(self, place: int) -> int:
        """Return the segment of the row at a place; segments without rows have none."""
        return self.segments[bisect_right(self.firsts, place) - 1]


@named_pass("ridgestream.pipeline.batch", "judge_rows")
def judge_rows(judging: _Judging, blocks: Iterable[RowBlock]) -> Progressive:
    """Return the errors on the rows of all blocks, by segment."""
    total = Progressive(Evaluation(classes=judging.classes))
    step = judging.basis.kernel_rows
    for block in blocks:
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):  # told by its partition
            outputs = [
                judging.basis.values(block.features[start : start + step]) @ judging.coefficients
                for start in range(0, len(block.features), step)
            ]
        if outputs:
            part = np.concatenate(outputs)
            found = compare(part, block.targets, block.weights, judging.feature_map, classes=judging.classes)
            total = total.merge(Progressive.of(judging.segment_of(block.first), found, judging.feature_map))
    return total


def _judge(
    record: ModelRecord, new: StoredRows, feature_map: FeatureMap, ledger: Ledger, entries: tuple[LedgerEntry, ...]
) -> Progressive:
    """Return the errors of the model as it is on rows that it has not learned."""
    before = fitted_of(record)
    classes = ledger.schema is not None and ledger.schema.classifies
    firsts = tuple(accumulate((entry.rows for entry in entries[:-1]), initial=0))
    where = tuple(entry.segment for entry in entries), firsts
    judging = _Judging(before.basis, before.coefficients, feature_map, classes, *where)
    return new.reduce(judge_rows, judging, "judge")


def _one_class(root: "zarr.Group", ledger: Ledger, entries: Iterable[LedgerEntry]) -> bool:
    """Tell whether all rows of the partitions that count are of one class."""
    facts = [Segment.open(root, entry.segment).facts() for entry in entries if entry.rows]
    if ledger.schema is not None and ledger.schema.positive is not None:
        signs = np.array([fact.moments[3:, -1] for fact in facts if fact.moments[0, -1] > 0])
        return bool(signs.size) and float(signs.min()) == float(signs.max())
    return bool(facts) and len({label for fact in facts for label in fact.present_classes}) == 1


def _one_or_all(values: list[Any]) -> Any:  # noqa: ANN401
    return values[0] if len(set(values)) == 1 else values
