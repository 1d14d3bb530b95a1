"""What a batch method is: its settings, how it is fitted, and how its memory and passes are planned."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.selection.candidate_rounds import (
    KERNEL_SECONDS,
    PRODUCT_SECONDS,
    ROW_SECONDS,
    NumberOrAll,
    largest_pass,
    plan_look_ahead,
)
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.sums.normal_equations import BlockStatistics
from ridgestream.pipeline.sums.row_set import RowSet

Settings = TypeVar("Settings")
Settings_co = TypeVar("Settings_co", covariant=True)


@dataclass(frozen=True, kw_only=True)
class FitTask(Generic[Settings_co]):
    """What a method is fitted to, and with which settings."""

    rows: RowSet
    """The rows."""
    kernels: tuple[Kernel, ...]
    """Every kernel to compare."""
    settings: Settings_co
    """The method's settings."""
    others: dict[str, Any]
    """The settings of other methods that this one builds upon, by the names of their sections."""
    given: StartingDictionary | None
    """A given initial dictionary; None where there is none."""
    memory_limit_bytes: int
    """How many bytes this process may use."""
    report: Reporter
    """Where progress is reported."""


@dataclass(frozen=True)
class PassPlan:
    """One pass over rows."""

    values: int
    """Kernel values of a row."""
    products: int
    """Products that are summed, of a row."""

    @property
    def row_seconds(self) -> float:
        """The seconds that a row costs on one thread of the machine on which the constants were measured."""
        return self.values * KERNEL_SECONDS + self.products * PRODUCT_SECONDS + ROW_SECONDS


@dataclass(frozen=True, kw_only=True)
class PlanTask(Generic[Settings_co]):
    """What memory and passes of a fit depend on, beside the rows' features."""

    settings: Settings_co
    """The method's settings."""
    others: dict[str, Any]
    """The settings of other methods that this one builds upon, by the names of their sections."""
    n_rows: int
    """The number of rows."""
    n_kernels: int = 1
    """The number of kernels to compare."""
    given_basis: int = 0
    """The rows of a given initial dictionary; 0 where there is none."""


@dataclass(frozen=True)
class Sizes:
    """What a method's memory depends on."""

    n_functions: int
    """Functions whose products are summed at once."""
    dense_rows: int = 0
    """Rows whose kernel matrix is formed."""


def solve_normal_equations(fitted: Fitted, sums: BlockStatistics) -> Floats:
    """Return the solution of (G + λnK)β = z, K without a penalty for a bias."""
    return sums.factorize(fitted.basis.penalty(), fitted.regularization).solve(sums.rhs)


@dataclass(frozen=True, kw_only=True)
class Method(Generic[Settings]):
    """A batch method."""

    settings: type[Settings]
    """Its settings class, which says what keys of `[model]` it takes."""
    fit: Callable[[FitTask[Settings]], Fitted]
    """Select a dictionary and fit it."""
    sizes: Callable[[PlanTask[Settings]], Sizes]
    """The sizes that the memory of a fit depends on."""
    passes: Callable[[PlanTask[Settings]], Iterator[PassPlan]]
    """The passes of a fit, in their order; a greedy method may end earlier."""
    solve: Callable[[Fitted, BlockStatistics], Floats] = solve_normal_equations
    """The coefficients (n_functions, n_targets) of an unchanged dictionary, from sums over more rows."""
    certain: Callable[[Settings], bool] = lambda settings: True  # noqa: ARG005
    """Whether `passes` is exact unless candidates run out; otherwise the rows decide."""
    compares_kernels: bool = False
    """Whether it takes several kernels and uses the one of least validation error."""
    shrinks: bool = True
    """Whether the coefficients minimize a penalized error over all rows, which then is at most that of no model."""
    always_reselects: bool = False
    """Whether each training fits all rows again, because the dictionary is all rows."""


def sum_pass(n_functions: int, kernels: int = 1) -> PassPlan:
    """Return the pass that sums the products of this many functions, for each kernel."""
    return PassPlan(kernels * n_functions, kernels * n_functions**2)


def round_passes(
    max_basis: int, n_rows: int, candidates: NumberOrAll, look_ahead: int | None, rounds_of_all: int
) -> Iterator[PassPlan]:
    """Yield the passes of a greedy selection: each serves the candidates of some rounds, each of which chooses one.

    `rounds_of_all` is how many rounds a pass serves if all rows are candidates.
    """
    n_basis = 0
    while n_basis < max_basis:
        if candidates == "all":
            ahead, drawn = rounds_of_all, n_rows - n_basis
        else:
            ahead = look_ahead or plan_look_ahead(max_basis, n_basis, candidates)
            drawn = min(n_rows, min(ahead, max_basis - n_basis) * candidates)
        yield PassPlan(n_basis + drawn, drawn * (n_basis + drawn))
        n_basis += ahead


def greedy_sizes(max_basis: int, n_rows: int, candidates: NumberOrAll, look_ahead: int | None) -> Sizes:
    """Return the sizes of a method that sums the candidates of several rounds in a pass."""
    return Sizes(max(largest_pass(max_basis, n_rows, candidates, look_ahead), max_basis))
