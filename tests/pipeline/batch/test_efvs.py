"""EFVS: its choices are those of J for every candidate, whatever the look-ahead; stopping; refusals."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data.row_sets import CountedRows
from support.jobs.recording import Notes
from support.references.efvs import DenseEFVS

from ridgestream.pipeline.base.errors import InputError, MemoryRefused, NumericalBreakdown
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.efvs import EFVSSettings, fit_efvs, select_basis
from ridgestream.pipeline.batch.efvs_rounds import Selection
from ridgestream.pipeline.kernels import RBF, Kernel, Linear, Polynomial
from ridgestream.pipeline.selection.candidate_rounds import NumberOrAll, Pool, draw_unchosen
from ridgestream.pipeline.sums.row_set import ArrayRows

Array = npt.NDArray[np.float64]
KERNEL = RBF(0.5)
ASKED = EFVSSettings(1e-3, 15, candidates=9, spanned_threshold=1e-6, random_seed=4)


def draw(n: int, seed: int = 0, weighted: bool = False) -> ArrayRows:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return ArrayRows(X, np.sin(X[:, :2]), rng.choice([0.0, 0.5, 1.0, 2.0], n) if weighted else None)


def dense(rows: ArrayRows, options: EFVSSettings, kernel: Kernel = KERNEL) -> DenseEFVS:
    weights = np.ones(rows.n_rows) if rows.weights is None else rows.weights
    return DenseEFVS(kernel.block(rows.features, rows.features), weights, options.spanned_threshold)


def assert_is_dense(selection: Selection, rows: ArrayRows, options: EFVSSettings, kernel: Kernel = KERNEL) -> None:
    """Choices and errors are the reference's, as far as its choices are clear."""
    numbers = [None if asked_for == "all" else asked_for for asked_for in (options.candidates, options.sample)]
    reference = dense(rows, options, kernel)
    seed, rounds = options.random_seed, 2 * options.limit + 20
    slow, errors = reference.choose(options.limit, numbers[0], numbers[1], seed, rounds, pool=options.pool)
    unsure = [i for i, margin in enumerate(slow.margins) if margin < 1e-7]
    clear = unsure[0] if unsure else len(slow.places)
    assert selection.places[:clear].tolist() == slow.places[:clear]
    assert unsure or len(selection.places) == len(slow.places)
    np.testing.assert_allclose(selection.errors[:clear], errors[:clear], rtol=0, atol=1e-9)
    assert (selection.vectors == rows.features[selection.places]).all()


@pytest.mark.parametrize("look_ahead", [None, 1, 4, 16])
@pytest.mark.parametrize("candidates", [9, "all"])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_chooses_what_j_of_every_candidate_would(
    look_ahead: int | None, candidates: NumberOrAll, weighted: bool
) -> None:
    rows, options = draw(90, weighted=weighted), replace(ASKED, candidates=candidates, look_ahead=look_ahead)
    assert_is_dense(select_basis(rows, KERNEL, options, Silent()), rows, options)


@pytest.mark.parametrize("sample", [1, 12, 89, 90, 1000])
@pytest.mark.parametrize("candidates", [9, "all"])
@pytest.mark.parametrize("weighted", [False, True])
def test_j_over_random_rows(sample: int, candidates: NumberOrAll, weighted: bool) -> None:
    rows, options = draw(90, weighted=weighted), replace(ASKED, candidates=candidates, sample=sample)
    assert_is_dense(select_basis(rows, KERNEL, options, Silent()), rows, options)


@pytest.mark.parametrize("look_ahead", [None, 1, 4, 16])
@pytest.mark.parametrize(("sample", "weighted"), [("all", False), ("all", True), (12, False), (12, True)])
def test_chosen_candidates_are_replaced_whatever_the_look_ahead(
    look_ahead: int | None, sample: NumberOrAll, weighted: bool
) -> None:
    rows = draw(40, weighted=weighted)
    options = replace(ASKED, max_basis=25, candidates=9, pool="unchosen", sample=sample, look_ahead=look_ahead)
    assert_is_dense(select_basis(rows, KERNEL, options, Silent()), rows, options)


def test_a_round_among_unchosen_rows_has_as_many_candidates_as_it_draws() -> None:
    chosen = np.arange(0, 200, 2)
    orders = [draw_unchosen(3, number, 200, 59, chosen) for number in range(20)]
    assert all(len(set(order.tolist())) == 59 and (order % 2 == 1).all() for order in orders)
    assert draw_unchosen(3, 0, 200, 30, chosen).tolist() == orders[0][:30].tolist()
    assert sorted(draw_unchosen(3, 0, 200, 150, chosen).tolist()) == list(range(1, 200, 2))
    counts = np.bincount(np.concatenate([draw_unchosen(0, number, 200, 50, chosen) for number in range(400)]))
    assert np.abs(counts[1::2] - 200).max() < 5 * np.sqrt(200 * 0.5)  # every row as often as the others


@settings(deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_rows=st.integers(1, 30),
    candidates=st.integers(1, 12),
    sample=st.sampled_from(["all", 3, 20]),
    look_ahead=st.sampled_from([1, 4, 16]),
    repeated=st.booleans(),
    pool=st.sampled_from(["all", "unchosen"]),
)
def test_any_rows_and_duplicates(
    seed: int, n_rows: int, candidates: int, sample: NumberOrAll, look_ahead: int, repeated: bool, pool: Pool
) -> None:
    rows = draw(n_rows, seed)
    if repeated:
        rows = rows_again(rows, np.arange(n_rows) // 2)
    options = replace(ASKED, max_basis=8, candidates=candidates, sample=sample, look_ahead=look_ahead, random_seed=seed)
    options = replace(options, pool=pool)
    selection = select_basis(rows, KERNEL, options, Silent())
    assert_is_dense(selection, rows, options)
    assert len(np.unique(selection.vectors, axis=0)) == len(selection.places)


def rows_again(rows: ArrayRows, order: npt.NDArray[np.int64]) -> ArrayRows:
    return ArrayRows(rows.features[order], rows.targets[order])


@pytest.mark.parametrize("sample", ["all", 20])
@pytest.mark.parametrize("kernel", [Polynomial(0.5, 2, 1.0), Linear()], ids=lambda k: k.name)
def test_it_ends_when_the_chosen_vectors_span_all_rows(kernel: Kernel, sample: NumberOrAll) -> None:
    rows, options = draw(60, weighted=True), replace(ASKED, sample=sample)
    rows.features[7] = 0.0  # of length zero for the linear kernel
    selection = select_basis(rows, kernel, options, Silent())
    assert_is_dense(selection, rows, options, kernel)
    assert len(selection.places) == {"polynomial": 10, "linear": 3}[kernel.name]
    assert selection.errors[-1] < 1e-12


def test_weights_are_repetitions() -> None:
    rows, weights = draw(40, seed=2), np.ones(40)
    weights[[3, 8]], weights[[5, 6]] = 2.0, 0.0
    options = replace(ASKED, candidates="all")
    selection = select_basis(ArrayRows(rows.features, rows.targets, weights), KERNEL, options, Silent())
    order = np.repeat(np.arange(40), weights.astype(int))
    twice = select_basis(rows_again(rows, order), KERNEL, options, Silent())
    assert order[twice.places].tolist() == selection.places.tolist()
    np.testing.assert_allclose(selection.errors, twice.errors, atol=1e-12)


@pytest.mark.parametrize("sample", ["all", 40])
@pytest.mark.parametrize("look_ahead", [1, 16])
def test_it_stops_at_the_reconstruction_error_that_is_enough(sample: NumberOrAll, look_ahead: int) -> None:
    options = replace(ASKED, max_basis=60, reconstruction_threshold=0.3, sample=sample, look_ahead=look_ahead)
    selection = select_basis(draw(300), KERNEL, options, Silent())
    assert selection.errors[-1] <= 0.3 < selection.errors[:-1].min()
    assert len(selection.places) < 60


def test_the_model_has_the_coefficients_of_its_dictionary_and_reports_the_error() -> None:
    rows = draw(120, weighted=True)
    options = replace(ASKED, folds=3, look_ahead=4)
    selection, heard = fit_efvs(rows, KERNEL, options, Silent()), Notes()
    chosen = select_basis(rows, KERNEL, options, heard)
    assert selection.places.tolist() == chosen.places.tolist()
    K, w = KERNEL.block(rows.features, chosen.vectors), rows.weights
    assert w is not None
    P = K.T @ (w[:, np.newaxis] * K) + 1e-3 * w.sum() * K[chosen.places]
    expected = np.linalg.solve(P, K.T @ (w[:, np.newaxis] * rows.targets))
    np.testing.assert_allclose(selection.coefficients, expected, atol=1e-8)
    assert selection.path is not None
    assert (selection.path.criterion, selection.path.chosen) == ("reconstruction_error", 14)
    assert selection.path.value.tolist() == chosen.errors.tolist()
    assert selection.notes["reconstruction_error"] == chosen.errors[-1]
    assert len(selection.sums.folds) == 3
    assert [(facts["vectors"], facts["passes_left"]) for _, facts in heard.events] == [(4, 3), (8, 2), (12, 1), (15, 0)]


@pytest.mark.parametrize(("sample", "passes"), [("all", 4), (30, 0)])
def test_only_j_over_all_rows_takes_passes(sample: NumberOrAll, passes: int) -> None:
    rows = draw(200)
    counted = CountedRows(rows.features, rows.targets)
    options = replace(ASKED, max_basis=20, look_ahead=6, sample=sample)
    selection = select_basis(counted, KERNEL, options, Silent())
    assert counted.passes == selection.passes == passes
    assert (
        selection.places.tolist()
        == select_basis(rows, KERNEL, replace(options, look_ahead=1), Silent()).places.tolist()
    )


def test_the_sum_of_a_part_is_added_whatever_the_parts() -> None:
    rows = draw(100, weighted=True)
    parts = [CountedRows(rows.features, rows.targets, rows.weights, n_parts) for n_parts in (1, 3, 100)]
    selection = [select_basis(part, KERNEL, ASKED, Silent()) for part in parts]
    assert selection[0].places.tolist() == selection[1].places.tolist() == selection[2].places.tolist()
    np.testing.assert_allclose(selection[0].errors, selection[2].errors, atol=1e-12)


def test_impossible_requests_are_refused() -> None:
    rows = draw(30)
    little = replace(ASKED, memory_limit=1000)
    with pytest.raises(MemoryRefused, match=r"9 candidates a round need \d.* 1 kB may be used: lower max_basis"):
        select_basis(rows, KERNEL, little, Silent())
    with pytest.raises(MemoryRefused, match=r"all rows as candidates need \d.* ask for 59"):
        select_basis(rows, KERNEL, replace(little, candidates="all"), Silent())
    with pytest.raises(MemoryRefused, match="all rows as candidates"):
        select_basis(rows, KERNEL, replace(little, candidates="all", sample=5), Silent())
    for sample in ("all", 5):
        nothing = ArrayRows(rows.features, rows.targets, np.zeros(30))
        with pytest.raises(InputError, match="EFVS found no row to choose among 30 rows"):
            select_basis(nothing, KERNEL, replace(ASKED, sample=sample), Silent())
    with pytest.raises(InputError, match="among 0 rows"):
        select_basis(ArrayRows(np.empty((0, 2)), np.empty((0, 1))), KERNEL, ASKED, Silent())


@pytest.mark.parametrize("sample", ["all", 5])
def test_kernel_values_that_leave_float64_are_named_with_a_remedy(sample: NumberOrAll) -> None:
    rows = draw(30)
    far = ArrayRows(rows.features * 1e90, rows.targets)
    with np.errstate(over="ignore"), pytest.raises(NumericalBreakdown, match=r"not finite: .* lower the kernel's gam"):
        select_basis(far, Polynomial(1.0, 4), replace(ASKED, sample=sample), Silent())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"regularization": -1.0}, "regularization must be a positive number"),
        ({"max_basis": 0}, "max_basis must be a whole number of at least 1, .* it is 0"),
        ({"candidates": 0}, "candidates must be a whole number of at least 1"),
        ({"sample": "some"}, "sample must be a whole number .* it is 'some'"),
        ({"spanned_threshold": 0.0}, "spanned_threshold must be from 1e-10 to less than 1, it is 0.0"),
        ({"reconstruction_threshold": 1.0}, "reconstruction_threshold must be from 0 to less than 1"),
        ({"look_ahead": 0}, "look_ahead must be a whole number of at least 1"),
        ({"folds": 0}, "folds must be a whole number of at least 1"),
    ],
)
def test_invalid_settings_are_refused_by_name(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(ASKED, **changed)
