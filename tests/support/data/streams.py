"""Difficult streams for an online learner, drawn from a seed so that one line reproduces a failure."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Array = npt.NDArray[np.float64]
Rng = np.random.Generator


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows in order, and the settings of the learner that reads them."""

    X: Array = field(repr=False)
    """Rows (n, d)."""
    y: Array = field(repr=False)
    """Targets (n, c)."""
    weights: Array = field(repr=False)
    """Weights (n,), some 0."""
    max_basis: int
    """Largest number of basis vectors."""
    gamma: float
    """γ of the RBF kernel."""
    regularization: float
    """lambda, per row."""
    novelty_threshold: float
    """TOL1."""
    usefulness_threshold: float
    """TOL2."""
    recipe: str = ""
    """The call of `make_stream` that reproduces X, y and weights."""


def cloud(rng: Rng, n: int, d: int, centres: int) -> Array:  # noqa: ARG001
    return rng.standard_normal((n, d))


def exact_duplicates(rng: Rng, n: int, d: int, centres: int) -> Array:
    return rng.standard_normal((centres, d))[rng.integers(centres, size=n)]


def near_duplicates(rng: Rng, n: int, d: int, centres: int) -> Array:
    shift = rng.choice([0.0, 1e-12, 1e-7], size=(n, 1)) * rng.standard_normal((n, d))
    return exact_duplicates(rng, n, d, centres) + shift


def constant_features(rng: Rng, n: int, d: int, centres: int) -> Array:
    return np.where(rng.random(d) < 0.5, 3.0, cloud(rng, n, d, centres))


def cycling_clusters(rng: Rng, n: int, d: int, centres: int) -> Array:
    """Cycle through one more centre than the dictionary holds, so that the vector just removed is needed next."""
    return 3 * rng.standard_normal((centres, d))[np.arange(n) % centres] + 0.01 * rng.standard_normal((n, d))


def outliers(rng: Rng, n: int, d: int, centres: int) -> Array:
    return cloud(rng, n, d, centres) * np.where(rng.random((n, 1)) < 0.05, 1e6, 1.0)


def sorted_rows(rng: Rng, n: int, d: int, centres: int) -> Array:
    X = cloud(rng, n, d, centres)
    return X[np.argsort(X[:, 0])]


def all_equal(rng: Rng, n: int, d: int, centres: int) -> Array:  # noqa: ARG001
    return np.tile(rng.standard_normal(d), (n, 1))


INPUTS: dict[str, Callable[[Rng, int, int, int], Array]] = {
    f.__name__: f
    for f in (
        cloud,
        exact_duplicates,
        near_duplicates,
        constant_features,
        cycling_clusters,
        outliers,
        sorted_rows,
        all_equal,
    )
}


def smooth(rng: Rng, X: Array, c: int) -> Array:
    return np.sin(X @ rng.standard_normal((X.shape[1], c))) + 0.1 * rng.standard_normal((len(X), c))


def noise(rng: Rng, X: Array, c: int) -> Array:
    return rng.standard_normal((len(X), c))


def two_classes(rng: Rng, X: Array, c: int) -> Array:
    return np.where(smooth(rng, X, c) > 0, 1.0, -1.0)


def spikes(rng: Rng, X: Array, c: int) -> Array:
    return smooth(rng, X, c) * np.where(rng.random((len(X), 1)) < 0.05, 1e6, 1.0)


TARGETS: dict[str, Callable[[Rng, Array, int], Array]] = {f.__name__: f for f in (smooth, noise, two_classes, spikes)}


def ones(rng: Rng, n: int) -> Array:  # noqa: ARG001
    return np.ones(n)


def mixed(rng: Rng, n: int) -> Array:
    """Weights whose sums are exact in any order, so that all learners reach a power of two at the same row."""
    return rng.choice([0.0, 0.3125, 1.0, 2.0], size=n)


WEIGHTS: dict[str, Callable[[Rng, int], Array]] = {f.__name__: f for f in (ones, mixed)}


def make_stream(
    inputs: str, targets: str, weights: str, seed: int, *, n: int, d: int, c: int, centres: int
) -> tuple[Array, Array, Array]:
    """Return X (n, d), y (n, c) and weights (n,) of the named kinds."""
    rng = np.random.default_rng(seed)
    X = INPUTS[inputs](rng, n, d, centres)
    return X, TARGETS[targets](rng, X, c), WEIGHTS[weights](rng, n)


@st.composite
def streams(draw: st.DrawFn, max_rows: int = 200, inputs: str | None = None) -> Stream:
    """Draw streams of 1 to `max_rows` rows, 1 to 6 features, 1 to 3 targets, and a max_basis of 1 to 25.

    `inputs` names the kind of rows; without it, any kind is drawn.
    """
    max_basis, d, c = draw(st.integers(1, 25)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    n = draw(st.integers(1, max_rows) | st.integers(1 + max_rows // 2, max_rows))
    inputs = inputs or draw(st.sampled_from(sorted(INPUTS)))
    targets, weights = (draw(st.sampled_from(sorted(kinds))) for kinds in (TARGETS, WEIGHTS))
    seed = draw(st.integers(0, 2**32 - 1))
    return Stream(
        *make_stream(inputs, targets, weights, seed, n=n, d=d, c=c, centres=max_basis + 1),
        max_basis=max_basis,
        gamma=draw(st.sampled_from([1.0, 0.1, 10.0])) / d,
        regularization=draw(st.sampled_from([1e-3, 1e-5, 1e-7, 1e-1])),
        novelty_threshold=draw(st.sampled_from([1e-2, 0.0, 1e-4, 0.3])),
        usefulness_threshold=draw(st.sampled_from([1e-4, 0.0, 1e-2])),
        recipe=f"make_stream{(inputs, targets, weights, seed)} with {n=}, {d=}, {c=}, centres={max_basis + 1}",
    )
