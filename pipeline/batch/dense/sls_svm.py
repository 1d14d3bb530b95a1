"""SLS-SVM: Suykens' pruning of a dense LS-SVM (Suykens et al. 2000), as the ISLS-SVM paper compares with it.

An LS-SVM is fitted to all rows; the share `step` of them with the smallest |α| is removed, an LS-SVM is fitted to the
remaining rows alone, and so on: removed rows no longer affect the model. γ and the kernel are selected again at every
step, by cross-validation on the remaining rows, or by leaving out each of them once.

λ is per remaining row; Suykens' objective does not scale with the rows, so his γ is 1/(2λn), with n their weight. As λ
is selected again at each step, this only changes the grid.

Departures: rows may have weights; several targets share dictionary, kernel and λ (the rows whose α has the smallest
norm are removed). The size is chosen by the error on outer folds, with pruning and selection repeated without the
fold's rows, because the error of the inner selection is measured on rows that pruning has picked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.base.settings import Internal, Share
from ridgestream.pipeline.batch.dense.kernel_matrix import DenseSystem, PresentRows, read_present
from ridgestream.pipeline.batch.dense.leave_one_out import dense_passes, dense_sizes, finish, left_out_error
from ridgestream.pipeline.batch.method import FitTask, Method
from ridgestream.pipeline.batch.shared_settings import SharedFolds, SharedRegularizations, SharedSize
from ridgestream.pipeline.kernels import Kernel, gram
from ridgestream.pipeline.selection.backward_elimination import check_path, plan_sizes, rank, squared_norms
from ridgestream.pipeline.selection.cross_validation import check_choices
from ridgestream.pipeline.selection.fit_result import Fitted, Path
from ridgestream.pipeline.sums.folds import deal_folds
from ridgestream.pipeline.sums.row_set import RowSet


@dataclass(frozen=True)
class SLSSVMSettings(SharedFolds, SharedSize, SharedRegularizations):
    """Pruning of the LS-SVM over all rows."""

    step: Share = 0.05
    """The share of vectors removed in a step, at least one vector; 0 removes one at a time."""
    smallest: Annotated[int, Ge(2)] = 2
    """The number of vectors at which the path ends: of two, the α are opposite, and one alone is only a bias."""
    selection_folds: Literal[0] | Annotated[int, Ge(2)] = 4
    """Folds of the remaining rows by which λ and kernel are selected at a step; 0 leaves out one row at a time."""
    memory_limit_bytes: Annotated[int, Internal()] = 2**30
    """Bytes that the matrices of all rows may take together."""

    def __post_init__(self) -> None:
        check_bounds(self)
        check_choices(1, self.regularizations)
        check_path(self.step, self.smallest, self.max_basis)


@dataclass(frozen=True)
class _Data:
    """The rows and their kernel matrices."""

    rows: PresentRows
    grams: tuple[Floats, ...]
    """K of each kernel, shape (l, l)."""

    def part(self, remaining: Integers) -> PresentRows:
        rows = self.rows
        return PresentRows(
            rows.features[remaining], rows.targets[remaining], rows.weights[remaining], rows.indices[remaining]
        )

    def system(self, width: int, remaining: Integers) -> DenseSystem:
        return DenseSystem.of(self.grams[width][np.ix_(remaining, remaining)], self.rows.weights[remaining], bias=True)

    def fit(self, choice: "_Choice", remaining: Integers) -> tuple[Floats, Floats]:
        """Return α and b of the LS-SVM of these rows."""
        penalty = choice.regularization * float(self.rows.weights[remaining].sum())
        return self.system(choice.width, remaining).solve(penalty, self.rows.targets[remaining])

    def held_error(self, width: int, solution: tuple[Floats, Floats], remaining: Integers, held: Integers) -> float:
        """Return Σ w(y − f)² over the rows `held`, summed over targets."""
        residuals = self.rows.targets[held] - self.grams[width][np.ix_(held, remaining)] @ solution[0] - solution[1]
        return float(self.rows.weights[held] @ (residuals**2).sum(axis=1))


@dataclass(frozen=True)
class _Choice:
    """The kernel and λ that selection chose."""

    width: int
    regularization: float


@dataclass(frozen=True)
class _Step:
    """One model of a path."""

    remaining: Integers
    choice: _Choice
    solution: tuple[Floats, Floats]


def fit_sls_svm(rows: RowSet, kernels: Sequence[Kernel], settings: SLSSVMSettings, report: Reporter) -> Fitted:
    """Return the best model on the pruning path of all rows, the bias last.

    O(size³) for each step, kernel, selection fold and outer fold; O(rows²) memory a kernel. Raises MemoryRefused, with
    the numbers, where the matrices do not fit, InputError for settings or fewer than two rows, NumericalBreakdown where
    kernel values are not finite.
    """
    check_choices(len(kernels), settings.regularizations)
    with one_blas_thread():
        present = read_present(rows, len(kernels), settings.memory_limit_bytes)
        data = _Data(present, tuple(gram(kernel, present.features) for kernel in kernels))
        sizes = plan_sizes(len(present.indices), settings.step, settings.smallest, settings.max_basis)
        steps_of_all = list(_prune(data, np.arange(len(present.indices)), sizes, settings))
        path = _compare(data, steps_of_all, sizes, settings, report) if settings.folds > 1 else None
        step = steps_of_all[sizes.index(_chosen_size(path, sizes, settings))]
        kernel, part = kernels[step.choice.width], data.part(step.remaining)
        return finish(
            rows,
            part,
            kernel,
            step.solution,
            step.choice.regularization,
            path,
            step=events.STEP_SLS_SVM_PASS,
            bias=True,
        )


def _chosen_size(path: Path | None, sizes: Sequence[int], settings: SLSSVMSettings) -> int:
    """Return the chosen size, or the largest allowed one."""
    if path is not None:
        return int(path.n_basis[path.chosen])
    return next(size for size in sizes if settings.max_basis is None or size <= settings.max_basis)


def _prune(data: _Data, remaining: Integers, sizes: Sequence[int], settings: SLSSVMSettings) -> Iterator[_Step]:
    """Yield the model of each size, descending from that of `remaining`; each keeps the rows of largest |α|."""
    choice = _Choice(0, settings.regularizations[0])
    solution: tuple[Floats, Floats] | None = None
    for size in sizes:
        if solution is not None:
            remaining = remaining[np.sort(rank(squared_norms(solution[0]))[:size])]
        if len(remaining) > 2:  # of two, each predicts the other by the bias alone, whatever λ
            choice = _select(data, remaining, settings)
        solution = data.fit(choice, remaining)
        yield _Step(remaining, choice, solution)


def _select(data: _Data, remaining: Integers, settings: SLSSVMSettings) -> _Choice:
    """Return the kernel and λ of least error on rows of `remaining` that are left out; the first wins a tie."""
    errors = np.zeros((len(data.grams), len(settings.regularizations)))
    for width in range(len(data.grams)):
        errors[width] = _selection_errors(data, width, remaining, settings)
    width, index = divmod(int(errors.argmin()), errors.shape[1])
    return _Choice(width, settings.regularizations[index])


def _selection_errors(data: _Data, width: int, remaining: Integers, settings: SLSSVMSettings) -> list[float]:
    if settings.selection_folds == 0:
        system, part = data.system(width, remaining), data.part(remaining)
        return [left_out_error(system, part, regularization) for regularization in settings.regularizations]
    errors = np.zeros(len(settings.regularizations))
    dealt = deal_folds(0, len(remaining), settings.selection_folds, settings.random_seed)
    for fold in range(settings.selection_folds):
        training, held = remaining[dealt != fold], remaining[dealt == fold]
        if not len(held):
            continue
        system, weight = data.system(width, training), float(data.rows.weights[training].sum())
        for index, regularization in enumerate(settings.regularizations):
            solution = system.solve(regularization * weight, data.rows.targets[training])
            errors[index] += data.held_error(width, solution, training, held)
    return errors.tolist()


def _compare(
    data: _Data, steps_of_all: Sequence[_Step], sizes: Sequence[int], settings: SLSSVMSettings, report: Reporter
) -> Path:
    """Return the error on outer folds of every size that the training rows of all folds allow."""
    dealt = deal_folds(0, len(data.rows.indices), settings.folds, settings.random_seed)
    trainings = [np.flatnonzero(dealt != fold) for fold in range(settings.folds)]
    fewest = min(len(training) for training in trainings)
    shared = [size for size in sizes if size <= fewest]
    if not shared:
        raise InputError(
            f"the path ends at {sizes[-1]} vectors, and without a fold there are {fewest} rows: lower smallest, "
            "give more rows, or folds = 1"
        )
    errors = np.zeros(len(shared))
    for fold, training in enumerate(trainings):
        held = np.flatnonzero(dealt == fold)
        steps = list(_prune(data, training, [len(training), *(s for s in shared if s < len(training))], settings))
        for index, step in enumerate(steps[len(steps) - len(shared) :]):
            errors[index] += data.held_error(step.choice.width, step.solution, step.remaining, held)
        report.say(events.SELECTION_FOLD_PRUNED, fold=fold, folds=settings.folds)
    choices = [step.choice for step in steps_of_all[len(sizes) - len(shared) :]]
    values = errors / (float(data.rows.weights.sum()) * data.rows.targets.shape[1])
    return _make_path(np.array(shared), choices, values, settings.max_basis)


def _make_path(sizes: Integers, choices: Sequence[_Choice], values: Floats, max_basis: int | None) -> Path:
    allowed = sizes <= (sizes.max() if max_basis is None else max_basis)
    chosen = int(np.argmin(np.where(allowed, values, np.inf)))
    lambdas, widths = np.array([c.regularization for c in choices]), np.array([c.width for c in choices])
    return Path("fold_error", sizes, lambdas, values, widths, chosen)


def _fit(task: FitTask[SLSSVMSettings]) -> Fitted:
    settings = replace(task.settings, memory_limit_bytes=task.memory_limit_bytes)
    return fit_sls_svm(task.rows, task.kernels, settings, task.report)


METHOD = Method(
    settings=SLSSVMSettings,
    fit=_fit,
    sizes=dense_sizes,
    passes=dense_passes,
    compares_kernels=True,
    chooses_size=True,
    shrinks=False,
    always_reselects=True,
)
