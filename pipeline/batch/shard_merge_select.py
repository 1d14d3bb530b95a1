"""Shard, merge, select: small dictionaries learned side by side on shards of the rows, then one selection on sums.

The online learner (Jung & Polani 2006) is sequential, but a small supervised dictionary can be made on many shards at
once. The union of the dictionaries is the candidate set of one pass of block statistics; forward selection by the gain
of orthogonal least squares on those sums gives nested models of every size, for every regularization, and the sums of
each fold their errors. Two passes in all, however many vectors are chosen.

Ours, not of a paper. What to know of the fold errors: the candidates come from all rows, so that rows of the fold left
out had a say in which vectors there are to choose from, but none in which are chosen, nor in the coefficients.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.kernels import Kernel, check_positive
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.selection.fit_result import Fitted, Path
from ridgestream.pipeline.selection.forward_selection import choose_by_gain
from ridgestream.pipeline.selection.nested_models import NestedModels
from ridgestream.pipeline.sums.normal_equations import Basis, BlockStatistics, FoldedStatistics, RowBlock, Summing
from ridgestream.pipeline.sums.row_set import RowSet, cut_evenly


@dataclass(frozen=True)
class ShardMergeSelectSettings:
    """What is chosen before the first row."""

    regularizations: tuple[float, ...] = (1e-5,)
    """The λ per row that are tried; the one with the smallest fold error is taken."""
    max_basis: int = 500
    """The largest model; all candidates where that is more than there are."""
    shards: int = 8
    """How many runs of rows learn a dictionary of their own."""
    shard_basis: int = 250
    """The largest dictionary of a shard."""
    shard_regularization: float = 1e-5
    """λ per row of the shards' learners."""
    novelty_threshold: float = 1e-2
    """TOL1 of the shards' learners."""
    usefulness_threshold: float = 1e-4
    """TOL2 of the shards' learners."""
    folds: int = 5
    """How many folds judge the models; with 1, the first λ and the largest size are taken."""
    seed: int = 0
    """What rows are dealt to folds with."""

    def __post_init__(self) -> None:
        for name in ("max_basis", "shards", "shard_basis", "folds"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be a whole number of at least 1, it is {getattr(self, name)}")
        if not self.regularizations:
            raise InputError("regularizations must name one λ at least")
        for regularization in (*self.regularizations, self.shard_regularization):
            check_positive("regularization", regularization)


@dataclass(frozen=True)
class ShardLearning:
    """What the learner of every shard is; the argument of the first pass."""

    kernel: Kernel
    """k."""
    settings: ShardMergeSelectSettings
    """Its sizes and thresholds."""
    n_features: int
    """Features of a row."""


@dataclass(frozen=True)
class ShardDictionaries:
    """What the shards chose, shard by shard."""

    vectors: tuple[Floats, ...]
    """The dictionary of each, shape (n_basis, n_features)."""
    rows: tuple[Integers, ...]
    """Which rows of the shard they are, from zero, shape (n_basis,)."""

    def merge(self, other: Self) -> Self:
        """Return the dictionaries of both."""
        return type(self)(self.vectors + other.vectors, self.rows + other.rows)


def fit_shard_merge_select(
    rows: RowSet, kernel: Kernel, settings: ShardMergeSelectSettings, report: Reporter
) -> Fitted:
    """Return the model with the smallest fold error, or the largest one where there is a single fold.

    Two passes: O(shard_basis²) a row, then O(n_candidates²) a row; beside them O(n_candidates²·max_basis) for every λ
    and fold. Memory is that of (folds + 4) matrices of n_candidates², whatever the rows. Raises InputError without a
    row to learn from, NumericalBreakdown if sums are not finite.
    """
    candidates, places = learn_shards(rows, kernel, settings)
    if not len(places):
        raise InputError("no shard found a row to take: all rows weigh nothing, or the kernel calls them nothing")
    basis = Basis(kernel, candidates, np.zeros(rows.n_features))
    summing = Summing(basis, rows.n_targets, settings.folds, settings.seed)
    sums = rows.statistics((summing,), events.STEP_SUM_CANDIDATES.numbered(candidates=len(candidates))).parts[0]
    with one_blas_thread():
        return select_on_sums(basis, places, sums, settings, report)


def learn_shards(rows: RowSet, kernel: Kernel, settings: ShardMergeSelectSettings) -> tuple[Floats, Integers]:
    """Return the union of the shards' dictionaries, shape (n, n_features), and their places among the rows, (n,)."""
    learning = ShardLearning(kernel, settings, rows.n_features)
    found = rows.reduce(
        learn_shard, learning, events.STEP_LEARN_SHARDS.numbered(shards=settings.shards), parts=settings.shards
    )
    starts = [start for start, _ in cut_evenly(rows.n_rows, settings.shards)]
    places = [start + numbers for start, numbers in zip(starts, found.rows, strict=True)]
    return np.concatenate(found.vectors), np.concatenate(places)


@named_pass("ridgestream.pipeline.learners.shard_merge_select", "learn_shard")
def learn_shard(learning: ShardLearning, blocks: Iterable[RowBlock]) -> ShardDictionaries:
    """Return the dictionary that one online pass over a shard's rows chooses."""
    settings = learning.settings
    learner = OnlineLSSVM(
        learning.kernel,
        regularization=settings.shard_regularization,
        max_basis=settings.shard_basis,
        novelty_threshold=settings.novelty_threshold,
        usefulness_threshold=settings.usefulness_threshold,
        centre=np.zeros(learning.n_features),
    )
    for block in blocks:
        learner.partial_fit(block.features, block.targets, block.weights)
    if not learner.n_basis:
        return ShardDictionaries((np.empty((0, learning.n_features)),), (np.empty(0, dtype=np.int64),))
    state = learner.state()
    return ShardDictionaries((state.basis_vectors,), (state.basis_rows,))


def select_on_sums(
    basis: Basis, places: Integers, sums: FoldedStatistics, settings: ShardMergeSelectSettings, report: Reporter
) -> Fitted:
    """Return the best of the nested models that forward selection on the candidates' sums gives; no row is read."""
    penalty, total = basis.penalty(), sums.total()
    settings = replace(settings, max_basis=min(settings.max_basis, len(places)))
    errors = np.full((len(settings.regularizations), settings.max_basis), np.nan)
    if settings.folds > 1:
        report.begin(events.STEP_CROSS_VALIDATE, None)
        for i, regularization in enumerate(settings.regularizations):
            errors[i] = fold_errors(sums, total, penalty, regularization, settings.max_basis)
            report.advance(0, regularization=regularization, fold_error=float(errors[i].min()))
        report.end(fold_error=float(errors.min()))
        best, size = divmod(int(np.argmin(errors)), settings.max_basis)
    else:
        best, size = 0, settings.max_basis - 1
    regularization = settings.regularizations[best]
    columns, models = select(total, penalty, regularization, size + 1)
    return Fitted(
        Basis(basis.kernel, basis.vectors[columns], basis.centre),
        places[columns],
        models.coefficients(len(models)),
        regularization,
        sums.choose(columns),
        _path(errors, settings, best, size) if settings.folds > 1 else None,
        {"candidates": len(places)},
    )


def select(
    sums: BlockStatistics, penalty: Floats, regularization: float, max_basis: int
) -> tuple[Integers, NestedModels]:
    """Return the candidates that forward selection chooses, in its order, and the nested models over them."""
    normal = sums.products + regularization * sums.weight * penalty
    chosen = choose_by_gain(normal, sums.rhs, max_basis, overwrite=True)
    return chosen.columns, NestedModels(chosen.factor, chosen.half_solution)


def fold_errors(
    sums: FoldedStatistics, total: BlockStatistics, penalty: Floats, regularization: float, max_basis: int
) -> Floats:
    """Return the mean squared error, summed over targets, of models of 1 to `max_basis` vectors on rows left out.

    Each fold's models are chosen and fitted by the rows of all other folds. Where a selection ends early, larger models
    are the last one. Shape (max_basis,).
    """
    errors = np.zeros(max_basis)
    for fold in sums.folds:
        columns, models = select(total.subtract(fold), penalty, regularization, max_basis)
        found = models.squared_errors(fold.choose(columns)).sum(axis=1)
        errors += found[np.minimum(np.arange(1, max_basis + 1), len(models))]
    return errors / total.weight


def _path(errors: Floats, settings: ShardMergeSelectSettings, best: int, size: int) -> Path:
    n_models = errors.size
    return Path(
        "fold_error",
        np.tile(np.arange(1, settings.max_basis + 1), len(settings.regularizations)),
        np.repeat(np.array(settings.regularizations), settings.max_basis),
        errors.ravel(),
        np.zeros(n_models, dtype=np.int64),
        best * settings.max_basis + size,
    )
