"""Rotations update a Cholesky factor, and what was solved against it, for a sum and a difference of outer products."""

from typing import NamedTuple

import numpy as np
import pytest

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.online.compiled.jit import compiled
from ridgestream.pipeline.online.compiled.rank_two import Outer, RankTwo, update_factor

N, M, TARGETS = 12, 7, 2


@compiled
def updated(factor: Floats, directions: Floats, steps: Floats, start: int, outer: Outer) -> int:
    """Call `update_factor`, which only compiled code can call."""
    return update_factor(factor, directions, steps, start, len(factor), outer)


class Case(NamedTuple):
    """A block of N rows, of which those from `start` on come after a swap."""

    factor: Floats
    directions: Floats
    steps: Floats
    outer: Outer


def make_case(start: int, size_of_o: float) -> Case:
    rng = np.random.default_rng(start)
    root = rng.normal(size=(N, N))
    g, o = rng.normal(size=(2, N - start))
    t, u = rng.normal(size=(2, M))
    up, down = rng.normal(size=(2, TARGETS))
    factor = np.ascontiguousarray(np.linalg.cholesky(np.eye(N) + root @ root.T).T)
    o *= size_of_o / np.linalg.norm(o)
    outer = Outer(g, o, RankTwo(t, u, 0.0, 1.0), up, down)
    return Case(factor, rng.normal(size=(N, M)), rng.normal(size=(N, TARGETS)), outer)


@pytest.mark.parametrize("start", [0, 5, N - 1])
def test_rows_after_a_swap_are_updated(start: int) -> None:
    case = make_case(start, 0.9)
    outer, update = case.outer, case.outer.normal
    L = case.factor[start:, start:].T.copy()
    C = L @ L.T + np.outer(outer.g, outer.g) - np.outer(outer.o, outer.o)
    W = L @ case.directions[start:] + np.outer(outer.g, update.t) - np.outer(outer.o, update.u)
    E = L @ case.steps[start:] + np.outer(outer.g, outer.up) - np.outer(outer.o, outer.down)
    before = case.factor[:start].copy(), case.directions[:start].copy(), case.steps[:start].copy()
    assert updated(case.factor, case.directions, case.steps, start, case.outer) == N
    L = case.factor[start:, start:].T
    np.testing.assert_allclose(L, np.linalg.cholesky(C), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(L @ case.directions[start:], W, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(L @ case.steps[start:], E, rtol=1e-11, atol=1e-12)
    for past, kept in zip((case.factor, case.directions, case.steps), before, strict=True):
        assert past[:start].tobytes() == kept.tobytes()


def test_it_returns_the_row_from_which_the_factor_is_not_positive_definite() -> None:
    case = make_case(0, 1.0)
    case.outer.o[:] = 0.0
    case.outer.o[8] = 1e6
    assert updated(case.factor, case.directions, case.steps, 0, case.outer) == 8
    case.outer.o[:] = np.nan
    assert updated(case.factor, case.directions, case.steps, 0, case.outer) == 0
