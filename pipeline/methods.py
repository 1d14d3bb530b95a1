"""The batch methods by their names: how each is fitted, and how its coefficients follow from the sums of a night."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ridgestream.pipeline.arrays import Floats
from ridgestream.pipeline.block_statistics import BlockStatistics
from ridgestream.pipeline.fitted import Fitted
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.learners.ols import OLSSettings, fit_ols
from ridgestream.pipeline.learners.shard_merge_select import ShardMergeSelectSettings, fit_shard_merge_select
from ridgestream.pipeline.look_ahead import plan_look_ahead
from ridgestream.pipeline.reporting import Reporter
from ridgestream.pipeline.row_sets import RowSet
from ridgestream.pipeline.starting_dictionary import StartingDictionary


@dataclass(frozen=True)
class Asked:
    """What a method is to be fitted to, and how."""

    rows: RowSet
    """The rows."""
    kernels: tuple[Kernel, ...]
    """Every kernel that is to be tried."""
    regularizations: tuple[float, ...]
    """Every λ per row that is to be tried."""
    max_basis: int | None
    """The largest dictionary; None for as many vectors as there are to choose from."""
    folds: int
    """How many folds judge what is tried."""
    seed: int
    """What is drawn, is drawn with it."""
    options: Mapping[str, Mapping[str, Any]]
    """What belongs to some methods alone, by the names of their sections and settings."""
    given: StartingDictionary | None
    """A dictionary to begin with, where the user gives one."""
    memory_limit_bytes: int
    """What this process may use."""
    report: Reporter
    """Who is told."""


class Sized(Protocol):
    """What a request says of sizes."""

    @property
    def max_basis(self) -> int | None:
        """The largest dictionary."""

    @property
    def options(self) -> Mapping[str, Mapping[str, Any]]:
        """What belongs to some methods alone."""


@dataclass(frozen=True)
class Sizes:
    """What a method's memory depends on."""

    n_functions: int
    """Functions whose products are summed at once."""
    dense_rows: int = 0
    """Rows whose kernel matrix is formed."""


@dataclass(frozen=True)
class Method:
    """A batch method."""

    fit: Callable[[Asked], Fitted]
    """Choose a dictionary and fit it."""
    solve: Callable[[Fitted, BlockStatistics], Floats]
    """The coefficients, shape (n_functions, n_targets), of a dictionary that is kept, from sums over more rows."""
    sizes: Callable[[Sized, int], Sizes]
    """The sizes that a request comes to with so many rows."""
    always_anew: bool = False
    """Whether every night is fitted anew: where the dictionary is all rows."""


def solve_normal_equations(fitted: Fitted, sums: BlockStatistics) -> Floats:
    """Return the solution of (G + λnK)β = z, K without a penalty for a bias."""
    return sums.factorize(fitted.basis.penalty(), fitted.regularization).solve(sums.rhs)


def _fit_ols(asked: Asked) -> Fitted:
    settings = OLSSettings(
        regularization=asked.regularizations[0],
        max_basis=asked.max_basis or asked.rows.n_rows,
        folds=asked.folds,
        seed=asked.seed,
        memory_limit=asked.memory_limit_bytes,
        **asked.options["ols"],
    )
    return fit_ols(asked.rows, asked.kernels[0], settings, asked.report)


def _fit_shard_merge_select(asked: Asked) -> Fitted:
    options = asked.options["shard_merge_select"]
    largest = options["shards"] * options["shard_basis"]
    settings = ShardMergeSelectSettings(
        regularizations=asked.regularizations,
        max_basis=min(asked.max_basis or largest, largest),
        folds=asked.folds,
        seed=asked.seed,
        **options,
    )
    return fit_shard_merge_select(asked.rows, asked.kernels[0], settings, asked.report)


def _ols_sizes(asked: Sized, n_rows: int) -> Sizes:
    options = asked.options["ols"]
    if options["candidates"] == "all":
        return Sizes(n_rows)
    max_basis = min(asked.max_basis or n_rows, n_rows)
    ahead = options["look_ahead"] or plan_look_ahead(max_basis, max_basis - 1, options["candidates"])
    return Sizes(max_basis + ahead * options["candidates"])


def _shard_merge_select_sizes(asked: Sized, n_rows: int) -> Sizes:
    options = asked.options["shard_merge_select"]
    return Sizes(min(n_rows, options["shards"] * options["shard_basis"]))


METHODS: dict[str, Method] = {
    "ols": Method(_fit_ols, solve_normal_equations, _ols_sizes),
    "shard-merge-select": Method(_fit_shard_merge_select, solve_normal_equations, _shard_merge_select_sizes),
}
"""Every batch method by its name in a job file."""
