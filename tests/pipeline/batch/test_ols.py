"""OLS: its choices are those of a fit for every candidate, whatever the look-ahead; sizes, refusals, notes."""

import tracemalloc
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data.row_sets import CountedRows
from support.jobs.recording import Notes
from support.references.ols import DenseOLS

from ridgestream.pipeline.base.errors import InputError, MemoryRefused
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.ols import OLSSettings, fit_ols
from ridgestream.pipeline.kernels import RBF, Kernel, Linear, Polynomial
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.sums.row_set import ArrayRows

Array = npt.NDArray[np.float64]
KERNEL = RBF(0.5)


def draw(n: int, seed: int = 0, n_targets: int = 1, weighted: bool = False) -> ArrayRows:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    shapes = [np.sin(2 * X[:, 0]), X[:, 1] ** 2, X[:, 0] * X[:, 1]]
    Y = np.stack(shapes[:n_targets], axis=1) + 0.1 * rng.standard_normal((n, n_targets))
    return ArrayRows(X, Y, rng.choice([0.0, 0.5, 1.0, 2.0], n) if weighted else None)


def dense(rows: ArrayRows, regularization: float, kernel: Kernel = KERNEL) -> DenseOLS:
    weights = np.ones(rows.n_rows) if rows.weights is None else rows.weights
    return DenseOLS(rows.features, rows.targets, weights, kernel, regularization)


def assert_is_dense(fitted: Fitted, rows: ArrayRows, options: OLSSettings, kernel: Kernel = KERNEL) -> None:
    """Choices, coefficients and GCV of every size are the reference's."""
    reference = dense(rows, options.regularization, kernel)
    candidates = None if options.candidates == "all" else options.candidates
    slow = reference.choose(options.limit, candidates, options.random_seed, 2 * options.limit + 20)
    unsure = [i for i, margin in enumerate(slow.margins) if margin < 1e-7]
    clear = unsure[0] if unsure else len(slow.places)
    assert fitted.places[:clear].tolist() == slow.places[:clear]
    assert unsure or len(fitted.places) == len(slow.places)
    places = fitted.places.tolist()
    assert (fitted.basis.vectors == rows.features[places]).all()
    predicted = reference.kernel_matrix[:, places] @ reference.coefficients(places)
    np.testing.assert_allclose(fitted.basis.values(rows.features) @ fitted.coefficients, predicted, atol=1e-6)
    assert fitted.path is not None
    for size in fitted.path.n_basis[: len(places)]:
        assert fitted.path.value[size - 1] == pytest.approx(reference.gcv(places[:size]), rel=1e-6)


@pytest.mark.parametrize("look_ahead", [None, 1, 4, 16])
@pytest.mark.parametrize(("n_targets", "weighted"), [(1, False), (3, False), (2, True)])
def test_it_chooses_what_a_fit_for_every_candidate_would(
    look_ahead: int | None, n_targets: int, weighted: bool
) -> None:
    rows = draw(150, n_targets=n_targets, weighted=weighted)
    options = OLSSettings(1e-4, 18, candidates=10, look_ahead=look_ahead, random_seed=3)
    assert_is_dense(fit_ols(rows, KERNEL, options, Silent()), rows, options)


@pytest.mark.parametrize("kernel", [Polynomial(0.5, 2, 1.0), Linear(), RBF(2.0)], ids=lambda k: k.name)
@pytest.mark.parametrize("look_ahead", [1, 4])
def test_other_kernels_end_when_the_chosen_vectors_span_all_rows(kernel: Kernel, look_ahead: int) -> None:
    rows = draw(60, weighted=True)
    options = OLSSettings(1e-3, 10, candidates=8, look_ahead=look_ahead)
    fitted = fit_ols(rows, kernel, options, Silent())
    assert_is_dense(fitted, rows, options, kernel)
    assert len(fitted.places) == {"polynomial": 6, "linear": 2, "rbf": 10}[kernel.name]


@pytest.mark.parametrize("weighted", [False, True])
def test_all_rows_can_be_candidates_of_every_round(weighted: bool) -> None:
    rows = draw(70, n_targets=2, weighted=weighted)
    options = OLSSettings(1e-3, 12, candidates="all")
    fitted = fit_ols(rows, KERNEL, options, Silent())
    assert_is_dense(fitted, rows, options)
    assert fitted.notes["passes"] == 2
    drawn = fit_ols(rows, KERNEL, replace(options, candidates=70, look_ahead=5), Silent())
    assert drawn.places.tolist() == fitted.places.tolist()


@settings(deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_rows=st.integers(1, 40),
    candidates=st.integers(1, 12),
    look_ahead=st.sampled_from([1, 4, 16]),
    repeated=st.booleans(),
)
def test_any_rows_and_duplicates(seed: int, n_rows: int, candidates: int, look_ahead: int, repeated: bool) -> None:
    rows = draw(n_rows, seed, 2)
    if repeated:
        again = np.arange(n_rows) // 2
        rows = ArrayRows(rows.features[again], rows.targets)
    options = OLSSettings(1e-2, 8, candidates=candidates, look_ahead=look_ahead, random_seed=seed)
    fitted = fit_ols(rows, KERNEL, options, Silent())
    assert_is_dense(fitted, rows, options)
    assert len(np.unique(fitted.basis.vectors, axis=0)) == len(fitted.places)


def test_a_weight_of_two_is_the_row_twice_and_a_weight_of_zero_is_no_row() -> None:
    rows = draw(40, seed=2)
    weights = np.ones(40)
    weights[[3, 8]], weights[[5, 6]] = 2.0, 0.0
    options = OLSSettings(1e-3, 10, candidates="all")
    fitted = fit_ols(ArrayRows(rows.features, rows.targets, weights), KERNEL, options, Silent())
    order = np.repeat(np.arange(40), weights.astype(int))
    twice = fit_ols(ArrayRows(rows.features[order], rows.targets[order]), KERNEL, options, Silent())
    assert order[twice.places].tolist() == fitted.places.tolist()
    np.testing.assert_allclose(fitted.coefficients, twice.coefficients, rtol=1e-6)


def test_a_look_ahead_of_r_takes_one_pass_in_r() -> None:
    rows = draw(200)
    counted = CountedRows(rows.features, rows.targets)
    options = OLSSettings(1e-3, 20, candidates=10, look_ahead=8, folds=3)
    heard = Notes()
    fitted = fit_ols(counted, KERNEL, options, heard)
    assert counted.passes == fitted.notes["passes"] == 4  # 8, 16, 20 and the sums of the dictionary
    straight = fit_ols(rows, KERNEL, replace(options, look_ahead=1), Silent())
    assert straight.notes["passes"] == 21
    assert fitted.places.tolist() == straight.places.tolist()
    assert [(facts["vectors"], facts["passes_left"]) for _, facts in heard.events] == [(8, 2), (16, 1), (20, 0)]
    assert len(fitted.sums.folds) == 3
    assert fitted.sums.total().rows == 200


def test_gcv_chooses_the_size_and_ends_the_search_whatever_the_look_ahead() -> None:
    rows = draw(120, seed=1)
    noise = ArrayRows(rows.features, rows.targets + np.random.default_rng(0).standard_normal((120, 1)))
    options = OLSSettings(1e-6, 60, candidates=20, gcv=True, patience=4, look_ahead=1)
    fitted = fit_ols(noise, KERNEL, options, Silent())
    path = fitted.path
    assert path is not None
    assert path.chosen == np.argmin(path.value) == len(path.value) - 5
    assert len(fitted.places) == path.n_basis[path.chosen] == path.chosen + 1
    assert_is_dense(fitted, noise, replace(options, max_basis=len(fitted.places)))
    for look_ahead in (4, 16):
        other = fit_ols(noise, KERNEL, replace(options, look_ahead=look_ahead), Silent())
        assert other.places.tolist() == fitted.places.tolist()
        assert other.path is not None
        np.testing.assert_allclose(other.path.value, path.value, rtol=1e-8)


def test_the_size_is_as_asked_without_gcv() -> None:
    fitted = fit_ols(draw(100), KERNEL, OLSSettings(1e-6, 25, candidates=20), Silent())
    assert fitted.path is not None
    assert (len(fitted.places), fitted.path.chosen, fitted.path.criterion) == (25, 24, "gcv")


def test_rows_of_which_few_have_weight_are_searched_for_long() -> None:
    weights = np.zeros(400)
    weights[[17, 170, 333]] = 1.0
    rows = draw(400)
    fitted = fit_ols(ArrayRows(rows.features, rows.targets, weights), KERNEL, OLSSettings(1e-3, 5), Silent())
    assert sorted(fitted.places) == [17, 170, 333]


def test_the_memory_of_a_pass_is_planned() -> None:
    rows, n = draw(1200), 1200
    tracemalloc.start()
    fit_ols(rows, KERNEL, OLSSettings(1e-3, 40, candidates="all", memory_limit=8 * 6 * n**2), Silent())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 8 * 6 * n**2 <= 3 * peak
    with pytest.raises(MemoryRefused, match=r"all rows as candidates need 69\.1 MB"):
        fit_ols(rows, KERNEL, OLSSettings(1e-3, 40, candidates="all", memory_limit=8 * 6 * n**2 - 1), Silent())


def test_impossible_requests_are_refused() -> None:
    rows = draw(30)
    with pytest.raises(MemoryRefused, match=r"all rows as candidates need \d.*kB.*1 kB may be used: ask for 59"):
        fit_ols(rows, KERNEL, OLSSettings(1e-3, 5, candidates="all", memory_limit=1000), Silent())
    with pytest.raises(MemoryRefused, match=r"59 candidates a round need .* lower max_basis"):
        fit_ols(rows, KERNEL, OLSSettings(1e-3, 5, memory_limit=1000), Silent())
    with pytest.raises(InputError, match="no row to choose among 30 rows"):
        fit_ols(ArrayRows(rows.features, rows.targets, np.zeros(30)), KERNEL, OLSSettings(1e-3, 5), Silent())
    with pytest.raises(InputError, match="no row to choose among 0 rows"):
        fit_ols(ArrayRows(np.empty((0, 2)), np.empty((0, 1))), KERNEL, OLSSettings(1e-3, 5), Silent())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"regularization": 0.0}, "regularization must be a positive number"),
        ({"max_basis": 0}, "max_basis must be a whole number of at least 1, or None for no bound; it is 0"),
        ({"candidates": 0}, 'candidates must be a whole number of at least 1 or "all", it is 0'),
        ({"candidates": "most"}, "candidates must be a whole number .* it is 'most'"),
        ({"look_ahead": 0}, "look_ahead must be a whole number of at least 1, or None for no bound; it is 0"),
        ({"patience": 0}, "patience must be a whole number of at least 1"),
        ({"folds": 0}, "folds must be a whole number of at least 1"),
        ({"random_seed": -1}, "random_seed must be a whole number of at least 0"),
    ],
)
def test_invalid_settings_are_refused_by_name(changed: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(OLSSettings(1e-3, 5), **changed)  # type: ignore[arg-type]
