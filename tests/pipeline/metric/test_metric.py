"""The metric as a linear map: square roots, axes without gradients, further features, importance, directions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.metric.metric import Metric


def products(seed: int, n: int = 5, rows: int = 40) -> Floats:
    gradients = np.random.default_rng(seed).normal(size=(rows, n)) * np.arange(1, n + 1)
    return np.asarray(gradients.T @ gradients)


def test_the_root_is_that_of_scipy_scaled_to_the_number_of_features() -> None:
    m = products(0)
    root = Metric.of_gradients(m, diagonal=False).root
    np.testing.assert_allclose(root, np.real(sqrtm(m * 5 / np.trace(m))), atol=1e-12)
    assert np.sum(root**2) == pytest.approx(5)
    assert (root == root.T).all()


def test_a_diagonal_metric_weighs_each_feature_by_its_own_gradient() -> None:
    m = products(1)
    metric = Metric.of_gradients(m, diagonal=True)
    np.testing.assert_allclose(metric.root**2, np.diagonal(m) * 5 / np.trace(m))
    np.testing.assert_allclose(metric.apply(np.eye(5)), np.diag(metric.root))


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_distances_are_those_of_the_gradients_products(seed: int, n: int, rows: int, diagonal: bool) -> None:
    """Also where there are fewer gradients than features, so that the products are singular."""
    m = products(seed, n, rows)
    metric = Metric.of_gradients(m, diagonal=diagonal)
    u = np.random.default_rng(seed + 1).normal(size=(3, n))
    wanted = np.diag(np.diagonal(m)) if diagonal else m
    squares = np.einsum("ri,ij,rj->r", u, wanted, u) * n / np.trace(m)
    np.testing.assert_allclose(np.sum(metric.apply(u) ** 2, axis=1), squares, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("diagonal", [False, True])
def test_a_feature_without_gradient_is_an_axis_of_weight_one(diagonal: bool) -> None:
    m = products(2)
    m[[1, 3], :] = m[:, [1, 3]] = 0.0
    metric = Metric.of_gradients(m, diagonal=diagonal)
    axes = metric.apply(np.eye(5))
    np.testing.assert_array_equal(axes[[1, 3]], np.eye(5)[[1, 3]])
    assert np.sum(axes**2) == pytest.approx(5)


def test_without_any_gradient_the_features_stay_as_they_are() -> None:
    np.testing.assert_array_equal(Metric.of_gradients(np.zeros((3, 3)), diagonal=False).root, np.ones(3))


@pytest.mark.parametrize("diagonal", [False, True])
def test_further_features_are_axes_of_average_weight_and_change_no_other(diagonal: bool) -> None:
    metric = Metric.of_gradients(products(3, 3), diagonal=diagonal).scaled(2.0)
    extended = metric.extended([1, 3, 3])
    rows = np.random.default_rng(0).normal(size=(4, 3))
    wide = np.insert(rows, [1, 3, 3], 0.0, axis=1)
    np.testing.assert_array_equal(extended.apply(wide), np.insert(metric.apply(rows), [1, 3, 3], 0.0, axis=1))
    added = extended.apply(np.eye(6)[[1, 4, 5]])
    np.testing.assert_allclose(added, 2.0 * np.eye(6)[[1, 4, 5]])
    assert metric.extended([]) is metric


@pytest.mark.parametrize("diagonal", [False, True])
def test_importance_and_directions_share_the_whole(diagonal: bool) -> None:
    metric = Metric.of_gradients(products(4), diagonal=diagonal)
    np.testing.assert_allclose(metric.importance().sum(), 1.0)
    directions = metric.directions(5)
    squares = sum(d.share * np.outer(d.axis, d.axis) for d in directions)
    full = metric.apply(np.eye(5))
    np.testing.assert_allclose(squares, full @ full.T / np.sum(full**2), atol=1e-12)
    assert [d.share for d in directions] == sorted((d.share for d in directions), reverse=True)
    assert metric.scaled(3.0).importance() == pytest.approx(metric.importance())


@pytest.mark.parametrize("root", [np.ones((2, 3)), np.ones((2, 2, 2)), np.array([1.0, np.nan])])
def test_what_is_no_metric_is_refused(root: Floats) -> None:
    with pytest.raises(InputError, match="metric"):
        Metric(root)
