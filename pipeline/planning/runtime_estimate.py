"""Estimates how long a job takes on this machine by running its own method, at its own sizes, on its first rows.

The rows are ingested into a temporary store and learned there for a second or two. The cost of a row, O(n²) for n
functions, does not depend on the number of rows, nor does the cost of selection between passes; methods that hold all
rows at once cost O(rows³).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import compress, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.memory_plan import BatchPlan
from ridgestream.pipeline.base.policies import Policies
from ridgestream.pipeline.base.reporter import Fact, Silent
from ridgestream.pipeline.dataset.feature_map_growth import plan_encodings
from ridgestream.pipeline.dataset.stored_rows import StoredRows
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.ingest.ingest import ingest
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import Summing
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.request import Request
from ridgestream.pipeline.training.trainer import Trainer, train, trainer_of
from ridgestream.stores.catalog.ledger import Ledger, read_ledger
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.partitions import PartitionFile, count_rows, list_partitions, read_batches
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.schema.schema import SchemaRequest

if TYPE_CHECKING:
    import pyarrow as pa
    import zarr

BUDGET_SECONDS = 1.5
"""How long the sample is learned; the pass or block in progress is finished."""

_PIECE_ROWS = 4096
"""Rows of each partition of the sample but the last: the online learner is timed after each."""

_LARGE_PIECE_ROWS = 16_384
"""Rows of the last partition."""

_LEAST_ROWS, _MOST_ROWS, _DENSE_ROWS = 2048, 32_768, 1000
"""Fewest and most rows of a sample; rows for methods that hold all rows at once."""

_LEAST_PASSES = 3
"""The fewest passes that are timed: the first passes of a method differ in cost."""


@dataclass(frozen=True)
class Sample:
    """The job's first rows in a temporary store."""

    store: Store
    """The store."""
    learned_rows: int
    """How many of them are learned, up to the end of a partition."""
    ingest_row_seconds: float
    """Seconds of ingest per row."""

    @property
    def root(self) -> "zarr.Group":
        """The store's last commit."""
        return self.store.root()

    @property
    def ledger(self) -> Ledger:
        """The partitions of the sample that are learned."""
        ledger = read_ledger(self.root)
        starts = np.cumsum([0, *(entry.rows for entry in ledger.entries)])
        return replace(ledger, entries=tuple(compress(ledger.entries, starts < self.learned_rows)))

    def feature_map(self, request: Request) -> FeatureMap:
        """Return the feature map that a new model of these rows would have."""
        policy = request.unseen_categories
        entries = self.ledger.entries
        return plan_encodings(self.root, self.ledger, None, entries, request.scaling_rows, policy, Silent()).last


@dataclass(frozen=True)
class Estimate:
    """How long training takes on one thread."""

    row_seconds: float
    """Seconds per row, of all passes together."""
    fixed_seconds: float
    """Seconds that do not depend on the number of rows."""
    rows: int
    """The number of rows that the estimate is based on."""
    seconds: float
    """How many seconds they were learned."""


@contextmanager
def take_sample(
    files: Sequence[PartitionFile], rows: int, request: SchemaRequest, policies: Policies
) -> Iterator[Sample]:
    """Yield the files' first rows, of which `rows` are learned, in a temporary store that is deleted afterwards.

    Raises what `ingest` raises for rows that cannot be used.
    """
    with TemporaryDirectory(prefix="ridgestream-plan-") as text:
        folder = Path(text)
        _write_pieces(_first_batches(files, _MOST_ROWS), folder / "rows")
        store = Store.open_or_create(StoreLocation(str(folder / "store")))
        timing = Timing()
        with store.lock():
            ingest(store, list_partitions(folder / "rows"), request, InProcess(), timing, None, policies)
        yield Sample(store, rows, timing.last_row_seconds())


def plan_sample_rows(request: Request, n_rows: int) -> int:
    """Return how many rows to learn: as many as BUDGET_SECONDS allow, and enough for the vectors of a pass."""
    trainer = trainer_of(request)
    plan = trainer.plan_memory(None, n_rows, n_features=1, n_outputs=1)
    if not isinstance(plan, BatchPlan):
        return min(n_rows, _MOST_ROWS)
    if trainer.is_dense:
        return min(n_rows, _DENSE_ROWS)
    passes = trainer.passes(None, n_rows, n_rows)
    fitting = int(0.5 * BUDGET_SECONDS / max(sum(each.row_seconds for each in passes), 1e-12))
    least = max(_LEAST_ROWS, 2 * plan.n_functions)
    return min(n_rows, _MOST_ROWS, max(least, fitting))


def calibrate(sample: Sample, request: Request, n_rows: int, memory_limit_bytes: int) -> Estimate:
    """Learn the sample for BUDGET_SECONDS, and return the cost of `n_rows` rows that follows from it."""
    _warm_up()
    timing = Timing()
    context = TrainingContext(
        root=sample.root, ledger=sample.ledger, record=None, memory_limit_bytes=memory_limit_bytes, report=timing
    )
    with suppress(Enough):
        train(trainer_of(request), context)
    timing.stop()
    trainer = trainer_of(request)
    if not trainer.shares_passes:
        return timing.of_stream(request.max_basis)
    return timing.of_passes(trainer, sample.ledger.rows, n_rows)


def time_sums(sample: Sample, feature_map: FeatureMap, n_functions: int) -> float:
    """Return the seconds per row of summing the products with a dictionary of `n_functions` vectors."""
    ledger = sample.ledger
    rows = StoredRows(sample.root, ledger, [e.segment for e in ledger.entries], feature_map, InProcess(), Silent())
    drawn = rows.take(np.resize(np.arange(rows.n_rows), n_functions)).features
    basis = Basis(RBF(1.0 / rows.n_features), drawn, np.zeros(rows.n_features))
    few = StoredRows(sample.root, ledger, [ledger.entries[0].segment], feature_map, InProcess(), Silent())
    began = perf_counter()
    few.statistics((Summing(basis, few.n_targets),), events.STEP_CALIBRATE)
    return (perf_counter() - began) / max(1, few.n_rows)


class Enough(Exception):
    """Raised when the sample has been learned for long enough."""


@dataclass
class Timing(Silent):
    """A reporter that times passes and blocks."""

    began: float = field(default_factory=perf_counter)
    stopped: float = 0.0
    _begun_at: float = 0.0
    _in_pass: bool = False
    _pieces: list[tuple[int, float, int]] = field(default_factory=list)
    _passes: list[float] = field(default_factory=list)

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:  # noqa: ARG002
        """Begin a pass; raises Enough after BUDGET_SECONDS and _LEAST_PASSES."""
        now = perf_counter()
        if now - self.began > BUDGET_SECONDS and len(self._passes) >= _LEAST_PASSES:
            raise Enough
        self._begun_at, self._in_pass = now, total_rows is not None
        self._pieces = []

    def advance(self, rows: int, **facts: Fact) -> None:
        """Record the seconds of a stream's rows, and the size of the dictionary after them."""
        if self._in_pass and "n_basis" not in facts:
            return
        now, n_basis = perf_counter(), facts.get("n_basis")
        if rows:
            self._pieces.append((rows, now - self._begun_at, n_basis if isinstance(n_basis, int) else 0))
            self._begun_at = now
        if n_basis is not None and now - self.began > BUDGET_SECONDS and len(self._pieces) > 1:
            raise Enough

    def end(self, **facts: Fact) -> None:  # noqa: ARG002
        """Record the seconds of a pass."""
        if self._in_pass:
            self._passes.append(perf_counter() - self._begun_at)
        self._in_pass = False

    def last_row_seconds(self) -> float:
        """Return the seconds per row of the last piece."""
        return self._pieces[-1][1] / self._pieces[-1][0] if self._pieces else 0.0

    def stop(self) -> None:
        """Record the end of the training."""
        self.stopped = perf_counter()

    def of_stream(self, max_basis: int | None) -> Estimate:
        """Return the cost of a late row: that of the second half of the sample, scaled by O(n²) if n still grows."""
        late = self._pieces[len(self._pieces) // 2 :]
        rows, seconds, n_basis = sum(p[0] for p in late), sum(p[1] for p in late), max(p[2] for p in late)
        grown = max(1.0, (max_basis or n_basis) / max(n_basis, 1)) ** 2
        learned = sum(p[0] for p in self._pieces)
        return Estimate(grown * seconds / rows, 0.0, learned, self.stopped - self.began)

    def of_passes(self, trainer: Trainer, sampled: int, n_rows: int) -> Estimate:
        """Return the cost of a row in all passes, and of the work between passes."""
        whole, spent = self.stopped - self.began, sum(self._passes)
        if trainer.is_dense:
            return Estimate(0.0, whole * (n_rows / sampled) ** 3, sampled, whole)
        done = trainer.passes(None, sampled, sampled)[: len(self._passes)]
        planned = trainer.passes(None, n_rows, n_rows)
        pace = spent / sampled / max(sum(each.row_seconds for each in done), 1e-12)
        between = (whole - spent) * sum(e.values for e in planned) / max(sum(e.values for e in done), 1)
        return Estimate(pace * sum(each.row_seconds for each in planned), between, sampled, whole)


def sampled(files: Sequence[PartitionFile]) -> Iterator[PartitionFile]:
    """Yield the files whose rows may be in a sample."""
    left = _MOST_ROWS
    for file in files:
        if left <= 0:
            return
        yield file
        left -= count_rows(file)


def _first_batches(files: Sequence[PartitionFile], rows: int) -> "list[pa.RecordBatch]":
    """Return the first rows, as long as columns and types stay the same; raises PartitionError if there are none."""
    batches: list[pa.RecordBatch] = []
    left = rows
    for batch in (batch for file in files for batch in read_batches(file, None)):
        if left <= 0 or (batches and not batch.schema.equals(batches[0].schema)):
            break
        batches.append(batch.slice(0, left))
        left -= batch.num_rows
    if not batches:
        raise PartitionError("the partitions have no rows to estimate from")
    return batches


def _write_pieces(batches: "Sequence[pa.RecordBatch]", folder: Path) -> None:
    """Write the rows as partitions of _PIECE_ROWS and one larger last, by which the ingest of large ones is timed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rows = pa.Table.from_batches(batches)
    small = range(0, max(rows.num_rows - _LARGE_PIECE_ROWS, 1), _PIECE_ROWS)
    for number, (start, stop) in enumerate(pairwise([*small, rows.num_rows])):
        pq.write_table(rows.slice(start, stop - start), folder / f"part-{number}.parquet")


def _warm_up() -> None:
    """Compile the learner: slow once after an installation, and no part of the cost of rows."""
    X = np.random.default_rng(0).normal(size=(512, 4))
    OnlineLSSVM(RBF(0.5), max_basis=16).partial_fit(X, np.sin(X[:, 0]))
