"""Rotations carry Cholesky's factor, and what was solved against it, over an exchange of two outer products."""

from typing import NamedTuple

import numpy as np
import pytest

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.online.compiled.jit import compiled
from ridgestream.pipeline.online.compiled.swap import Exchange, exchange_swept

N, M, TARGETS = 12, 7, 2


@compiled
def exchanged(
    factor: Floats,
    swept: Floats,
    steps: Floats,
    start: int,
    g: Floats,
    o: Floats,
    exchange: Exchange,
    up: Floats,
    down: Floats,
) -> int:
    """Give `exchange_swept`, which only compiled code can call, a door."""
    return exchange_swept(factor, swept, steps, start, len(factor), g, o, exchange, up, down)


class Case(NamedTuple):
    """A block of N rows, of which those from `start` on are to follow a swap."""

    factor: Floats
    swept: Floats
    steps: Floats
    g: Floats
    o: Floats
    exchange: Exchange
    up: Floats
    down: Floats


def make_case(start: int, size_of_o: float) -> Case:
    rng = np.random.default_rng(start)
    root = rng.normal(size=(N, N))
    g, o = rng.normal(size=(2, N - start))
    t, u = rng.normal(size=(2, M))
    up, down = rng.normal(size=(2, TARGETS))
    factor = np.ascontiguousarray(np.linalg.cholesky(np.eye(N) + root @ root.T).T)
    o *= size_of_o / np.linalg.norm(o)
    return Case(
        factor, rng.normal(size=(N, M)), rng.normal(size=(N, TARGETS)), g, o, Exchange(t, u, 0.0, 1.0), up, down
    )


@pytest.mark.parametrize("start", [0, 5, N - 1])
def test_the_rows_to_come_follow_a_swap(start: int) -> None:
    case = make_case(start, 0.9)
    L = case.factor[start:, start:].T.copy()
    C = L @ L.T + np.outer(case.g, case.g) - np.outer(case.o, case.o)
    W = L @ case.swept[start:] + np.outer(case.g, case.exchange.t) - np.outer(case.o, case.exchange.u)
    E = L @ case.steps[start:] + np.outer(case.g, case.up) - np.outer(case.o, case.down)
    before = case.factor[:start].copy(), case.swept[:start].copy(), case.steps[:start].copy()
    assert exchanged(case.factor, case.swept, case.steps, start, *case[3:]) == N
    L = case.factor[start:, start:].T
    np.testing.assert_allclose(L, np.linalg.cholesky(C), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(L @ case.swept[start:], W, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(L @ case.steps[start:], E, rtol=1e-11, atol=1e-12)
    for past, kept in zip((case.factor, case.swept, case.steps), before, strict=True):
        assert past[:start].tobytes() == kept.tobytes()


def test_it_tells_the_row_from_which_the_rest_is_not_positive_definite() -> None:
    case = make_case(0, 1.0)
    case.o[:] = 0.0
    case.o[8] = 1e6
    assert exchanged(case.factor, case.swept, case.steps, 0, *case[3:]) == 8
    case.o[:] = np.nan
    assert exchanged(case.factor, case.swept, case.steps, 0, *case[3:]) == 0
