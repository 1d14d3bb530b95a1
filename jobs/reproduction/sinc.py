"""The row sinc of Table 1 of Jung & Polani (2006): forward selection, KRLS and the online LS-SVM on a noisy sinc.

The paper gives the noise, both thresholds, and that the training rows are permuted. The number of rows, 1,000, is ours;
the kernel's width and λ are those of least error over five folds of the training rows, for a dictionary of random rows.
Errors are over points without noise, in the units of the unscaled target.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ridgestream.jobs.reproduction.study import Cell, Outcome, Study
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.ols import OLSSettings, fit_ols
from ridgestream.pipeline.batch.subset_of_regressors import SubsetOfRegressorsSettings, fit_subset_of_regressors
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.selection.starts.random_rows import draw_rows
from ridgestream.pipeline.sums.row_set import ArrayRows

ROWS, NOISE, TOL1, TOL2 = 1000, 0.2, 1e-2, 1e-4
GAMMAS = tuple(2.0**power for power in range(-1, 6))
LAMBDAS = tuple(10.0**power for power in range(-7, -2))
START_BASIS, LARGEST = 50, 100


@dataclass(frozen=True)
class Data:
    """Scaled training rows, and points without noise."""

    X: Floats
    """Shape (rows, 1)."""
    y: Floats
    """Shape (rows,), scaled."""
    points: Floats
    """Shape (points, 1)."""
    known: Floats
    """The sinc at the points, shape (points,)."""
    centre: float
    """The mean of the targets."""
    scale: float
    """Their standard deviation."""

    def error(self, predictions: Floats) -> float:
        """Return the mean squared error of scaled predictions (points, 1), unscaled."""
        return float(np.mean((predictions[:, 0] * self.scale + self.centre - self.known) ** 2))


@cache
def draw() -> Data:
    """Return the data; the same at each call."""
    rng = np.random.default_rng(0)
    x, points = rng.uniform(-10, 10, ROWS), np.linspace(-10, 10, ROWS)
    y = np.sinc(x / np.pi) + NOISE * rng.standard_normal(ROWS)
    scaled, at = ((each - x.mean()) / x.std() for each in (x, points))
    return Data(
        scaled[:, np.newaxis],
        (y - y.mean()) / y.std(),
        at[:, np.newaxis],
        np.sinc(points / np.pi),
        float(y.mean()),
        float(y.std()),
    )


@cache
def choose() -> tuple[RBF, float]:
    """Return the kernel and λ of least error over five folds of the training rows."""
    data, kernels = draw(), [RBF(gamma) for gamma in GAMMAS]
    rows = ArrayRows(data.X, data.y)
    start = draw_rows(rows, kernels[-1], START_BASIS, 0)
    settings = SubsetOfRegressorsSettings(regularization=LAMBDAS)
    fitted = fit_subset_of_regressors(rows, kernels, start, settings, Silent())
    kernel = fitted.basis.kernel
    return RBF(kernel.parameters()["gamma"]), fitted.regularization


def describe() -> dict[str, Any]:
    """Return the settings."""
    kernel, regularization = choose()
    given = {"rows": ROWS, "noise": NOISE, "TOL1": TOL1, "TOL2": TOL2}
    return {**given, "gamma": kernel.gamma, "regularization": regularization}


def measure_ols(repeat: int) -> Outcome:  # noqa: ARG001 (the order of the rows does not matter)
    """Measure forward selection among all rows that GCV ends."""
    data, (kernel, regularization) = draw(), choose()
    settings = OLSSettings(regularization=regularization, max_basis=LARGEST, candidates="all", gcv=True)
    fitted = fit_ols(ArrayRows(data.X, data.y), kernel, settings, Silent())
    return Outcome(data.error(fitted.basis.values(data.points) @ fitted.coefficients), len(fitted.places))


def measure_krls(repeat: int) -> Outcome:
    """Measure kernel recursive least squares."""
    kernel, regularization = choose()
    learner = OnlineLSSVM(
        kernel,
        regularization=regularization,
        selection="novelty",
        unpenalized=True,
        novelty_threshold=TOL1,
        max_basis=None,
    )
    return _learn(learner, repeat)


def measure_online(repeat: int) -> Outcome:
    """Measure the online LS-SVM with γ = λt from the first row on."""
    kernel, regularization = choose()
    learner = OnlineLSSVM(
        kernel,
        regularization=regularization,
        novelty_threshold=TOL1,
        usefulness_threshold=TOL2,
        stream_rows=ROWS,
        max_basis=None,
    )
    return _learn(learner, repeat)


def _learn(learner: OnlineLSSVM, repeat: int) -> Outcome:
    """Learn a permutation of the rows."""
    data, order = draw(), np.random.default_rng(repeat + 1).permutation(ROWS)
    learner.partial_fit(data.X[order], data.y[order])
    return Outcome(data.error(learner.predict(data.points)), learner.n_basis)


STUDY = Study(
    title="Noisy sinc: subset selection compared",
    source="Jung & Polani (2006), Table 1",
    error="mean squared error",
    repeats=100,
    takes="some seconds",
    settings=describe,
    cells=(
        Cell("OLS, GCV", "5.6e-4 (10)", measure_ols, is_repeated=False),
        Cell("KRLS", "9.1e-4 ± 1.5e-4 (14.36)", measure_krls),
        Cell("online LS-SVM", "7.5e-4 ± 3.1e-4 (11.06)", measure_online),
    ),
)
