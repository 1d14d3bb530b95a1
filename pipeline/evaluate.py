"""Evaluation: a served model against Parquet partitions that hold the target, one task a partition."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.arrays import Floats
from ridgestream.pipeline.errors import InputError
from ridgestream.pipeline.executor import Executor
from ridgestream.pipeline.model import Model
from ridgestream.pipeline.reporting import Reporter
from ridgestream.pipeline.threads import one_blas_thread
from ridgestream.stores.decoding import Decoder
from ridgestream.stores.errors import PartitionError
from ridgestream.stores.partitions import PartitionFile, check_unchanged, read_arrow_schema, read_batches
from ridgestream.stores.schema import Schema


@dataclass(frozen=True)
class Evaluation:
    """Weighted sums over evaluated rows; added, they are those of all the rows."""

    weight: float = 0.0
    """The sum of weights: the number of rows where rows carry none."""
    mistakes: float = 0.0
    """The weight of the rows whose predicted sign is wrong; zero in regression."""
    squares: float = 0.0
    """The weighted sum of squared errors, in squared target units."""
    true_positive: float = 0.0
    """The weight of rows of the positive class that were predicted so."""
    positive: float = 0.0
    """The weight of rows of the positive class."""
    classes: bool = True
    """Whether the target is a class against the rest."""

    @classmethod
    def of(cls, predicted: Floats, truth: Floats, weights: Floats | None, *, classes: bool) -> "Evaluation":
        """Return the sums over rows with predictions and targets (rows,), in whatever units both have."""
        w = np.ones(len(truth)) if weights is None else weights
        wrong, positive = (predicted > 0) != (truth > 0), truth > 0
        with one_blas_thread():
            return cls(
                weight=float(w.sum()),
                mistakes=float(w @ wrong),
                squares=float(w @ (predicted - truth) ** 2),
                true_positive=float(w @ (positive & ~wrong)),
                positive=float(w @ positive),
                classes=classes,
            )

    def merge(self, other: "Evaluation") -> "Evaluation":
        """Return the sums of both."""
        names = ("weight", "mistakes", "squares", "true_positive", "positive")
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def test_error(self) -> float | None:
        """The fraction of rows misclassified; None in regression or without rows."""
        return self.mistakes / self.weight if self.classes and self.weight else None

    @property
    def test_mse(self) -> float | None:
        """The mean squared error in squared target units; None in classification or without rows."""
        return self.squares / self.weight if not self.classes and self.weight else None


def evaluate(
    model: Model, schema: Schema, files: Sequence[PartitionFile], executor: Executor, report: Reporter
) -> Evaluation:
    """Return the model's errors on the partitions; raise PartitionError for one that cannot be used."""
    report.begin("evaluate", None, partitions=len(files))
    empty = Evaluation(classes=schema.positive is not None)
    results = []
    for part in executor.run(evaluate_partition, files, executor.broadcast(model), schema):
        results.append(part)
        report.advance(int(part.weight))
    total = reduce(Evaluation.merge, results, empty)
    report.end(test_error=total.test_error, test_mse=total.test_mse)
    return total


def check_partitions(files: Sequence[PartitionFile], schema: Schema) -> None:
    """Raise PartitionError for a file that is no Parquet, or lacks a column or its type; no row is read."""
    for file in files:
        Decoder(schema, str(file.path)).check(read_arrow_schema(file))


def evaluate_partition(file: PartitionFile, model: Model, schema: Schema) -> Evaluation:
    """Return the model's errors on one partition, batch by batch."""
    classes = schema.positive is not None
    decoder = Decoder(schema, str(file.path))
    decoder.check(read_arrow_schema(file))
    total = Evaluation(classes=classes)
    for batch in read_batches(file, schema.columns(with_target=True)):
        rows = decoder.decode(batch)
        if rows.targets is not None:
            predicted = model.predict(rows.numeric, rows.codes, code_maps_of(model, decoder))[:, 0]
            total = total.merge(Evaluation.of(predicted, rows.targets[:, 0], rows.weights, classes=classes))
    check_unchanged(file)
    return total


def code_maps_of(model: Model, decoder: Decoder) -> list[npt.NDArray[np.int64]]:
    """Return the model's maps of the categories decoded so far; raise PartitionError naming the file for a new one."""
    try:
        return model.feature_map.code_maps([list(table) for table in decoder.categories])
    except InputError as error:
        raise PartitionError(f"{decoder.place}: {error}") from error
