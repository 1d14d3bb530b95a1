"""Shard, merge, select: small dictionaries learned side by side on shards of the rows, then one selection on sums.

The online learner (Jung & Polani 2006) is sequential, but a small supervised dictionary can be made on many shards at
once. The union of the dictionaries is the candidate set of one pass of block statistics; forward selection by the gain
of orthogonal least squares on those sums gives nested models of every size, for every regularization, and the sums of
each fold their errors. Two passes in all, however many vectors are chosen. For thousands of candidates the sums of
folds are most of the memory: a single fold leaves one matrix to a task, and generalized cross-validation compares.

This method is ours, not from a paper. The fold errors are not fully independent: the candidates come from all rows, so
rows of the fold left out affect which candidates there are, but neither which are chosen nor the coefficients.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.base.settings import Count, NotNegative, Positive
from ridgestream.pipeline.batch.method import FitTask, Method, PassPlan, PlanTask, Sizes, sum_pass
from ridgestream.pipeline.batch.shared_settings import (
    SharedFolds,
    SharedRegularizations,
    SharedReselection,
    SharedSize,
)
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.selection.fit_result import Fitted, Path
from ridgestream.pipeline.selection.forward_selection import choose_by_gain
from ridgestream.pipeline.selection.nested_models import NestedModels
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import BlockStatistics, FoldedStatistics, Summing
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import RowSet, cut_evenly


@dataclass(frozen=True)
class ShardMergeSelectSettings(SharedReselection, SharedFolds, SharedSize, SharedRegularizations):
    """Dictionaries learned in parallel on shards of the rows, and one selection from their union."""

    shards: Count = 8
    """The number of shards: runs of rows that learn a dictionary each."""
    shard_basis: Count = 250
    """The largest dictionary of a shard."""
    shard_regularization: Positive = OnlineSettings.regularization
    """λ per row of the shards' learners."""
    novelty_threshold: NotNegative = OnlineSettings.novelty_threshold
    """TOL1 of the shards' learners."""
    usefulness_threshold: NotNegative = OnlineSettings.usefulness_threshold
    """TOL2 of the shards' learners."""

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True)
class ShardSettings:
    """The settings as passes get them, with the names and the hash of 0.1.0, so that its killed passes can resume."""

    hashed_as: ClassVar[str] = "ShardMergeSelectSettings"

    regularizations: tuple[float, ...]
    """Every λ per row to compare."""
    max_basis: int
    """The largest model."""
    shards: int
    """The number of shards."""
    shard_basis: int
    """The largest dictionary of a shard."""
    shard_regularization: float
    """λ per row of the shards' learners."""
    novelty_threshold: float
    """TOL1 of the shards' learners."""
    usefulness_threshold: float
    """TOL2 of the shards' learners."""
    folds: int
    """The number of folds."""
    seed: int
    """The seed with which rows are assigned to folds."""

    @classmethod
    def of(cls, settings: ShardMergeSelectSettings) -> Self:
        """Return the settings under their old names."""
        return cls(
            regularizations=settings.regularizations,
            max_basis=settings.limit,
            shards=settings.shards,
            shard_basis=settings.shard_basis,
            shard_regularization=settings.shard_regularization,
            novelty_threshold=settings.novelty_threshold,
            usefulness_threshold=settings.usefulness_threshold,
            folds=settings.folds,
            seed=settings.random_seed,
        )


@dataclass(frozen=True)
class ShardLearning:
    """The learner of every shard; the argument of the first pass."""

    kernel: Kernel
    """The kernel."""
    settings: ShardSettings
    """Its sizes and thresholds."""
    n_features: int
    """The number of features."""


@dataclass(frozen=True)
class ShardDictionaries:
    """The dictionaries of the shards."""

    vectors: tuple[Floats, ...]
    """The dictionary of each, shape (n_basis, n_features)."""
    rows: tuple[Integers, ...]
    """The indices of these rows in the shard, from zero, shape (n_basis,)."""

    def merge(self, other: Self) -> Self:
        """Return the dictionaries of both."""
        return type(self)(self.vectors + other.vectors, self.rows + other.rows)


def fit_shard_merge_select(
    rows: RowSet, kernel: Kernel, settings: ShardMergeSelectSettings, report: Reporter
) -> Fitted:
    """Return the model with the smallest fold error, or the smallest GCV if there is a single fold.

    Two passes, O(shard_basis²) and O(n_candidates²) per row; then O(n_candidates²·max_basis) for every λ and fold.
    Memory: (folds + 4) matrices of n_candidates² numbers, for any number of rows. Raises InputError without a row to
    learn from, NumericalBreakdown if sums are not finite.
    """
    candidates, indices = learn_shards(rows, kernel, settings)
    if not len(indices):
        raise InputError("no shard found a basis vector: every row has weight zero or k(x, x) = 0")
    basis = Basis(kernel, candidates, np.zeros(rows.n_features))
    summing = Summing(basis, rows.n_targets, settings.folds, settings.random_seed)
    sums = rows.statistics((summing,), events.STEP_SUM_CANDIDATES.numbered(candidates=len(candidates))).parts[0]
    with one_blas_thread():
        return select_on_sums(basis, indices, sums, settings, report)


def learn_shards(rows: RowSet, kernel: Kernel, settings: ShardMergeSelectSettings) -> tuple[Floats, Integers]:
    """Return the union of the shards' dictionaries, shape (n, n_features), and their indices among the rows, (n,)."""
    learning = ShardLearning(kernel, ShardSettings.of(settings), rows.n_features)
    dictionaries = rows.reduce(
        learn_shard, learning, events.STEP_LEARN_SHARDS.numbered(shards=settings.shards), parts=settings.shards
    )
    starts = [start for start, _ in cut_evenly(rows.n_rows, settings.shards)]
    indices = [start + numbers for start, numbers in zip(starts, dictionaries.rows, strict=True)]
    return np.concatenate(dictionaries.vectors), np.concatenate(indices)


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
    basis: Basis, indices: Integers, sums: FoldedStatistics, settings: ShardMergeSelectSettings, report: Reporter
) -> Fitted:
    """Return the best nested model by forward selection on the candidates' sums; reads no row."""
    total, settings = sums.total(), settings.bounded(len(indices))
    path = _compare(sums, total, basis, settings, report)
    regularization = float(path.regularization[path.chosen])
    columns, models = select(total, basis, regularization, int(path.n_basis[path.chosen]))
    return Fitted(
        Basis(basis.kernel, basis.vectors[columns], basis.centre),
        indices[columns],
        models.coefficients(len(models)),
        regularization,
        sums.choose(columns),
        path,
        {"candidates": len(indices)},
    )


def _compare(
    sums: FoldedStatistics,
    total: BlockStatistics,
    basis: Basis,
    settings: ShardMergeSelectSettings,
    report: Reporter,
) -> Path:
    """Return the criterion of the models of every λ and size: the error of the folds, or GCV if there is one fold."""
    criterion, fact = ("fold_error", "fold_mse") if settings.folds > 1 else ("gcv", "gcv")
    values = np.empty((len(settings.regularizations), settings.limit))
    report.begin(events.STEP_CROSS_VALIDATE, None)
    for i, regularization in enumerate(settings.regularizations):
        if settings.folds > 1:
            values[i] = fold_errors(sums, total, basis, regularization, settings.limit)
        else:
            values[i] = generalized_errors(total, basis, regularization, settings.limit)
        report.advance(0, regularization=regularization, **{fact: float(values[i].min())})
    report.end(**{fact: float(values.min())})
    return Path(
        criterion,
        np.tile(np.arange(1, settings.limit + 1), len(values)),
        np.repeat(np.array(settings.regularizations), settings.limit),
        values.ravel(),
        np.zeros(values.size, dtype=np.int64),
        int(np.argmin(values)),
    )


def select(sums: BlockStatistics, basis: Basis, regularization: float, max_basis: int) -> tuple[Integers, NestedModels]:
    """Return the candidates that forward selection chooses, in its order, and the nested models over them.

    Memory: three matrices of n_candidates² numbers, those of the sums among them.
    """
    chosen = choose_by_gain(_normal(sums, basis, regularization), sums.rhs, max_basis, overwrite=True)
    return chosen.columns, NestedModels(chosen.factor, chosen.half_solution)


def _normal(sums: BlockStatistics, basis: Basis, regularization: float) -> Floats:
    """Return P = G + λnK; K is computed each time, which takes less than to keep it."""
    normal = basis.penalty()
    normal *= regularization * sums.weight
    normal += sums.products
    return normal


def fold_errors(
    sums: FoldedStatistics, total: BlockStatistics, basis: Basis, regularization: float, max_basis: int
) -> Floats:
    """Return the mean squared error on the folds left out of models of 1 to `max_basis` vectors: (max_basis,).

    Each fold's models are selected and fitted on the rows of all other folds. If a selection ends early, its last model
    stands for the larger ones.
    """
    errors = np.zeros(max_basis)
    for fold in sums.folds:
        columns, models = select(total.subtract(fold), basis, regularization, max_basis)
        squared_errors = models.squared_errors(fold.choose(columns), overwrite=True).sum(axis=1)
        errors += squared_errors[np.minimum(np.arange(1, max_basis + 1), len(models))]
    return np.asarray(errors / (total.weight * total.rhs.shape[1]))


def generalized_errors(total: BlockStatistics, basis: Basis, regularization: float, max_basis: int) -> Floats:
    """Return GCV, summed over targets, of models of 1 to `max_basis` vectors: (max_basis,).

    If the selection ends early, its last model stands for the larger ones. It does not count the choice of the vectors.
    """
    columns, models = select(total, basis, regularization, max_basis)
    values = models.gcv(total.choose(columns), overwrite=True)
    return np.asarray(values[np.minimum(np.arange(1, max_basis + 1), len(models))])


ONLINE_PRODUCTS = 4.5
"""The cost of a row of the online learner, in rows of sums over a dictionary of the same size."""


def _fit(task: FitTask[ShardMergeSelectSettings]) -> Fitted:
    settings = task.settings.bounded(task.rows.n_rows)
    return fit_shard_merge_select(task.rows, task.kernels[0], settings, task.report)


def _sizes(task: PlanTask[ShardMergeSelectSettings]) -> Sizes:
    return Sizes(min(task.n_rows, task.settings.shards * task.settings.shard_basis))


def _passes(task: PlanTask[ShardMergeSelectSettings]) -> Iterator[PassPlan]:
    n_basis = task.settings.shard_basis
    yield PassPlan(round(ONLINE_PRODUCTS * n_basis), round(ONLINE_PRODUCTS * n_basis**2))
    yield sum_pass(_sizes(task).n_functions)


METHOD = Method(settings=ShardMergeSelectSettings, fit=_fit, sizes=_sizes, passes=_passes, chooses_size=True)
