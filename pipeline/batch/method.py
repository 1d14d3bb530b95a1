"""The interface of batch methods: settings, fit, and the plan of memory and passes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.kernels import Kernel, check_kernel
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
    """The rows, kernels and settings of one fit."""

    rows: RowSet
    """The rows."""
    kernels: tuple[Kernel, ...]
    """Every kernel to compare."""
    settings: Settings_co
    """The method's settings."""
    others: dict[str, Any]
    """The settings of other methods that this one uses, by the names of their sections."""
    given: StartingDictionary | None
    """The initial dictionary that the user gives; None without one."""
    memory_limit_bytes: int
    """The bytes that this process may use."""
    report: Reporter
    """Receives progress."""

    def __post_init__(self) -> None:
        for kernel in self.kernels:
            check_kernel(kernel)


@dataclass(frozen=True)
class PassPlan:
    """One pass over rows."""

    values: int
    """Kernel values per row."""
    products: int
    """Products summed per row."""

    @property
    def row_seconds(self) -> float:
        """The seconds that a row costs on one thread of the machine on which the constants were measured."""
        return self.values * KERNEL_SECONDS + self.products * PRODUCT_SECONDS + ROW_SECONDS


@dataclass(frozen=True, kw_only=True)
class PlanTask(Generic[Settings_co]):
    """The inputs of the plan of a fit."""

    settings: Settings_co
    """The method's settings."""
    others: dict[str, Any]
    """The settings of other methods that this one uses, by the names of their sections."""
    n_rows: int
    """The number of rows."""
    n_kernels: int = 1
    """The number of kernels to compare."""
    given_basis: int = 0
    """The size of the initial dictionary that the user gives; 0 without one."""


@dataclass(frozen=True)
class Sizes:
    """The sizes that determine a method's memory."""

    n_functions: int
    """The number of functions whose products are summed at once."""
    dense_rows: int = 0
    """The number of rows whose full kernel matrix is formed."""


def solve_normal_equations(fitted: Fitted, sums: BlockStatistics) -> Floats:
    """Return the solution of (G + λnK)β = z, K without a penalty for a bias."""
    return sums.factorize(fitted.basis.penalty(), fitted.regularization).solve(sums.rhs)


@dataclass(frozen=True, kw_only=True)
class Method(Generic[Settings]):
    """A batch method."""

    settings: type[Settings]
    """Its settings class, whose fields are the keys of `[model]` that it takes."""
    fit: Callable[[FitTask[Settings]], Fitted]
    """Selects a dictionary and fits its coefficients."""
    sizes: Callable[[PlanTask[Settings]], Sizes]
    """Returns the sizes that determine the memory of a fit."""
    passes: Callable[[PlanTask[Settings]], Iterator[PassPlan]]
    """Yields the passes of a fit in order; a greedy method may need fewer."""
    solve: Callable[[Fitted, BlockStatistics], Floats] = solve_normal_equations
    """Returns the coefficients (n_functions, n_targets) of an unchanged dictionary from sums over more rows."""
    certain: Callable[[Settings], bool] = lambda settings: True  # noqa: ARG005
    """Whether `passes` is exact, unless candidates run out; otherwise the number of passes depends on the rows."""
    compares_kernels: bool = False
    """Whether it takes several kernels and uses the one with the smallest validation error."""
    shrinks: bool = True
    """Whether the coefficients minimize a penalized error over all rows, which is then at most that of zero
    coefficients."""
    chooses_size: bool = False
    """Whether it chooses the number of vectors itself, up to `max_basis`."""
    always_reselects: bool = False
    """Whether each training fits all rows again, because the dictionary is all rows."""


def sum_pass(n_functions: int, kernels: int = 1) -> PassPlan:
    """Return the pass that sums the products of `n_functions` functions for each kernel."""
    return PassPlan(kernels * n_functions, kernels * n_functions**2)


def round_passes(
    max_basis: int, n_rows: int, candidates: NumberOrAll, look_ahead: int | None, rounds_of_all: int
) -> Iterator[PassPlan]:
    """Yield the passes of a greedy selection; each pass serves several rounds, and each round chooses one vector.

    `rounds_of_all` is the number of rounds per pass if all rows are candidates.
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
    """Return the sizes of a greedy method whose passes sum the candidates of several rounds."""
    return Sizes(max(largest_pass(max_basis, n_rows, candidates, look_ahead), max_basis))
