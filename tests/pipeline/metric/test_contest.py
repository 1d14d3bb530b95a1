"""Candidates that enter one by one: the same best one as of all together, with the sums of two at most."""

import weakref
from dataclasses import replace
from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.metric.candidate import Candidate, JudgedErrors, Verdict
from ridgestream.pipeline.metric.contest import Contest
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import BlockStatistics, PackedStatistics

ERROR = st.sampled_from([0.5, 0.9, 0.99, 1.0, 1.1, 2.0])
ERRORS = st.builds(lambda later, pooled: JudgedErrors(later, pooled, pooled, 10_000), ERROR, ERROR)


@cache
def any_candidate() -> Candidate:
    basis = Basis(RBF(gamma=1.0), np.zeros((1, 1)), np.zeros(1))
    sums = BlockStatistics.empty(1, 1).packed()
    return Candidate(Metric.standardized(1), basis, np.zeros((1, 1)), (sums,), (), 0.1, JudgedErrors(1.0, 1.0, 1.0, 1))


@given(st.lists(st.none() | ERRORS, max_size=12))
def test_the_best_is_that_of_all_and_the_others_are_let_go(judged: list[JudgedErrors | None]) -> None:
    contest = Contest()
    references: list[weakref.ref[PackedStatistics]] = []
    for number, errors in enumerate(judged):
        sums = replace(any_candidate().leading[0])
        references.append(weakref.ref(sums))
        contest.enter(float(number), replace(any_candidate(), leading=(sums,), errors=errors) if errors else None)
        del sums
    assert contest.entered == [*range(len(judged))]
    known = [errors for errors in judged if errors is not None]
    best = contest.best
    if best is None:
        assert not known
    else:
        assert best.errors is known[Verdict.of(known).index]
    assert sum(reference() is not None for reference in references) <= 2


@given(st.lists(ERRORS, max_size=6))
def test_candidates_are_alike_if_none_is_better_by_two_per_cent(judged: list[JudgedErrors]) -> None:
    contest = Contest()
    for number, errors in enumerate(judged):
        contest.enter(float(number), replace(any_candidate(), errors=errors))
    assert contest.is_flat == (bool(judged) and max(e.pooled for e in judged) / min(e.pooled for e in judged) <= 1.02)
