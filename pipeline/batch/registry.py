"""The batch methods by their names: how each is fitted, and how its coefficients follow from the sums of a night."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.batch.dense.kernel_ridge import fit_kernel_ridge
from ridgestream.pipeline.batch.dense.leave_one_out import DenseSettings
from ridgestream.pipeline.batch.dense.ls_svm import fit_ls_svm
from ridgestream.pipeline.batch.dense.sls_svm import SLSSVMSettings, fit_sls_svm
from ridgestream.pipeline.batch.efvs import EFVSSettings, fit_efvs, select_basis
from ridgestream.pipeline.batch.isls_svm import ISLSSVMSettings, fit_isls_svm
from ridgestream.pipeline.batch.ols import OLSSettings, fit_ols
from ridgestream.pipeline.batch.orols.orols import Machines, OrolsSettings, fit_orols
from ridgestream.pipeline.batch.shard_merge_select import ShardMergeSelectSettings, fit_shard_merge_select
from ridgestream.pipeline.batch.subset_of_regressors import SubsetOfRegressorsSettings, fit_subset_of_regressors
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.selection.candidate_rounds import largest_pass
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.selection.kmeans import kmeans_centres
from ridgestream.pipeline.selection.random_rows import draw_rows
from ridgestream.pipeline.sums.normal_equations import BlockStatistics
from ridgestream.pipeline.sums.row_set import RowSet

KMEANS_PASSES = 3
"""Passes over all rows by which k-means centres are moved."""

OROLS_LEAST = 1e-12
"""λ per row of the error bars of OROLS at least: its own may be zero, where they would have no prior."""


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

    @property
    def most_basis(self) -> int:
        """The largest dictionary as a number: every row, where nothing else is said or there are fewer."""
        return self.rows.n_rows if self.max_basis is None else min(self.max_basis, max(self.rows.n_rows, 1))


class Sized(Protocol):
    """What a request says of sizes."""

    @property
    def max_basis(self) -> int | None:
        """The largest dictionary."""

    @property
    def options(self) -> Mapping[str, Mapping[str, Any]]:
        """What belongs to some methods alone."""

    @property
    def given_basis(self) -> int:
        """The rows of a given dictionary, 0 for none."""


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
    shrinks: bool = True
    """Whether the coefficients minimize a penalized error over all rows, so that no error exceeds that of no model."""
    always_anew: bool = False
    """Whether every night is fitted anew: where the dictionary is all rows."""


def solve_normal_equations(fitted: Fitted, sums: BlockStatistics) -> Floats:
    """Return the solution of (G + λnK)β = z, K without a penalty for a bias."""
    return sums.factorize(fitted.basis.penalty(), fitted.regularization).solve(sums.rhs)


def _fit_ols(asked: Asked) -> Fitted:
    settings = OLSSettings(
        regularization=asked.regularizations[0],
        max_basis=asked.most_basis,
        folds=asked.folds,
        seed=asked.seed,
        memory_limit=asked.memory_limit_bytes,
        **asked.options["ols"],
    )
    return fit_ols(asked.rows, asked.kernels[0], settings, asked.report)


def _fit_efvs(asked: Asked) -> Fitted:
    return fit_efvs(asked.rows, asked.kernels[0], _efvs_settings(asked, asked.most_basis), asked.report)


def _efvs_settings(asked: Asked, max_basis: int) -> EFVSSettings:
    options = asked.options.get("efvs") or {"candidates": "all", "sample": "all", **asked.options["fvs"]}
    return EFVSSettings(
        regularization=asked.regularizations[0],
        max_basis=max_basis,
        folds=asked.folds,
        seed=asked.seed,
        memory_limit=asked.memory_limit_bytes,
        **options,
    )


def _fit_isls_svm(asked: Asked) -> Fitted:
    options = asked.options["isls_svm"]
    settings = ISLSSVMSettings(
        asked.regularizations,
        asked.folds,
        asked.seed,
        step=options["step"],
        smallest=options["smallest"],
        score=options["score"],
        max_basis=asked.max_basis,
    )
    return fit_isls_svm(asked.rows, asked.kernels, _start(asked, options), settings, asked.report)


def _fit_subset_of_regressors(asked: Asked) -> Fitted:
    start = _start(asked, asked.options["subset_of_regressors"])
    settings = SubsetOfRegressorsSettings(asked.regularizations, asked.folds, asked.seed)
    return fit_subset_of_regressors(asked.rows, asked.kernels, start, settings, asked.report)


def _start(asked: Asked, options: Mapping[str, Any]) -> StartingDictionary:
    """Return the dictionary that a method begins with; that of the first kernel where the choice asks for one."""
    n_basis, kernel = min(options["start_basis"], asked.rows.n_rows), asked.kernels[0]
    if options["start"] == "random":
        return draw_rows(asked.rows, kernel, n_basis, asked.seed)
    if options["start"] == "k-means":
        return kmeans_centres(asked.rows, n_basis, asked.seed, KMEANS_PASSES, asked.report)
    if options["start"] == "efvs":
        found = select_basis(asked.rows, kernel, _efvs_settings(asked, n_basis), asked.report)
        return StartingDictionary(found.vectors, found.places)
    if asked.given is None:
        raise InputError("a given dictionary to start from needs model.dictionary, a Parquet file of its rows")
    return asked.given


def _fit_orols(asked: Asked) -> Fitted:
    settings = OrolsSettings(max_basis=asked.most_basis, folds=asked.folds, seed=asked.seed, **asked.options["orols"])
    fitted = fit_orols(asked.rows, asked.kernels[0], settings, asked.report)
    machines = fitted.machines
    own: dict[str, Floats | Integers] = {
        "turns": machines.turns,
        "machine_regularization": machines.regularization,
    }
    return replace(fitted, regularization=max(fitted.regularization, OROLS_LEAST), own=own)


def _solve_orols(fitted: Fitted, sums: BlockStatistics) -> Floats:
    """Return the orthogonal solution of each machine at its own λ."""
    turns, regularization = fitted.own["turns"], fitted.own["machine_regularization"]
    return Machines(cast("Integers", turns), cast("Floats", regularization)).coefficients(sums)


def _dense(fit: Callable[[RowSet, Sequence[Kernel], DenseSettings, Reporter], Fitted]) -> Callable[[Asked], Fitted]:
    """Return the door to a method that leaves out each row once to choose among kernels and regularizations."""

    def fit_asked(asked: Asked) -> Fitted:
        settings = DenseSettings(asked.regularizations, asked.memory_limit_bytes)
        return fit(asked.rows, asked.kernels, settings, asked.report)

    return fit_asked


def _fit_sls_svm(asked: Asked) -> Fitted:
    settings = SLSSVMSettings(
        asked.regularizations,
        folds=asked.folds,
        fold_seed=asked.seed,
        max_basis=asked.max_basis,
        memory_limit_bytes=asked.memory_limit_bytes,
        **asked.options["sls_svm"],
    )
    return fit_sls_svm(asked.rows, asked.kernels, settings, asked.report)


def _fit_shard_merge_select(asked: Asked) -> Fitted:
    settings = ShardMergeSelectSettings(
        regularizations=asked.regularizations,
        max_basis=asked.most_basis,
        folds=asked.folds,
        seed=asked.seed,
        **asked.options["shard_merge_select"],
    )
    return fit_shard_merge_select(asked.rows, asked.kernels[0], settings, asked.report)


def _look_ahead_sizes(section: str) -> Callable[[Sized, int], Sizes]:
    """Return the sizes of a method that sums the candidates of several rounds in a pass."""

    def sizes(asked: Sized, n_rows: int) -> Sizes:
        options, max_basis = asked.options[section], min(asked.max_basis or n_rows, n_rows)
        largest = largest_pass(max_basis, n_rows, options.get("candidates", "all"), options["look_ahead"])
        return Sizes(max(largest, max_basis))

    return sizes


def _start_sizes(section: str) -> Callable[[Sized, int], Sizes]:
    """Return the sizes of a method that begins with a dictionary, and may have a bias."""

    def sizes(asked: Sized, n_rows: int) -> Sizes:
        return Sizes((asked.given_basis or min(n_rows, asked.options[section]["start_basis"])) + 1)

    return sizes


def _dense_sizes(asked: Sized, n_rows: int) -> Sizes:  # noqa: ARG001
    return Sizes(n_rows, n_rows)


def _shard_merge_select_sizes(asked: Sized, n_rows: int) -> Sizes:
    options = asked.options["shard_merge_select"]
    return Sizes(min(n_rows, options["shards"] * options["shard_basis"]))


def _orols_sizes(asked: Sized, n_rows: int) -> Sizes:
    return Sizes(min(asked.max_basis or n_rows, n_rows) + OrolsSettings().pool + 1)


METHODS: dict[str, Method] = {
    "shard-merge-select": Method(_fit_shard_merge_select, solve_normal_equations, _shard_merge_select_sizes),
    "ols": Method(_fit_ols, solve_normal_equations, _look_ahead_sizes("ols")),
    "efvs": Method(_fit_efvs, solve_normal_equations, _look_ahead_sizes("efvs")),
    "fvs": Method(_fit_efvs, solve_normal_equations, _look_ahead_sizes("fvs")),
    "orols": Method(_fit_orols, _solve_orols, _orols_sizes),
    "isls-svm": Method(_fit_isls_svm, solve_normal_equations, _start_sizes("isls_svm")),
    "subset-of-regressors": Method(
        _fit_subset_of_regressors, solve_normal_equations, _start_sizes("subset_of_regressors")
    ),
    "ls-svm": Method(_dense(fit_ls_svm), solve_normal_equations, _dense_sizes, always_anew=True),
    "sls-svm": Method(_fit_sls_svm, solve_normal_equations, _dense_sizes, shrinks=False, always_anew=True),
    "kernel-ridge": Method(_dense(fit_kernel_ridge), solve_normal_equations, _dense_sizes, always_anew=True),
}
"""Every batch method by its name in a job file."""
