"""Times the passes and blocks of a sample's training, and estimates those of all rows from them."""

from dataclasses import dataclass, field
from time import perf_counter

from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.base.reporter import Fact, Silent
from ridgestream.pipeline.training.trainer import Trainer

BUDGET_SECONDS = 1.5
"""How long the sample is learned; the pass or block in progress is finished."""

_LEAST_PASSES = 3
"""The fewest passes that are timed: the first passes of a method differ in cost."""


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


class TimeIsUp(Exception):
    """Raised when the sample has been learned for long enough."""


@dataclass(frozen=True)
class _Piece:
    """Rows of a stream, reported together."""

    rows: int
    """Their number."""
    seconds: float
    """How long they took."""
    n_basis: int
    """The size of the dictionary after them; 0 if none was reported."""


@dataclass
class Timing(Silent):
    """A reporter that times passes and blocks; it begins when it is made."""

    started: float = field(default_factory=perf_counter)
    stopped: float = 0.0
    is_complete: bool = False
    """Whether the whole sample has been learned."""
    _piece_started: float = 0.0
    _in_pass: bool = False
    _pieces: list[_Piece] = field(default_factory=list)
    _pass_seconds: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The duration of the whole training."""
        return self.stopped - self.started

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:  # noqa: ARG002
        """Begin a pass; raises TimeIsUp after BUDGET_SECONDS and _LEAST_PASSES."""
        now = perf_counter()
        if now - self.started > BUDGET_SECONDS and len(self._pass_seconds) >= _LEAST_PASSES:
            raise TimeIsUp
        self._piece_started, self._in_pass = now, total_rows is not None
        self._pieces = []

    def advance(self, rows: int, **facts: Fact) -> None:
        """Record the seconds of a stream's rows, and the size of the dictionary after them."""
        if self._in_pass and "n_basis" not in facts:
            return
        now, n_basis = perf_counter(), facts.get("n_basis")
        if rows:
            self._pieces.append(_Piece(rows, now - self._piece_started, n_basis if isinstance(n_basis, int) else 0))
            self._piece_started = now
        if n_basis is not None and now - self.started > BUDGET_SECONDS and len(self._pieces) > 1:
            raise TimeIsUp

    def end(self, **facts: Fact) -> None:  # noqa: ARG002
        """Record the seconds of a pass."""
        if self._in_pass:
            self._pass_seconds.append(perf_counter() - self._piece_started)
        self._in_pass = False

    def stop(self) -> None:
        """Record the end of the training."""
        self.stopped = perf_counter()

    def whole_estimate(self, n_rows: int) -> Estimate:
        """Return the cost of a training that has been timed to its end."""
        in_passes = sum(self._pass_seconds)
        return Estimate(in_passes / n_rows, self.seconds - in_passes, n_rows, self.seconds)

    def last_row_seconds(self) -> float:
        """Return the seconds per row of the last piece."""
        return self._pieces[-1].seconds / self._pieces[-1].rows if self._pieces else 0.0

    def stream_estimate(self, max_basis: int | None, n_rows: int) -> Estimate:
        """Return the cost of a late row: that of the second half of the sample, scaled by O(n²) if n still grows.

        The dictionary grows at most as fast as in that half, and up to `max_basis`.
        """
        half = len(self._pieces) // 2
        early, late = self._pieces[:half], self._pieces[half:]
        rows, seconds = sum(piece.rows for piece in late), sum(piece.seconds for piece in late)
        n_basis, learned = max(late[-1].n_basis, 1), rows + sum(piece.rows for piece in early)
        pace = (late[-1].n_basis - (early[-1].n_basis if early else 0)) / rows
        final = min(max_basis or n_basis, n_basis + pace * (n_rows - learned))
        return Estimate(max(1.0, final / n_basis) ** 2 * seconds / rows, 0.0, learned, self.seconds)

    def passes_estimate(self, trainer: Trainer, sample_rows: int, n_rows: int) -> Estimate:
        """Return the cost of a row in all passes, and of the work between passes."""
        if trainer.is_dense:
            return Estimate(0.0, self.seconds * (n_rows / sample_rows) ** 3, sample_rows, self.seconds)
        in_passes = sum(self._pass_seconds)
        timed = trainer.passes(None, sample_rows, sample_rows)[: len(self._pass_seconds)]
        planned = trainer.passes(None, n_rows, n_rows)
        pace = in_passes / sample_rows / max(sum(each.row_seconds for each in timed), 1e-12)
        values = sum(each.values for each in planned) / max(sum(each.values for each in timed), 1)
        return Estimate(
            row_seconds=pace * sum(each.row_seconds for each in planned),
            fixed_seconds=(self.seconds - in_passes) * values,
            rows=sample_rows,
            seconds=self.seconds,
        )
