"""Starting dictionaries: rows drawn at random, k-means centres, and the leading rows that a pass looks for."""

from functools import reduce
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobs.recording import Notes

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.kernels import RBF, Linear, gram
from ridgestream.pipeline.selection.starts.kmeans import Clusters, kmeans_centres, sum_clusters
from ridgestream.pipeline.selection.starts.random_rows import draw_rows
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import ArrayRows
from ridgestream.pipeline.sums.top_rows import NO_ROW, TopRows, TopRowsAccumulator

Array = npt.NDArray[np.float64]


def make_rows(n: int = 500, seed: int = 0, weighted: bool = False) -> ArrayRows:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) + 6 * rng.integers(0, 3, (n, 1))
    return ArrayRows(X, rng.standard_normal((n, 2)), rng.choice([0.0, 1.0, 2.5], n) if weighted else None)


def block_of(rows: ArrayRows, start: int, stop: int) -> RowBlock:
    part = slice(start, stop)
    weights = None if rows.weights is None else rows.weights[part]
    return RowBlock(rows.features[part], rows.targets[part], weights, start)


def top_rows(scores: Array, rows: ArrayRows, cuts: list[int], depth: int) -> TopRows:
    accumulator = TopRowsAccumulator(len(scores), depth, 3, 2)
    for start, stop in pairwise(cuts):
        accumulator.add(scores[:, start:stop], np.arange(start, stop), block_of(rows, start, stop))
    return accumulator.top_rows()


@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 80), max_size=4), depth=st.integers(1, 12))
def test_top_rows_have_the_largest_scores_and_the_first_of_equals_wins(seed: int, cuts: list[int], depth: int) -> None:
    rng, rows = np.random.default_rng(seed), make_rows(80)
    scores = rng.integers(-1, 9, (3, 80)).astype(float)  # many ties, and some that are excluded
    ends = [0, *sorted(cuts), 80]
    whole = top_rows(scores, rows, ends, depth)
    merged = reduce(TopRows.merge, [top_rows(scores, rows, [a, b], depth) for a, b in pairwise(ends)])
    for way in range(3):
        order = sorted(np.flatnonzero(scores[way] >= 0), key=lambda i: (-scores[way, i], i))[:depth]
        expected = np.r_[order, np.full(depth - len(order), NO_ROW)]
        for result in (whole, merged):
            np.testing.assert_array_equal(result.places[way], expected)
            np.testing.assert_array_equal(result.scores[way, : len(order)], scores[way, order])
    for result in (whole, merged):
        np.testing.assert_array_equal(result.rows.places, np.setdiff1d(result.places, [NO_ROW]))
        np.testing.assert_array_equal(result.rows.features, rows.features[result.rows.places])
        np.testing.assert_array_equal(result.rows.targets, rows.targets[result.rows.places])


def test_drawn_rows_are_independent_rows_that_weigh() -> None:
    rows = make_rows(400, weighted=True)
    rows.features[200:] = rows.features[:200]
    start = draw_rows(rows, RBF(0.3), 120, seed=3)
    assert rows.weights is not None
    assert len(set(start.places)) == 120
    assert (rows.weights[start.places] > 0).all()
    np.testing.assert_array_equal(start.vectors, rows.features[start.places])
    assert np.linalg.eigvalsh(gram(RBF(0.3), start.vectors)).min() > 1e-11


def test_a_draw_depends_on_its_seed() -> None:
    rows = make_rows()
    first, again, other = (draw_rows(rows, RBF(0.3), 20, seed).places for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert set(first) != set(other)


def test_every_row_is_as_likely_to_be_drawn() -> None:
    rows = make_rows(40)
    counts = np.zeros(40)
    for seed in range(600):
        counts[draw_rows(rows, RBF(3.0), 10, seed).places] += 1
    assert np.abs(counts - 150).max() < 5 * np.sqrt(150 * 0.75)


def test_there_are_fewer_where_no_more_are_independent() -> None:
    assert len(draw_rows(make_rows(300), Linear(), 50, seed=0).places) == 3


def test_a_draw_from_rows_that_weigh_nothing_is_refused() -> None:
    rows = ArrayRows(np.ones((30, 2)), np.ones((30, 1)), np.zeros(30))
    with pytest.raises(InputError, match="no row of 30 could be drawn"):
        draw_rows(rows, RBF(1.0), 5, seed=0)
    with pytest.raises(InputError, match="n_basis must be at least 1, it is 0"):
        draw_rows(rows, RBF(1.0), 0, seed=0)


def lloyd(X: Array, w: Array, centres: Array) -> Array:
    """One step by definition, all distances at once."""
    nearest = np.argmin(((X[:, np.newaxis] - centres) ** 2).sum(axis=2), axis=1)
    return np.array([np.average(X[nearest == c], axis=0, weights=w[nearest == c]) for c in range(len(centres))])


@pytest.mark.parametrize("weighted", [False, True])
def test_a_pass_moves_centres_to_the_means_of_their_rows(weighted: bool) -> None:
    rows = make_rows(weighted=weighted)
    weights = np.ones(500) if rows.weights is None else rows.weights
    centres = rows.features[[5, 17, 200, 333]]
    clusters = sum_clusters(centres, [block_of(rows, 0, 500)])
    np.testing.assert_allclose(clusters.means(centres), lloyd(rows.features, weights, centres), rtol=1e-12)
    squares = ((rows.features[:, np.newaxis] - centres) ** 2).sum(axis=2).min(axis=1)
    assert clusters.inertia == pytest.approx(weights @ squares)
    assert clusters.weights.sum() == pytest.approx(weights.sum())


@given(cuts=st.lists(st.integers(0, 500), max_size=4))
def test_sums_of_parts_are_those_of_the_whole(cuts: list[int]) -> None:
    rows = make_rows(weighted=True)
    centres, ends = rows.features[:6], [0, *sorted(cuts), 500]
    whole = sum_clusters(centres, [block_of(rows, 0, 500)])
    merged = reduce(Clusters.merge, [sum_clusters(centres, [block_of(rows, a, b)]) for a, b in pairwise(ends)])
    np.testing.assert_allclose(merged.means(centres), whole.means(centres), rtol=1e-12)
    np.testing.assert_array_equal(merged.farthest.places, whole.farthest.places)


def test_an_empty_centre_moves_to_the_farthest_row() -> None:
    rows = make_rows()
    centres = np.vstack([rows.features[:3], [[1e3, 1e3, 1e3]], [[-1e3, 0, 0]]])
    clusters = sum_clusters(centres, [block_of(rows, 0, 500)])
    far = np.argsort(-((rows.features[:, np.newaxis] - centres) ** 2).sum(axis=2).min(axis=1))
    np.testing.assert_array_equal(clusters.means(centres)[3:], rows.features[far[:2]])


def test_centres_find_the_clusters_and_get_no_worse() -> None:
    rows, notes = make_rows(2000), Notes()
    start = kmeans_centres(rows, 3, seed=0, passes=12, report=notes)
    assert sorted(np.round(start.vectors.mean(axis=1)).astype(int)) == [0, 6, 12]
    assert (start.places == -1).all()
    inertias = [float(str(fact["mean_squared_distance"])) for _, fact in notes.events]
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(inertias))
    assert [fact["passes_left"] for _, fact in notes.events] == list(range(11, -1, -1))


def test_centres_come_close_to_those_of_another_library() -> None:
    from sklearn.cluster import KMeans

    rows = make_rows(1500, weighted=True)
    start = kmeans_centres(rows, 25, seed=1, passes=40, report=Silent())
    other = KMeans(25, n_init=5, random_state=0).fit(rows.features, sample_weight=rows.weights)
    inertia = sum_clusters(start.vectors, [block_of(rows, 0, 1500)]).inertia
    assert inertia < 1.1 * float(other.inertia_)


def test_the_same_seed_gives_the_same_bits_and_another_one_others() -> None:
    first, again, other = (kmeans_centres(make_rows(), 10, seed, 3, Silent()).vectors for seed in (4, 4, 5))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_there_are_no_more_centres_than_different_rows() -> None:
    X = np.repeat(np.arange(4.0), 25)[:, np.newaxis]
    start = kmeans_centres(ArrayRows(X, X), 10, seed=0, passes=3, report=Silent())
    np.testing.assert_array_equal(np.sort(start.vectors[:, 0]), np.arange(4.0))


def test_invalid_arguments_of_k_means_are_refused() -> None:
    rows = ArrayRows(np.ones((30, 2)), np.ones((30, 1)), np.zeros(30))
    with pytest.raises(InputError, match="none of the 30 rows drawn of 30 has a positive weight"):
        kmeans_centres(rows, 5, seed=0, passes=1, report=Silent())
    with pytest.raises(InputError, match="n_basis and passes must be at least 1, they are 5 and 0"):
        kmeans_centres(rows, 5, seed=0, passes=0, report=Silent())
