"""Batch policy evaluation against dense LSTD and against processes whose values are known."""

import doctest
import pickle
from typing import Any

import numpy as np
import pytest
from support.references.lstd import dense_lstd

from ridgestream import RBF, InputError, KernelLSTD, Linear, OnlineLSTD
from ridgestream.jobs.reproduction.jung_polani.processes import (
    car_values,
    circle_values,
    circle_walk,
    mountain_car,
    on_circle,
    scaled,
)
from ridgestream.pipeline.policy import kernel_lstd
from ridgestream.pipeline.policy.value_function import LSTDSettings

ANGLES = np.linspace(0, 2 * np.pi, 100)


def test_a_chain_has_the_values_of_its_bellman_equation() -> None:
    """Every transition of a random walk with an end on each side, by its probability: rewards 0, and 1 at the right."""
    n = 20
    states = np.eye(n)
    X, X_next = np.vstack([states, states]), np.vstack([np.roll(states, 1, 0), np.roll(states, -1, 0)])
    done, reward = np.zeros(2 * n), np.zeros(2 * n)
    done[[0, -1]], reward[-1] = 1, 1.0
    learner = KernelLSTD(Linear(), discount=0.9, regularization=1e-14, dictionary=states)
    learner.fit(X, reward, X_next, done, sample_weight=np.full(2 * n, 0.5))
    walk = 0.45 * (np.eye(n, k=1) + np.eye(n, k=-1))
    np.testing.assert_allclose(
        learner.predict(states)[:, 0], np.linalg.solve(np.eye(n) - walk, reward[n:] / 2), atol=1e-8
    )


@pytest.mark.parametrize("kind", [KernelLSTD, OnlineLSTD])
def test_without_discount_an_episode_must_end(kind: type[KernelLSTD] | type[OnlineLSTD]) -> None:
    walk, learner = circle_walk(60, 1), kind(RBF(1.0), discount=1.0)
    learner.partial_fit(walk.X, walk.reward, walk.X_next, np.zeros(60))
    for ask in (learner.coefficients, lambda: learner.predict(walk.X)):
        with pytest.raises(InputError, match="with discount 1 episodes must end: no transition has done"):
            ask()
    learner.partial_fit(walk.X, walk.reward, walk.X_next, np.arange(60) == 0, sample_weight=np.arange(60.0))
    with pytest.raises(InputError, match="episodes must end"):
        learner.coefficients()  # the only end has weight zero
    learner.partial_fit(walk.X, walk.reward, walk.X_next, np.arange(60) % 2)
    assert learner.predict(walk.X).shape == (60, 1)


def test_what_follows_the_end_of_an_episode_is_ignored() -> None:
    walk, done = circle_walk(60, 1), np.arange(60) % 7 == 0
    one = KernelLSTD(RBF(1.0), discount=0.9).fit(walk.X, walk.reward, walk.X_next, done)
    unknown = np.where(done[:, np.newaxis], np.nan, walk.X_next)
    other = KernelLSTD(RBF(1.0), discount=0.9).fit(walk.X, walk.reward, unknown, done)
    assert np.array_equal(one.coefficients(), other.coefficients())
    with pytest.raises(InputError, match="X_next has the value nan at row 0"):
        KernelLSTD(RBF(1.0)).fit(walk.X, walk.reward, unknown)


def test_a_learner_can_be_pickled_and_continues() -> None:
    walk = circle_walk(60, 1)
    learner = KernelLSTD(RBF(1.0), options={"max_basis": 9}).fit(walk.X, walk.reward, walk.X_next)
    copy = pickle.loads(pickle.dumps(learner))  # noqa: S301 (our own)
    for each in (learner, copy):
        each.partial_fit(walk.X, walk.reward, walk.X_next)
    assert np.array_equal(learner.predict(walk.X), copy.predict(walk.X))


def test_an_option_that_a_method_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"method efvs has no option max_bases; it has .*max_basis"):
        KernelLSTD(RBF(1.0), options={"max_bases": 20})


@pytest.mark.parametrize("weighted", [False, True])
def test_coefficients_are_those_of_dense_lstd(weighted: bool) -> None:
    walk, kernel = circle_walk(300, 1), RBF(1.0)
    done = np.arange(300) % 7 == 0
    weights = np.arange(300) % 3.0 if weighted else np.ones(300)
    vectors = on_circle(np.arange(8.0))
    learner = KernelLSTD(kernel, discount=0.95, regularization=1e-4, dictionary=vectors)
    learner.partial_fit(walk.X, walk.reward, walk.X_next, done, weights if weighted else None)
    root = np.sqrt(weights)[:, np.newaxis]
    now, then = (root * kernel.block(X, vectors) for X in (walk.X, walk.X_next))
    ahead = 0.95 * (1 - done[:, np.newaxis]) * then
    expected = dense_lstd(
        kernel.block(vectors, vectors), now, ahead, root * walk.reward[:, np.newaxis], 1e-4 * weights.sum()
    )
    np.testing.assert_allclose(learner.coefficients(), expected, rtol=1e-8)


@pytest.mark.parametrize("method", ["efvs", "ols", "subset-of-regressors", "ls-svm"])
def test_any_method_selects_a_dictionary_that_gives_the_known_values(method: str) -> None:
    options: dict[str, dict[str, Any]] = {
        "efvs": {"max_basis": 12, "sample": 59},
        "ols": {"max_basis": 12},
        "subset-of-regressors": {"start_basis": 12},
    }
    walk = circle_walk(400, 2)
    learner = KernelLSTD(RBF(1.0), discount=0.8, method=method, options=options.get(method)).fit(*walk.arguments)
    assert learner.n_basis == 12 if method in options else learner.n_basis > 12
    assert (walk.X[learner.basis_rows] == learner.basis_vectors).all()
    error = learner.predict(on_circle(ANGLES))[:, 0] - circle_values(ANGLES, 0.8)
    assert np.sqrt(np.mean(error**2)) < 0.2 * np.std(circle_values(ANGLES, 0.8))


@pytest.mark.thorough
def test_the_error_falls_with_the_number_of_transitions() -> None:
    known = circle_values(ANGLES, 0.9)
    options = {"max_basis": 15, "sample": 59}
    learners = [
        KernelLSTD(RBF(1.0), discount=0.9, options=options).fit(*circle_walk(n, 0).arguments) for n in (1000, 100_000)
    ]
    errors = [np.sqrt(np.mean((learner.predict(on_circle(ANGLES))[:, 0] - known) ** 2)) for learner in learners]
    assert errors[1] < 0.03 < 2 * errors[1] + 0.03 < errors[0] + 0.03


def test_the_values_of_mountain_car_are_those_of_driving_there() -> None:
    """RMSE below 2.5 steps of a range of 48, where the values jump between one swing and another; half within 1."""
    drives = mountain_car(200, 0)
    random = {"method": "subset-of-regressors", "options": {"start_basis": 150}}
    learner = KernelLSTD(RBF(2.0), discount=0.98, regularization=1e-6, **random).fit(*drives.arguments)  # type: ignore[arg-type]
    rng = np.random.default_rng(5)
    states = np.column_stack([rng.uniform(-1.2, 0.49, 500), rng.uniform(-0.07, 0.07, 500)])
    error = learner.predict(scaled(states))[:, 0] - car_values(states, 0.98)
    assert np.sqrt(np.mean(error**2)) < 2.5
    assert np.median(np.abs(error)) < 1.0


def test_parts_add_up_and_learners_merge() -> None:
    walk = circle_walk(100, 3)
    first, second, whole = (KernelLSTD(RBF(1.0), dictionary=on_circle(np.arange(5.0))) for _ in range(3))
    whole.partial_fit(*walk.part(0, 60).arguments).partial_fit(*walk.part(60, 100).arguments)
    first.partial_fit(*walk.part(0, 60).arguments).merge(second.partial_fit(*walk.part(60, 100).arguments))
    assert first.coefficients().tobytes() == whole.coefficients().tobytes()
    assert first.rows_seen == 100
    assert not first.coefficients().flags.writeable


def test_fit_starts_again() -> None:
    walk = circle_walk(100, 3)
    learner = KernelLSTD(RBF(1.0), options={"max_basis": 5})
    again = learner.fit(*walk.arguments).coefficients()
    assert learner.fit(*walk.arguments).coefficients().tobytes() == again.tobytes()


def test_a_refused_fit_forgets_nothing() -> None:
    walk = circle_walk(60, 1)
    learner = KernelLSTD(RBF(1.0), discount=0.9).fit(walk.X, walk.reward, walk.X_next)
    before = learner.predict(walk.X)
    with pytest.raises(InputError, match="reward"):
        learner.fit(walk.X, np.full(60, np.nan), walk.X_next)
    np.testing.assert_array_equal(learner.predict(walk.X), before)


def test_the_row_after_an_end_and_a_row_of_weight_zero_mean_nothing() -> None:
    walk = circle_walk(60, 4)
    done, weights = np.arange(60) % 5 == 0, (np.arange(60) % 4 > 0).astype(float)
    X_next, reward = walk.X_next.copy(), walk.reward.copy()
    X_next[done], reward[weights == 0] = 7.0, 9.0
    one, other = (KernelLSTD(RBF(1.0), dictionary=on_circle(np.arange(5.0))) for _ in range(2))
    one.fit(walk.X, walk.reward, walk.X_next, done, weights)
    assert one.coefficients().tobytes() == other.fit(walk.X, reward, X_next, done, weights).coefficients().tobytes()


def test_several_rewards_have_a_value_function_each() -> None:
    walk, vectors = circle_walk(60, 5), on_circle(np.arange(5.0))
    rewards = np.column_stack([walk.reward, -2 * walk.reward])
    both = KernelLSTD(RBF(1.0), dictionary=vectors).fit(walk.X, rewards, walk.X_next).predict(walk.X)
    one = KernelLSTD(RBF(1.0), dictionary=vectors).fit(walk.X, walk.reward, walk.X_next).predict(walk.X)
    np.testing.assert_allclose(both, np.hstack([one, -2 * one]), rtol=1e-9)


def test_what_cannot_be_learned_is_refused() -> None:
    walk = circle_walk(20, 6)
    learner = KernelLSTD(RBF(1.0), dictionary=on_circle(np.arange(3.0)))
    with pytest.raises(InputError, match="no transition yet"):
        learner.predict(walk.X)
    with pytest.raises(InputError, match="X_next must have one row for each of the 20 rows of X, it has 19"):
        learner.fit(walk.X, walk.reward, walk.X_next[1:])
    with pytest.raises(InputError, match=r"done of row 3 is 0\.5; it must be 1 where an episode ends"):
        learner.fit(walk.X, walk.reward, walk.X_next, np.where(np.arange(20) == 3, 0.5, 0.0))
    learner.fit(*walk.arguments)
    with pytest.raises(InputError, match="reward must have 1 targets, it has 2"):
        learner.partial_fit(walk.X, np.ones((20, 2)), walk.X_next)
    with pytest.raises(InputError, match="X must have 2 features, it has 1"):
        learner.partial_fit(walk.X[:, :1], walk.reward, walk.X_next)


def test_learners_of_other_settings_or_dictionaries_are_not_merged() -> None:
    walk, vectors = circle_walk(20, 7), on_circle(np.arange(3.0))
    learner = KernelLSTD(RBF(1.0), dictionary=vectors).fit(*walk.arguments)
    with pytest.raises(InputError, match="same kernel, discount and regularization"):
        learner.merge(KernelLSTD(RBF(1.0), discount=0.5, dictionary=vectors).fit(*walk.arguments))
    with pytest.raises(InputError, match="same dictionary"):
        learner.merge(KernelLSTD(RBF(1.0), dictionary=vectors[::-1]).fit(*walk.arguments))


def test_settings_have_bounds() -> None:
    with pytest.raises(InputError, match=r"discount must be from 0 to 1, it is 1\.5"):
        LSTDSettings(discount=1.5)
    with pytest.raises(InputError, match="method must be one of shard-merge-select"):
        KernelLSTD(RBF(1.0), method="lasso")


def test_the_example_in_the_docstring_runs() -> None:
    result = doctest.testmod(kernel_lstd)
    assert result.attempted > 5
    assert result.failed == 0
