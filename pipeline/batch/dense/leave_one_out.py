"""Dense fits: a kernel expansion over all rows, with the kernel and λ of smallest leave-one-out error."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.base.settings import Internal
from ridgestream.pipeline.batch.dense.kernel_matrix import DenseSystem, PresentRows, read_present
from ridgestream.pipeline.batch.method import FitTask, Method, PassPlan, PlanTask, Sizes, sum_pass
from ridgestream.pipeline.batch.robust import RobustSettings, robust
from ridgestream.pipeline.batch.shared_settings import SharedRegularizations
from ridgestream.pipeline.kernels import Kernel, gram
from ridgestream.pipeline.selection.cross_validation import check_choices
from ridgestream.pipeline.selection.fit_result import Fitted, Path
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import Summing
from ridgestream.pipeline.sums.row_set import RowSet


@dataclass(frozen=True)
class DenseSettings(RobustSettings, SharedRegularizations):
    """A kernel expansion over all rows."""

    memory_limit_bytes: Annotated[int, Internal()] = 2**30
    """Bytes that the matrices of all rows may take together."""

    def __post_init__(self) -> None:
        check_bounds(self)
        check_choices(1, self.regularizations)


def fit_dense(
    rows: RowSet, kernels: Sequence[Kernel], settings: DenseSettings, report: Reporter, *, bias: bool, step: events.Step
) -> Fitted:
    """Return the expansion over all rows of the kernel and λ whose squared error, each row left out once, is least.

    The first kernel, and then the first λ, wins a tie. O(rows³) a kernel, O(rows²) a λ. Raises MemoryRefused.
    """
    check_choices(len(kernels), settings.regularizations)
    with one_blas_thread():
        present = read_present(rows, 1, settings.memory_limit_bytes)
        errors, solutions = np.empty((len(kernels), len(settings.regularizations))), []
        for width, kernel in enumerate(kernels):
            system = DenseSystem.of(gram(kernel, present.features), present.weights, bias=bias)
            errors[width] = [left_out_error(system, present, r) for r in settings.regularizations]
            report.say(events.SELECTION_LEFT_OUT_EACH_ROW, mse=float(errors[width].min()), **kernel.parameters())
            best = settings.regularizations[int(errors[width].argmin())]
            solutions.append(system.solve(best * float(present.weights.sum()), present.targets))
        path = _make_path(errors, settings.regularizations, len(present.indices))
        width, best = int(path.width[path.chosen]), float(path.regularization[path.chosen])
        return finish(rows, present, kernels[width], solutions[width], best, path, step=step, bias=bias)


def left_out_error(system: DenseSystem, present: PresentRows, regularization: float) -> float:
    """Return the mean squared error, by weights and over targets, each row left out once with all its weight; O(l²)."""
    residuals = system.left_out(regularization * float(present.weights.sum()), present.targets)
    return float(np.average((residuals**2).mean(axis=1), weights=present.weights))


def finish(
    rows: RowSet,
    dictionary: PresentRows,
    kernel: Kernel,
    solved: tuple[Floats, Floats],
    regularization: float,
    path: Path | None,
    *,
    step: events.Step,
    bias: bool,
) -> Fitted:
    """Return α, and b last if there is one, over the dictionary's rows, with the sums of all rows: one more pass."""
    basis = Basis(kernel, dictionary.features, np.zeros(rows.n_features), bias)
    coefficients = np.vstack([solved[0], solved[1]]) if bias else solved[0]
    sums = rows.statistics([Summing(basis, rows.n_targets)], step).parts[0]
    return Fitted(basis, dictionary.indices, coefficients, regularization, sums, path, {"passes": 2.0})


def _make_path(errors: Floats, regularizations: Sequence[float], n_basis: int) -> Path:
    widths, lambdas = np.divmod(np.arange(errors.size), len(regularizations))
    sizes, chosen = np.full(errors.size, n_basis), int(errors.argmin())
    return Path("leave_one_out", sizes, np.asarray(regularizations)[lambdas], errors.ravel(), widths, chosen)


def dense_sizes(task: PlanTask[Any]) -> Sizes:
    """Return the sizes of a method with a kernel matrix of all rows."""
    return Sizes(task.n_rows, task.n_rows)


def dense_passes(task: PlanTask[Any]) -> Iterator[PassPlan]:
    """Yield the pass that sums the products of a dictionary of all rows."""
    yield sum_pass(task.n_rows)


def dense_method(fit: Callable[[RowSet, Sequence[Kernel], DenseSettings, Reporter], Fitted]) -> Method[DenseSettings]:
    """Return the method that leaves out each row once to choose among kernels and regularizations."""

    def fit_task(task: FitTask[DenseSettings]) -> Fitted:
        settings = replace(task.settings, memory_limit_bytes=task.memory_limit_bytes)
        return fit(task.rows, task.kernels, settings, task.report)

    return robust(
        Method(
            settings=DenseSettings,
            fit=fit_task,
            sizes=dense_sizes,
            passes=dense_passes,
            compares_kernels=True,
            always_reselects=True,
        )
    )
