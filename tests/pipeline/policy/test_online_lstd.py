"""Online policy evaluation against a reference that stores every transition, and against known values."""

import doctest
import pickle
from typing import Any, cast

import numpy as np
import pytest
from support.references.lstd import StoredTransitions

from ridgestream import RBF, InputError, KernelLSTD, OnlineLSSVM, OnlineLSTD
from ridgestream.jobs.reproduction.jung_polani.processes import (
    car_values,
    circle_values,
    circle_walk,
    mountain_car,
    on_circle,
    scaled,
)
from ridgestream.pipeline.policy import online_lstd

ANGLES = np.linspace(0, 2 * np.pi, 100)


@pytest.mark.parametrize(("selection", "max_basis"), [("novelty", 120), ("supervised", 60)])
def test_the_sums_are_those_of_stored_transitions_projected_at_each_change(selection: Any, max_basis: int) -> None:
    """Blocks of 256 transitions; the reference takes the dictionary after each, and its own coefficients."""
    drives, kernel = mountain_car(20, 0), RBF(2.0)
    learner = OnlineLSTD(
        kernel, discount=0.95, regularization=1e-4, novelty_threshold=1e-3, max_basis=max_basis, selection=selection
    )
    stored, entered, left = StoredTransitions.empty(kernel, 0.95, 2), 0, 0
    for start in range(0, len(drives.X), 256):
        block, before = drives.part(start, start + 256), {*learner.basis_rows.tolist()}
        learner.partial_fit(*block.arguments)
        stored.change(learner.basis_vectors)
        stored.add(block.X, block.reward[:, np.newaxis], block.X_next, block.done)
        expected = kernel.block(drives.X, learner.basis_vectors) @ stored.coefficients(1e-4)
        np.testing.assert_allclose(learner.predict(drives.X), expected, atol=1e-8 * np.abs(expected).max())
        entered += start > 0 and len({*learner.basis_rows.tolist()} - before)
        left += len(before - {*learner.basis_rows.tolist()})
    assert entered > 0
    assert (left > 0) == (selection == "supervised")
    assert (drives.X[learner.basis_rows] == learner.basis_vectors).all()


def test_novel_rows_are_those_of_the_online_ls_svm() -> None:
    walk = circle_walk(600, 0)
    learner = OnlineLSTD(RBF(1.0), max_basis=8).partial_fit(*walk.arguments)
    other = OnlineLSSVM(RBF(1.0), max_basis=8, selection="novelty", centre=np.zeros(2)).partial_fit(walk.X, walk.reward)
    assert learner.basis_rows.tolist() == other.state().basis_rows.tolist()


def test_a_full_dictionary_adds_what_batch_sums_add() -> None:
    """Once no row can change the dictionary, the sums grow by those of a learner that has it from the start."""
    walk = circle_walk(2000, 1)
    learner = OnlineLSTD(RBF(1.0), max_basis=5).partial_fit(*walk.part(0, 1024).arguments)
    batch = KernelLSTD(RBF(1.0), dictionary=learner.basis_vectors).partial_fit(*walk.part(1024, 2000).arguments)
    before = pickle.loads(pickle.dumps(learner))  # noqa: S301
    learner.partial_fit(*walk.part(1024, 2000).arguments)
    grown = learner._started().sums.products - before._started().sums.products
    np.testing.assert_allclose(grown, batch._fitted().sums.products, atol=1e-10)


@pytest.mark.parametrize("selection", ["novelty", "supervised"])
def test_values_come_close_to_the_known_ones(selection: Any) -> None:
    learner = OnlineLSTD(RBF(1.0), discount=0.8, selection=selection).partial_fit(*circle_walk(3000, 2).arguments)
    known = circle_values(ANGLES, 0.8)
    error = learner.predict(on_circle(ANGLES))[:, 0] - known
    assert np.sqrt(np.mean(error**2)) < 0.1 * np.std(known)


def test_the_values_of_mountain_car_are_those_of_driving_there() -> None:
    """RMSE below 2.5 steps of a range of 48, where the values jump between one swing and another; half within 1."""
    learner = OnlineLSTD(RBF(2.0), discount=0.98, regularization=1e-6, novelty_threshold=1e-3, max_basis=120)
    learner.partial_fit(*mountain_car(200, 0).arguments)
    rng = np.random.default_rng(5)
    states = np.column_stack([rng.uniform(-1.2, 0.49, 500), rng.uniform(-0.07, 0.07, 500)])
    error = learner.predict(scaled(states))[:, 0] - car_values(states, 0.98)
    assert np.sqrt(np.mean(error**2)) < 2.5
    assert np.median(np.abs(error)) < 1.0


@pytest.mark.parametrize("selection", ["novelty", "supervised"])
def test_cuts_at_multiples_of_256_and_a_copy_give_the_same_bits(selection: Any) -> None:
    drives = mountain_car(20, 1).part(0, 900)
    one, other = (OnlineLSTD(RBF(2.0), max_basis=30, selection=selection) for _ in range(2))
    one.partial_fit(*drives.arguments)
    other.partial_fit(*drives.part(0, 512).arguments)
    other = pickle.loads(pickle.dumps(other))  # noqa: S301
    other.partial_fit(*drives.part(512, 900).arguments)
    assert other.coefficients().tobytes() == one.coefficients().tobytes()
    assert other.rows_seen == one.rows_seen == 900


def test_what_cannot_be_learned_is_refused() -> None:
    walk, learner = circle_walk(20, 3), OnlineLSTD(RBF(1.0))
    with pytest.raises(InputError, match="no transition yet"):
        learner.coefficients()
    with pytest.raises(InputError, match=r"for a given one, use KernelLSTD\(dictionary"):
        OnlineLSTD(RBF(1.0), selection=cast("Any", "fixed"))
    learner.partial_fit(*walk.arguments)
    with pytest.raises(InputError, match="X must have 2 features, it has 1"):
        learner.predict(walk.X[:, :1])


def test_the_example_in_the_docstring_runs() -> None:
    result = doctest.testmod(online_lstd)
    assert result.attempted > 5
    assert result.failed == 0
