"""The online LS-SVM over many rows: five million of them, and twenty thousand against extended precision."""

import numpy as np
import numpy.typing as npt
import pytest
from support.data.forest import PARTITION_ROWS, Rows, standardized_forest
from support.references.extended_precision import GaussianKernel, cholesky, solve
from support.references.online import RowByRow

from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.online import carried_model
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.online.state import OnlineState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

Array = npt.NDArray[np.float64]
EPS = 2.0**-53


def synthetic(rng: np.random.Generator, centres: Array, rows: int) -> tuple[Array, Array]:
    """Rows (rows, d) in clouds about `centres`, one in ten within 1e-6 of its centre, and a noisy smooth target."""
    spread = np.where(rng.random((rows, 1)) < 0.1, 1e-6, 0.5)
    X = centres[rng.integers(len(centres), size=rows)] + spread * rng.standard_normal((rows, centres.shape[1]))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(rows)


def assert_no_nan(learner: OnlineLSSVM, X: Array) -> None:
    state = learner.state()
    for name in ("basis_vectors", "gram", "normal_matrix", "normal_rhs", "target_square"):
        assert np.isfinite(getattr(state, name)).all(), name
    assert np.isfinite(learner.predict(X)).all()
    assert np.isfinite(learner.cost())


def direct_predictions(state: OnlineState, kernel_rows: Array) -> Array:
    """f from P and z at the published γ = λn, in extended precision."""
    excess = np.longdouble(state.parameters.regularization) * state.weight_seen - np.longdouble(state.penalty)
    matrix = state.normal_matrix.astype(np.longdouble) + excess * state.gram
    return np.asarray(kernel_rows @ solve(matrix, state.normal_rhs.astype(np.longdouble)), dtype=np.float64)


def test_five_million_rows_keep_p_positive_definite_and_predictions_exact() -> None:
    rng = np.random.default_rng(0)
    centres = 2 * rng.standard_normal((400, 4))
    X_test, y_test = synthetic(rng, centres, 2000)
    kernel = RBF(1 / 4)
    learner = OnlineLSSVM(kernel, regularization=1e-6, max_basis=300, novelty_threshold=1e-4)
    for partition in range(5_000_000 // PARTITION_ROWS):
        learner.partial_fit(*synthetic(rng, centres, PARTITION_ROWS))
        learner.refresh()
        if partition % 10 == 9:
            assert_no_nan(learner, X_test)
    state = learner.state()
    assert (state.rows_seen, state.n_basis) == (5_000_000, 300)
    cholesky(state.normal_matrix.astype(np.longdouble))  # raises unless positive definite
    condition = float(np.linalg.cond(state.normal_matrix))
    predictions = learner.predict(X_test)
    expected = direct_predictions(state, kernel.block(X_test, state.basis_vectors, state.centre))
    difference = np.abs(predictions - expected).max() / np.abs(expected).max()
    error = np.sqrt(np.mean((predictions[:, 0] - y_test) ** 2)) / y_test.std()
    print(f"cond(P) {condition:.2e}, {learner.condition}, swaps {state.swaps}, RMS error {error:.2f} σ")  # noqa: T201
    print(f"largest difference {difference:.2e} of {100 * condition * EPS:.2e} allowed")  # noqa: T201
    assert difference <= 100 * condition * EPS
    assert error < 0.25


def test_twenty_thousand_forest_rows_give_the_decisions_of_extended_precision() -> None:
    rows, test = (part.first(20_000) for part in standardized_forest(20_000))
    reference = RowByRow(GaussianKernel(1 / 54), 1e-5, 100, refresh_every=64)
    for x, y in zip(rows.X, rows.y, strict=True):
        reference.learn(x, y)
    learner = OnlineLSSVM(RBF(1 / 54), regularization=1e-5, max_basis=100).partial_fit(rows.X, rows.y)
    learner.refresh()
    assert_no_nan(learner, test.X)
    closest = float(reference.margins.min())
    assert closest > 1e-10, "a tie on these rows: either choice is right, and this test must then compare up to it"
    state = learner.state()
    assert state.basis_rows.tolist() == reference.basis_rows
    assert state.swaps == sum(decision.action == "swap" for decision in reference.decisions)
    condition = float(np.linalg.cond(state.normal_matrix))
    expected = np.asarray(reference.predict(test.X[:2000]), dtype=np.float64)
    difference = np.abs(learner.predict(test.X[:2000]) - expected).max() / np.abs(expected).max()
    cost = abs(learner.cost() - float(reference.cost())) / float(np.trace(reference.target_square))
    print(f"cond(P) {condition:.2e}, closest decision {closest:.1e}, swaps {state.swaps}")  # noqa: T201
    print(f"predictions differ by {difference:.1e}, the cost by {cost:.1e}")  # noqa: T201
    assert difference <= 100 * condition * EPS
    assert cost <= 100 * condition * EPS


def learn_forest(rows: Rows, max_basis: int) -> OnlineLSSVM:
    learner = OnlineLSSVM(RBF(1 / 54), regularization=1e-5, max_basis=max_basis, centre=np.zeros(rows.X.shape[1]))
    for start in range(0, len(rows.X), PARTITION_ROWS):
        part = slice(start, start + PARTITION_ROWS)
        learner.partial_fit(rows.X[part], rows.y[part]).refresh()
    return learner


@pytest.mark.parametrize("max_basis", [100, 500])
def test_the_screen_misses_no_swap_on_forest(max_basis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = standardized_forest()
    monkeypatch.setattr(carried_model, "SCREEN_BASIS", 10**9)
    plain = learn_forest(rows, max_basis)
    monkeypatch.setattr(carried_model, "SCREEN_BASIS", 1)
    monkeypatch.setattr(carried_model, "SCREEN_ROWS", 0)
    screened = learn_forest(rows, max_basis)
    print(f"{screened.swaps} swaps, {screened.suspected_share:.2%} of the rows left by the screen")  # noqa: T201
    assert (plain.swaps, plain.suspected_share) == (screened.swaps, 1.0)
    assert plain.state().basis_rows.tolist() == screened.state().basis_rows.tolist()
    assert screened.suspected_share < 0.3
