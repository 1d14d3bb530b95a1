"""Kernels against their definition, evaluated from differences in extended precision."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.kernels import (
    FEWEST_VECTORS,
    KERNELS,
    MOST_VECTORS,
    RBF,
    Kernel,
    Linear,
    Polynomial,
    are_unrelated,
    gram,
    make_kernel,
)

Array = npt.NDArray[np.float64]


def exact_rbf(gamma: float, X: Array, Z: Array) -> Array:
    difference = X.astype(np.longdouble)[:, None, :] - Z.astype(np.longdouble)[None, :, :]
    return np.asarray(np.exp(-np.longdouble(gamma) * (difference**2).sum(axis=2)), dtype=np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shift", [0.0, 1e4, -1e6])
@pytest.mark.parametrize("with_centre", [False, True])
def test_a_shift_of_the_inputs_costs_no_digits(dtype: type[np.floating], shift: float, with_centre: bool) -> None:
    rng = np.random.default_rng(1)
    X = (rng.standard_normal((40, 7)) + shift).astype(dtype).astype(np.float64)
    Z = np.vstack([X[:5], (rng.standard_normal((20, 7)) + shift).astype(dtype).astype(np.float64)])
    values = RBF(0.3).block(X, Z, X[0] if with_centre else None)
    assert np.abs(values - exact_rbf(0.3, X, Z)).max() < 1e-12
    assert values.min() >= 0
    assert values.max() <= 1


@given(
    seed=st.integers(0, 2**32 - 1),
    outlier=st.sampled_from([1.0, 1e3, 1e6, 1e60]),
    gamma=st.sampled_from([1e-3, 1 / 54, 1.0, 50.0]),
)
def test_an_outlier_changes_no_other_value(seed: int, outlier: float, gamma: float) -> None:
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((12, 4)), rng.standard_normal((9, 4))
    X[3] *= outlier
    Z[5] = X[3] + 0.1 * rng.standard_normal(4)
    with np.errstate(over="ignore"):
        assert np.abs(RBF(gamma).block(X, Z) - exact_rbf(gamma, X, Z)).max() < 1e-12
        assert np.abs(RBF(gamma).block(X, Z, X[3]) - exact_rbf(gamma, X, Z)).max() < 1e-12  # the centre is the outlier


@pytest.mark.parametrize("kernel", [RBF(0.2), Polynomial(0.1, 3, 1.0), Linear()], ids=lambda k: k.name)
def test_a_gram_matrix_is_symmetric_and_positive_with_the_kernels_diagonal(kernel: Kernel) -> None:
    X = np.random.default_rng(2).standard_normal((30, 6)) + 3
    K = gram(kernel, X)
    assert np.array_equal(K, K.T)
    assert np.array_equal(np.diagonal(K), kernel.diagonal(X))
    assert np.linalg.eigvalsh(K).min() > -1e-12 * np.linalg.eigvalsh(K).max()
    assert np.allclose(K, kernel.block(X, X), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", ["rbf", "polynomial", "linear"])
def test_values_are_those_of_scikit_learn(name: str) -> None:
    from sklearn.metrics import pairwise

    rng = np.random.default_rng(3)
    X, Z = rng.standard_normal((25, 5)), rng.standard_normal((10, 5))
    theirs = {"rbf": pairwise.rbf_kernel, "polynomial": pairwise.polynomial_kernel, "linear": pairwise.linear_kernel}
    assert np.allclose(make_kernel(name, {}, 5).block(X, Z), theirs[name](X, Z), rtol=1e-13, atol=1e-15)


def test_every_kernel_is_recreated_from_its_name_and_parameters() -> None:
    for kernel in (RBF(0.2), Polynomial(0.1, 2, 0.5), Linear()):
        assert make_kernel(kernel.name, kernel.parameters(), 99) == kernel
    assert set(KERNELS) == {"rbf", "polynomial", "linear"}


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("sigmoid", {}, "kernel must be one of rbf, polynomial, linear, it is 'sigmoid'"),
        ("rbf", {"gamma": 0.0}, "gamma must be a positive number, it is 0.0"),
        ("rbf", {"gamma": float("nan")}, "gamma must be a positive number, it is nan"),
        ("rbf", {"degree": 2}, "the rbf kernel takes no degree"),
        ("polynomial", {"degree": 0}, "degree must be a whole number of at least 1, it is 0"),
        ("polynomial", {"degree": float("nan")}, "degree must be a whole number of at least 1, it is nan"),
        ("polynomial", {"degree": float("inf")}, "degree must be a whole number of at least 1, it is inf"),
        ("polynomial", {"degree": 2.5}, "degree must be a whole number of at least 1, it is 2.5"),
        ("polynomial", {"coef0": -1.0}, "coef0 must be zero or positive, it is -1.0"),
        ("polynomial", {"coef0": float("nan")}, "coef0 must be zero or positive, it is nan"),
        ("polynomial", {"coef0": float("inf")}, "coef0 must be zero or positive, it is inf"),
    ],
)
def test_an_invalid_kernel_is_refused(name: str, parameters: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_kernel(name, parameters, 3)


@pytest.mark.parametrize(("alone", "kernel", "shift"), [(0, RBF(1.0), 0), (9, RBF(1.0), 0), (10, RBF(1.0), 1e4)])
def test_vectors_are_unrelated_if_half_of_them_are_alone(alone: int, kernel: Kernel, shift: float) -> None:
    near, far = np.random.default_rng(0).uniform(0, 1, (20 - alone, 3)), 1e3 * (1 + np.arange(alone * 3.0))
    vectors = np.concatenate([near, far.reshape(-1, 3)]) + shift
    for centre in (None, vectors[0]):
        assert are_unrelated(kernel, vectors, centre) == (alone == 10)


def test_relations_do_not_depend_on_the_length_of_vectors_and_few_vectors_are_not_judged() -> None:
    kernels: list[Kernel] = [Linear(), Polynomial(0.5, 2, 0.0)]
    for kernel, scale in itertools.product(kernels, (1e-3, 1.0, 1e3)):
        assert are_unrelated(kernel, scale * np.eye(12), None)
        assert not are_unrelated(kernel, scale * np.eye(FEWEST_VECTORS - 1), None)
        assert not are_unrelated(kernel, scale * np.tri(12, dtype=np.float64), None)
    assert are_unrelated(RBF(1.0), 10 * np.arange(3.0 * MOST_VECTORS)[:, np.newaxis], None)
