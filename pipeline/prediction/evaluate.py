"""Evaluation of a served model on Parquet partitions with targets, one task per partition."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import TypeVar

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.policies import Policies
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.calibration.intervals import COVERAGE_LEVEL
from ridgestream.pipeline.calibration.reliability import Coverage, Reliability
from ridgestream.pipeline.dataset.boolean_columns import with_boolean_fill
from ridgestream.pipeline.dataset.range_checks import check_predictions
from ridgestream.pipeline.dataset.task_label import partition_needs
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.one_vs_rest import winners_of
from ridgestream.pipeline.models.learned_ranges import LearnedRanges
from ridgestream.pipeline.models.predictor import Model
from ridgestream.pipeline.prediction.held_out import HeldOutReader
from ridgestream.pipeline.prediction.input_checks import InputSummary
from ridgestream.pipeline.prediction.last_value import LastValue
from ridgestream.pipeline.prediction.trivial_model import TargetMoments, constant_outputs
from ridgestream.pipeline.sums.error_histogram import ErrorHistogram
from ridgestream.pipeline.sums.quantile_sketch import sample_indices
from ridgestream.stores.parquet.partitions import PartitionFile
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.schema.schema import Schema

Matrix = tuple[tuple[float, ...], ...]
Summed = TypeVar("Summed", Coverage, Reliability)


@dataclass(frozen=True)
class Evaluation:
    """Weighted sums over evaluated rows, mergeable."""

    weight: float = 0.0
    """The sum of weights: the number of rows if there are no weights."""
    mistakes: float = 0.0
    """The weight of rows whose predicted class is wrong; in regression, whose predicted sign is wrong."""
    squares: tuple[float, ...] = ()
    """The weighted sum of squared errors of each target, in squared target units; empty for multi-class targets."""
    true_positive: float = 0.0
    """The weight of rows of the positive class that were predicted as such."""
    positive: float = 0.0
    """The weight of rows of the positive class."""
    classes: bool = True
    """Whether the target is a class, binary or multi-class."""
    confusion: Matrix = ()
    """For multi-class targets, the weight of rows by true class (row) and predicted class (column)."""
    left_out: int = 0
    """Number of rows left out because of missing values."""
    residuals: tuple[ErrorHistogram, ...] = ()
    """In regression, histograms of predicted minus true values of each target, in its units."""
    trivial: tuple[float, ...] = ()
    """The sums of `mistakes` or `squares` for the constant that fits the learned rows best; empty if it is unknown."""
    rows: int = 0
    """Number of rows evaluated or left out."""
    rows_outside: int = 0
    """Number of rows outside the range of the rows learned, in any column."""
    outside: tuple[tuple[str, int], ...] = ()
    """The columns in which rows are outside, and their number, in descending order."""
    paired: tuple[float, ...] = ()
    """The sums of squared differences of a row's weighted loss and the constant's: their chance."""
    last_value: LastValue = LastValue()  # noqa: RUF009 (frozen)
    """The errors of the last value on these rows, in their order."""
    coverage: Coverage | None = None
    """In regression, the sums over rows with intervals; None for a model without."""
    reliability: Reliability | None = None
    """The sums over rows with class probabilities; None for a model without."""

    @classmethod
    def of(cls, predicted: Floats, truth: Floats, weights: Floats | None, *, classes: bool) -> "Evaluation":
        """Return the sums over rows with predictions and targets (rows, n_targets), in any common units.

        With `classes`, there is a single target, whose sign is the class.
        """
        w = np.ones(len(truth)) if weights is None else weights
        wrong, positive = (predicted[:, 0] > 0) != (truth[:, 0] > 0), truth[:, 0] > 0
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):  # callers check the result
            return cls(
                weight=float(w.sum()),
                mistakes=float(w @ wrong),
                squares=tuple(float(w @ (predicted[:, i] - truth[:, i]) ** 2) for i in range(truth.shape[1])),
                true_positive=float(w @ (positive & ~wrong)),
                positive=float(w @ positive),
                classes=classes,
            )

    @classmethod
    def of_classes(cls, predicted: Integers, truth: Integers, weights: Floats | None, n_classes: int) -> "Evaluation":
        """Return the sums over rows with predicted and true class indices (rows,)."""
        w = np.ones(len(truth)) if weights is None else weights
        counts = np.bincount(truth * n_classes + predicted, w, n_classes**2).reshape(n_classes, n_classes)
        with one_blas_thread():
            wrong = float(w @ (predicted != truth))
        return cls(float(w.sum()), wrong, confusion=tuple(tuple(float(n) for n in row) for row in counts))

    def merge(self, other: "Evaluation") -> "Evaluation":
        """Return the sums over both sets of rows."""
        names = ("weight", "mistakes", "true_positive", "positive")
        rows = zip(self.confusion, other.confusion, strict=True) if self.confusion and other.confusion else ()
        return replace(
            self,
            **{name: getattr(self, name) + getattr(other, name) for name in names},
            squares=_sum(self.squares, other.squares),
            confusion=tuple(_sum(*pair) for pair in rows) or self.confusion or other.confusion,
            residuals=_merge(self.residuals, other.residuals),
            trivial=_sum(self.trivial, other.trivial),
            paired=_sum(self.paired, other.paired),
            last_value=self.last_value.merge(other.last_value),
            coverage=_merged(self.coverage, other.coverage),
            reliability=_merged(self.reliability, other.reliability),
        )

    @property
    def test_error(self) -> float | None:
        """The fraction of rows misclassified; None in regression or without rows."""
        return self.mistakes / self.weight if self.classes and self.weight else None

    @property
    def test_mse_of(self) -> tuple[float, ...]:
        """The mean squared error of each target in its squared units; empty in classification or without rows."""
        return tuple(s / self.weight for s in self.squares) if not self.classes and self.weight else ()

    @property
    def test_mse(self) -> float | None:
        """The mean of `test_mse_of` over the targets; None in classification or without rows."""
        return sum(self.test_mse_of) / len(self.test_mse_of) if self.test_mse_of else None

    @property
    def test_errors(self) -> tuple[float, ...]:
        """The fraction misclassified, or the mean squared error of each target; empty without rows."""
        return self.test_mse_of if self.test_error is None else (self.test_error,)

    @property
    def trivial_errors(self) -> tuple[float, ...]:
        """The constant's errors, as `test_errors`; empty if it is unknown, or without rows."""
        return tuple(total / self.weight for total in self.trivial) if self.weight else ()

    @property
    def chance(self) -> tuple[float, ...]:
        """The standard errors of the differences between `test_errors` and `trivial_errors`, if they are none."""
        return tuple(sqrt(total) / self.weight for total in self.paired) if self.weight else ()

    @property
    def one_class(self) -> bool:
        """Whether there are rows and all of them have the same class."""
        rows = [sum(row) for row in self.confusion] or [self.positive, self.weight - self.positive]
        return self.classes and self.weight > 0 and sum(weight > 0 for weight in rows) == 1


def _sum(left: tuple[float, ...], right: tuple[float, ...]) -> tuple[float, ...]:
    """Return the elementwise sum; one of the tuples may be empty because it is over no rows."""
    return tuple(a + b for a, b in zip(left, right, strict=True)) if left and right else left or right


def _merge(left: tuple[ErrorHistogram, ...], right: tuple[ErrorHistogram, ...]) -> tuple[ErrorHistogram, ...]:
    return tuple(a.merge(b) for a, b in zip(left, right, strict=True)) if left and right else left or right


def _merged(left: Summed | None, right: Summed | None) -> Summed | None:
    return left.merge(right) if left and right else left or right


def compare(
    outputs: Floats, targets: Floats, weights: Floats | None, feature_map: FeatureMap, *, classes: bool
) -> Evaluation:
    """Return the errors of outputs against targets, both (rows, n_outputs), with weights (rows,)."""
    last_value = LastValue.of(targets, weights, classes=classes)
    if not feature_map.target.classes:
        return replace(Evaluation.of(outputs, targets, weights, classes=classes), last_value=last_value)
    predicted, truth = (winners_of(feature_map.target.class_scores(values)) for values in (outputs, targets))
    sums = Evaluation.of_classes(predicted, truth, weights, len(feature_map.target.classes))
    return replace(sums, last_value=last_value)


def losses_of(outputs: Floats, targets: Floats, feature_map: FeatureMap, *, classes: bool) -> Floats:
    """Return each row's loss, 1 for a wrong class (rows, 1), or the squared error of each target (rows, n_targets)."""
    if feature_map.target.classes:
        predicted, truth = (winners_of(feature_map.target.class_scores(values)) for values in (outputs, targets))
        return np.asarray(predicted != truth, dtype=np.float64)[:, np.newaxis]
    if classes:
        return np.asarray((outputs[:, :1] > 0) != (targets[:, :1] > 0), dtype=np.float64)
    return np.asarray((outputs - targets) ** 2)


def with_constant(
    part: Evaluation, outputs: Floats, rows: tuple[Floats, Floats | None], feature_map: FeatureMap, constant: Floats
) -> Evaluation:
    """Return the sums over rows, targets and weights, with those of a constant (n_outputs,) beside them."""
    targets, weights = rows
    w = np.ones(len(targets)) if weights is None else weights
    trivial = constant_outputs(constant, targets)
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        both = [losses_of(each, targets, feature_map, classes=part.classes) for each in (outputs, trivial)]
        sums, paired = w @ both[1], w**2 @ (both[0] - both[1]) ** 2
    return replace(part, trivial=tuple(sums.tolist()), paired=tuple(paired.tolist()))


def evaluate(
    model: Model,
    schema: Schema,
    files: Sequence[PartitionFile],
    executor: Executor,
    report: Reporter,
    policies: Policies | None = None,
    *,
    learned: TargetMoments | None = None,
    level: float = COVERAGE_LEVEL,
    ranges: LearnedRanges | None = None,
) -> Evaluation:
    """Return the model's errors on the partitions; raises PartitionError for one that cannot be used.

    `policies` (by default all errors) determine the treatment of missing values and of categories unknown to the model;
    with `drop`, rows with a missing value, including the target, are left out. With the moments of the targets that
    the model has learned, the errors of the constant that fits them best are beside the model's. A model with
    intervals, and enough rows for this `level`, also reports the coverage of a sample of each partition's rows; with
    probabilities, their reliability. With the ranges of the rows learned, the rows outside of them are counted.
    """
    policies = policies or Policies()
    model = model.having(feature_map=with_boolean_fill(model.feature_map, schema))
    executor.admit(partition_needs(files))
    report.begin(events.STEP_EVALUATE, None, partitions=len(files))
    total, summary = _of_no_rows(model, schema), InputSummary()
    constant = learned.constant(classes=schema.classifies) if learned else None
    shared = executor.broadcast(_with_intervals(model, level)), schema, policies, constant, level, ranges
    for part, part_summary in executor.run(evaluate_partition, files, *shared):
        total, summary = total.merge(part), summary.merge(part_summary)
        report.advance(part_summary.rows)
    report.end(test_error=total.test_error, test_mse=total.test_mse)
    summary.report_to(report, events.EVALUATE_ROWS_LEFT_OUT, ranges)
    return replace(
        total,
        rows=summary.rows,
        left_out=summary.left_out,
        rows_outside=summary.rows_outside,
        outside=summary.by_rows_outside,
    )


def evaluate_partition(
    file: PartitionFile,
    model: Model,
    schema: Schema,
    policies: Policies,
    constant: Floats | None = None,
    level: float = COVERAGE_LEVEL,
    ranges: LearnedRanges | None = None,
) -> tuple[Evaluation, InputSummary]:
    """Return the model's errors on one partition, batch by batch, and the summary of its rows."""
    reader = HeldOutReader(file, model.feature_map, schema, policies, ranges)
    total = _of_no_rows(model, schema)
    for rows, maps, known, numbers in reader.batches():
        outputs = predictions_of(model, rows, maps, str(file.path), numbers)
        targets = model.truth(rows, maps, known)
        part = compare(outputs, targets, rows.weights, model.feature_map, classes=schema.classifies)
        if not schema.classifies:
            part = replace(part, residuals=_residuals(outputs - targets, rows.weights))
        if constant is not None:
            part = with_constant(part, outputs, (targets, rows.weights), model.feature_map, constant)
        if model.intervals is not None and len(rows):
            part = replace(part, coverage=_coverage(model, level, rows, maps, outputs - targets))
        if model.probabilities is not None and len(rows):
            part = replace(part, reliability=_reliability(model, outputs, targets, rows.weights))
        total = total.merge(part)
    return total, reader.summary


def predictions_of(model: Model, rows: Rows, maps: Sequence[Integers], file: str, numbers: Integers) -> Floats:
    """Return f of rows with these numbers in `file`; raises PartitionError for a row at which it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        outputs = model.predict(rows.numeric, rows.codes, maps)
    check_predictions(outputs, file, numbers)
    return outputs


def _with_intervals(model: Model, level: float) -> Model:
    """Return the model without its intervals if they cannot have this level."""
    try:
        if model.intervals is not None:
            model.intervals.factors(level)
    except InputError:
        return model.having(intervals=None)
    return model


def _coverage(model: Model, level: float, rows: Rows, maps: Sequence[Integers], errors: Floats) -> Coverage:
    """Return the coverage of a sample of the rows: error bars take far longer than predictions."""
    sample = sample_indices(len(rows))
    _, deviations = model.deviations(rows.numeric[sample], rows.codes[sample], maps)
    weights = None if rows.weights is None else rows.weights[sample]
    return Coverage.of(level, errors[sample], model.radius(deviations, level), weights)


def _reliability(model: Model, outputs: Floats, targets: Floats, weights: Floats | None) -> Reliability:
    assert model.probabilities is not None  # noqa: S101 (the caller asks for them)
    scores = model.feature_map.target.class_scores(targets)
    truth = winners_of(scores) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(np.int64)
    return Reliability.of(model.probabilities.of(outputs), truth, weights)


def _residuals(errors: Floats, weights: Floats | None) -> tuple[ErrorHistogram, ...]:
    return tuple(ErrorHistogram.of(column, weights) for column in errors.T)


def _of_no_rows(model: Model, schema: Schema) -> Evaluation:
    no_rows, n_classes = np.empty(0, dtype=np.int64), len(model.feature_map.target.classes)
    if n_classes:
        return Evaluation.of_classes(no_rows, no_rows, None, n_classes)
    return Evaluation(classes=schema.classifies)
