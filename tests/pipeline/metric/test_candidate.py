"""A judged model against dense fits that leave its judges out, and comparisons against dense losses."""

import numpy as np
import pytest

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import NumericalBreakdown
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.metric import candidate as candidates
from ridgestream.pipeline.metric.candidate import Candidate, JudgedErrors, Verdict
from ridgestream.pipeline.metric.comparison import Comparison, compare_models
from ridgestream.pipeline.metric.judged_sums import GroupSums, JudgedSumming, sum_judged
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.split import JUDGES, LATER, LEARNED, Split
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.row_block import RowBlock

N = 300
SPLIT = Split(N, stride=1, seed=3)


def rows(*, weighted: bool) -> RowBlock:
    rng = np.random.default_rng(0)
    u = rng.normal(size=(N, 3))
    targets = np.column_stack([np.sin(2 * u[:, 0]), u[:, 1] * u[:, 2]]) + 0.1 * rng.normal(size=(N, 2))
    return RowBlock(u, targets, rng.integers(0, 3, N).astype(float) if weighted else None)


def judged(basis: Basis, metric: Metric, block: RowBlock) -> GroupSums:
    summing = JudgedSumming(metric, (basis,), SPLIT, 2)
    (sums,) = summing.by_basis(sum_judged(summing, [block]))
    return sums


def candidate(
    block: RowBlock, metric: Metric, gamma: float = 0.5, lambdas: tuple[float, ...] = (1e-6, 1e-3)
) -> Candidate:
    basis = Basis(RBF(gamma=gamma), metric.apply(block.features[:20]), np.zeros(3))
    sums = judged(basis, metric, block)
    found = Candidate.best(metric, basis, sums, lambdas)
    assert found is not None
    return found


def dense_losses(block: RowBlock, each: Candidate, regularization: float) -> tuple[Floats, Integers]:
    """Return each judged row's squared error by the dense fit without its group, and its group."""
    groups = SPLIT.groups(0, N)
    weights = np.ones(N) if block.weights is None else block.weights
    k, losses = each.basis.values(each.metric.apply(block.features)), np.full(N, np.nan)
    for group in JUDGES:
        w = np.where(groups == group, 0.0, weights)
        system = (k.T * w) @ k + regularization * w.sum() * each.basis.penalty()
        beta = np.linalg.solve(system, (k.T * w) @ block.targets)
        held = groups == group
        losses[held] = np.sum((block.targets[held] - k[held] @ beta) ** 2, axis=1)
    return losses, groups


@pytest.mark.parametrize("weighted", [False, True])
def test_errors_are_those_of_dense_fits_without_the_judge(weighted: bool) -> None:
    block = rows(weighted=weighted)
    found = candidate(block, Metric(np.array([1.0, 0.5, 2.0])))
    weights = np.ones(N) if block.weights is None else block.weights
    pooled = {}
    for regularization in (1e-6, 1e-3):
        losses, groups = dense_losses(block, found, regularization)
        judged = np.isin(groups, JUDGES)
        pooled[regularization] = np.average(losses[judged], weights=weights[judged]) / 2
    best = min(pooled, key=lambda each: pooled[each])
    assert found.regularization == best
    assert found.errors.pooled == pytest.approx(pooled[best], rel=1e-8)
    losses, groups = dense_losses(block, found, best)
    later = groups == LATER
    assert found.errors.later == pytest.approx(np.average(losses[later], weights=weights[later]) / 2, rel=1e-8)


def test_without_rows_to_learn_a_metric_from_a_model_is_judged_but_has_no_gradients() -> None:
    block = rows(weighted=False)
    weights = np.where(SPLIT.groups(0, N) == LEARNED, 0.0, 1.0)
    found = candidate(RowBlock(block.features, block.targets, weights), Metric.standardized(3))
    assert np.isfinite(found.errors.pooled)
    with pytest.raises(NumericalBreakdown, match="rows that the metric is learned from"):
        found.expansion()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_comparison_has_the_mean_and_the_standard_error_of_paired_differences(weighted: bool) -> None:
    block = rows(weighted=weighted)
    before, after = (candidate(block, Metric(np.array(root)), lambdas=(1e-4,)) for root in ([1.0, 1, 1], [1.5, 1, 0.5]))
    comparison = Comparison(before.judged_model(), after.judged_model(), SPLIT)
    whole = compare_models(comparison, [block])
    parts = [
        RowBlock(block.features[p], block.targets[p], None if block.weights is None else block.weights[p], p.start)
        for p in (slice(0, 130), slice(130, N))
    ]
    differences = compare_models(comparison, parts[:1]).merge(compare_models(comparison, parts[1:]))
    np.testing.assert_allclose(differences.sums, whole.sums, rtol=1e-9)
    delta = dense_losses(block, after, 1e-4)[0] - dense_losses(block, before, 1e-4)[0]
    weights = np.ones(N) if block.weights is None else block.weights
    judged = ~np.isnan(delta)
    mean = np.average(delta[judged], weights=weights[judged])
    error = np.sqrt(np.sum((weights * (delta - mean))[judged] ** 2)) / weights[judged].sum()
    assert whole.pooled == pytest.approx((mean, error), rel=1e-6)


def test_without_a_row_that_judges_there_is_no_candidate() -> None:
    block = rows(weighted=False)
    nothing = RowBlock(block.features, block.targets, np.zeros(N))
    basis = Basis(RBF(gamma=0.5), block.features[:5], np.zeros(3))
    metric = Metric.standardized(3)
    sums = judged(basis, metric, nothing)
    assert Candidate.best(metric, basis, sums, (1e-3,)) is None


@pytest.mark.parametrize("weighted", [False, True])
def test_smaller_dictionaries_are_judged_as_if_they_were_the_only_ones(
    weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "SIZES", (7, 12, 15))
    block, metric = rows(weighted=weighted), Metric.standardized(3)
    whole = candidate(block, metric)
    small = Basis(whole.basis.kernel, whole.basis.vectors[:7], np.zeros(3))
    sums = judged(small, metric, block)
    alone = Candidate.best(metric, small, sums, (whole.regularization,))
    assert alone is not None
    errors = dict(whole.errors_of_sizes())
    assert list(errors) == [7, 12, 15]
    for name in ("later", "random", "pooled"):
        assert getattr(errors[7], name) == pytest.approx(getattr(alone.errors, name), rel=1e-9)
    monkeypatch.setattr(candidates, "SIZES", (7, 1_000))
    sizes, all_errors = zip(*candidate(block, metric).errors_of_sizes(), strict=True)
    assert sizes == (7, 20)
    assert all_errors[1].pooled == pytest.approx(whole.errors.pooled, rel=1e-9)


def errors_of(*later_and_pooled: tuple[float, float], rows: int = 10_000) -> list[JudgedErrors]:
    return [JudgedErrors(later, pooled, pooled, rows) for later, pooled in later_and_pooled]


def test_the_later_rows_decide_where_they_disagree_by_more_than_noise() -> None:
    alike, moving = errors_of((1.02, 0.5), (1.0, 0.6)), errors_of((1.2, 0.5), (1.0, 0.6))
    few = errors_of((1.2, 0.5), (1.0, 0.6), rows=20)
    verdicts = [Verdict.of(errors) for errors in (alike, moving, few)]
    assert [(each.index, each.by_later) for each in verdicts] == [(0, False), (1, True), (0, False)]


def test_of_equal_models_the_last_is_best() -> None:
    assert Verdict.of(errors_of((1.0, 0.5), (1.0, 0.5))).index == 1
