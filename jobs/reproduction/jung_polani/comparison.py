"""Table 1: forward selection (OLS), kernel recursive least squares and the online LS-SVM on the same candidates.

The paper gives both thresholds, and that the training rows are permuted. The kernel's width and λ are those of least
error over five folds of the training rows, for a dictionary of random rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from ridgestream.jobs.reproduction.data import DataFolder
from ridgestream.jobs.reproduction.split import Split
from ridgestream.jobs.reproduction.study import Bench, Cell, Measurement, Outcome, Published
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.events import STEP_SUM_DICTIONARY as SUMMED
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.ols import OLSSettings, fit_ols
from ridgestream.pipeline.batch.subset_of_regressors import SubsetOfRegressorsSettings, fit_subset_of_regressors
from ridgestream.pipeline.estimators.online import OnlineLSSVMRegressor
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.selection.regularization_path import choose_regularization
from ridgestream.pipeline.selection.starts.random_rows import draw_rows
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import Summing

TOL1, TOL2 = 1e-2, 1e-4
GIVEN = {"TOL1": TOL1, "TOL2": TOL2}
LAMBDAS = tuple(10.0**power for power in range(-7, 0))
START_BASIS, LARGEST = 300, 200
"""Vectors of the models that choose width and λ, and the most that OLS may take."""
BETTER_REPEATS = 10
"""Repeats that measure, too, what the product does beyond the paper."""
NOVELTIES = (0.8, 0.6, 0.4, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005)
SIZES = (2, 3, 5, 7, 10, 14, 20, 30, 50, 70, 100, 150, 200)
"""Thresholds of novelty, and sizes, of the curves of error against vectors."""


@dataclass(frozen=True)
class Task:
    """A set of rows, and how it is divided."""

    name: str
    """What the cells of the division are called; empty if there is only one."""
    draw: Callable[[DataFolder, int], Split]
    """Returns the division of a repeat."""
    gammas: tuple[float, ...]
    """The widths that are compared."""
    divides: bool = False
    """Whether each repeat divides the rows again; otherwise it permutes the training rows."""

    def split(self, data: DataFolder, repeat: int) -> Split:
        """Return the division of a repeat."""
        return self.draw(data, repeat if self.divides else 0)

    def settings(self, data: DataFolder, repeat: int) -> tuple[RBF, float]:
        """Return the kernel and λ for a repeat."""
        return _choose(self, data, repeat if self.divides else 0)

    def chosen(self, data: DataFolder) -> dict[str, float]:
        """Return the settings of the first repeat."""
        kernel, regularization = self.settings(data, 0)
        return {"gamma": kernel.gamma, "regularization": regularization}

    def measurements(
        self, ols: Published | None, krls: Published | None, online: Published | None
    ) -> tuple[Measurement, ...]:
        """Return what is measured, with the paper's values."""
        prefix = f"{self.name}: " if self.name else ""
        repeats = BETTER_REPEATS if self.divides else 1

        def one(
            name: str, published: Published | None, measure: Callable[..., Outcome], most: int | None = None
        ) -> Measurement:
            return Measurement((Cell(prefix + name, published),), partial(_measure, self, measure), most)

        return (
            one("OLS, GCV", ols, measure_ols, repeats),
            one("KRLS", krls, measure_krls),
            one("KRLS, penalty λ", None, partial(measure_krls, penalty=True)),
            one("online LS-SVM", online, measure_online),
        )


@lru_cache(maxsize=4)
def _choose(task: Task, data: DataFolder, repeat: int) -> tuple[RBF, float]:
    """Return the kernel and λ of least error over five folds of the training rows."""
    rows, kernels = task.draw(data, repeat).rows, [RBF(gamma) for gamma in task.gammas]
    start = draw_rows(rows, kernels[-1], min(START_BASIS, rows.n_rows), 0)
    settings = SubsetOfRegressorsSettings(regularization=LAMBDAS)
    fitted = fit_subset_of_regressors(rows, kernels, start, settings, Silent())
    return RBF(fitted.basis.kernel.parameters()["gamma"]), fitted.regularization


def _measure(task: Task, measure: Callable[..., Outcome], bench: Bench, repeat: int) -> tuple[Outcome]:
    """Measure a method on the division, or the permutation, of a repeat."""
    split = task.split(bench.data, repeat)
    order = np.random.default_rng(repeat + 1).permutation(len(split.X))
    split = Split(split.X[order], split.y[order], split.X_test, split.y_test, split.unit)
    return (measure(split, *task.settings(bench.data, repeat), repeat),)


def measure_ols(split: Split, kernel: RBF, regularization: float, repeat: int) -> Outcome:
    """Measure forward selection among all rows that GCV ends."""
    settings = OLSSettings(
        regularization=regularization, max_basis=min(LARGEST, len(split.X)), candidates="all", gcv=True
    )
    fitted = fit_ols(split.rows, kernel, settings, Silent())
    curve = {} if repeat else _ols_curve(split, fitted)
    return Outcome(split.error(fitted.basis.values(split.X_test) @ fitted.coefficients), len(fitted.places), {}, curve)


def measure_krls(split: Split, kernel: RBF, regularization: float, repeat: int, *, penalty: bool = False) -> Outcome:
    """Measure kernel recursive least squares: novel rows enter; without a penalty, or with that of the others."""

    def learn(novelty: float) -> OnlineLSSVM:
        learner = OnlineLSSVM(
            kernel,
            regularization=regularization,
            selection="novelty",
            unpenalized=not penalty,
            novelty_threshold=novelty,
            max_basis=None,
        )
        return learner.partial_fit(split.X, split.y)

    learner = learn(TOL1)
    curve = {} if repeat or penalty else _curve(split, [learn(novelty) for novelty in NOVELTIES])
    return Outcome(split.error(learner.predict(split.X_test)), learner.n_basis, {}, curve)


def measure_online(split: Split, kernel: RBF, regularization: float, repeat: int) -> Outcome:
    """Measure the online LS-SVM with γ = λt from the first row on."""

    def learn(most: int | None) -> OnlineLSSVM:
        learner = OnlineLSSVM(
            kernel,
            regularization=regularization,
            novelty_threshold=TOL1,
            usefulness_threshold=TOL2,
            stream_rows=len(split.X),
            max_basis=most,
        )
        return learner.partial_fit(split.X, split.y)

    learner = learn(None)
    curve = {} if repeat else _curve(split, [learn(size) for size in SIZES if size < learner.n_basis] + [learner])
    better = _better(split, learner) if repeat < BETTER_REPEATS else {}
    return Outcome(split.error(learner.predict(split.X_test)), learner.n_basis, better, curve)


def _better(split: Split, learner: OnlineLSSVM) -> dict[str, float]:
    """Return the errors of a refit of the dictionary with λ by GCV, and of as many vectors in the learned metric."""
    state = learner.state()
    basis = Basis(state.parameters.kernel, state.basis_vectors, state.centre)
    sums = split.rows.statistics((Summing(basis, 1),), SUMMED).parts[0].total()
    regularization = choose_regularization(sums, state.gram, state.parameters.regularization)
    refitted = sums.factorize(state.gram, regularization).solve(sums.rhs)
    product = OnlineLSSVMRegressor(max_basis=learner.n_basis, scale=None).fit(split.X, split.y)
    return {
        "refit": split.error(basis.values(split.X_test) @ refitted),
        "learned metric": split.error(product.predict(split.X_test)),
    }


def _curve(split: Split, learners: list[OnlineLSSVM]) -> dict[str, list[float]]:
    """Return the sizes of learners, and their errors."""
    return {
        "vectors": [learner.n_basis for learner in learners],
        "error": [split.error(learner.predict(split.X_test)) for learner in learners],
    }


def _ols_curve(split: Split, fitted: Fitted) -> dict[str, list[float]]:
    """Return the sizes of the path, and the errors of the models of its first vectors."""
    values = fitted.basis.values(split.X_test)
    sizes = [size for size in SIZES if size < len(fitted.places)] + [len(fitted.places)]
    solved = first_vectors(fitted, sizes)
    errors = [split.error(values[:, :size] @ part) for size, part in zip(sizes, solved, strict=True)]
    return {"vectors": [float(size) for size in sizes], "error": errors}


def first_vectors(fitted: Fitted, sizes: Sequence[int]) -> list[Floats]:
    """Return the coefficients (size, n_targets) of the models of the first vectors alone, at the same λ."""
    total, penalty = fitted.sums.total(), fitted.basis.penalty()

    def solve(size: int) -> Floats:
        part = total.choose(np.arange(size))
        return part.factorize(penalty[:size, :size], fitted.regularization).solve(part.rhs)

    return [solve(size) for size in sizes]
