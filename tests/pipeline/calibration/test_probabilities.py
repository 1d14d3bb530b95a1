"""Probabilities from scores: calibrated, ascending, never 0 or 1, and against scikit-learn."""

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.calibration.probabilities import Probabilities, _merged
from ridgestream.pipeline.calibration.reliability import Coverage, Reliability


def _draw(seed: int, rows: int, n_classes: int = 2) -> tuple[Floats, Floats, Floats]:
    """Scores whose true probabilities are known: a distorted logistic function of them."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(rows, 1 if n_classes == 2 else n_classes))
    true = 1 / (1 + np.exp(-2 * scores - 0.5 * scores**3))
    truth = np.where(rng.uniform(size=scores.shape) < true, 1.0, -1.0)
    return scores, truth, true


def test_probabilities_are_those_of_the_scores() -> None:
    scores, truth, _ = _draw(0, 8000)
    fitted = Probabilities.fit(scores, truth, np.ones(8000))
    fresh, is_class, true = _draw(1, 20_000)
    found = fitted.of(fresh)
    assert found.shape == (20_000, 2)
    assert np.abs(found[:, 1] - true[:, 0]).mean() < 0.02
    np.testing.assert_allclose(found.sum(axis=1), 1)
    figures = Reliability.of(found, (is_class[:, 0] > 0).astype(int), None).as_dict()
    assert figures["calibration_error"] < 0.02
    isotonic = IsotonicRegression(out_of_bounds="clip").fit(scores[:, 0], truth[:, 0] > 0).predict(fresh[:, 0])
    assert figures["brier"] < brier_score_loss(is_class[:, 0] > 0, isotonic) + 1e-3


def test_probabilities_ascend_with_the_score_and_are_never_certain() -> None:
    scores = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]])
    fitted = Probabilities.fit(scores, np.where(scores > 0, 1.0, -1.0), np.ones(5))
    found = fitted.of(np.linspace(-9, 9, 50)[:, np.newaxis])[:, 1]
    assert (np.diff(found) >= 0).all()
    assert 0 < found[0] < 0.5 < found[-1] < 1


def test_a_class_without_rows_has_a_small_probability() -> None:
    scores = np.random.default_rng(0).normal(size=(300, 3))
    truth = np.where(np.arange(3) == np.arange(300)[:, np.newaxis] % 2, 1.0, -1.0)
    found = Probabilities.fit(scores, truth, np.ones(300)).of(scores)
    assert 0 < found[:, 2].max() < 0.2
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_equal_scores_give_the_share_of_the_class() -> None:
    truth = np.where(np.arange(1000) < 300, 1.0, -1.0)[:, np.newaxis]
    assert Probabilities.fit(np.zeros((1000, 1)), truth, np.ones(1000)).of(np.zeros((1, 1)))[0, 1] == pytest.approx(
        0.3, abs=2e-3
    )


def test_a_weight_counts_as_so_many_rows() -> None:
    scores, truth, _ = _draw(3, 500)
    weights = np.random.default_rng(4).integers(0, 3, 500).astype(float)
    order = np.repeat(np.arange(500), weights.astype(int))
    found = Probabilities.fit(scores, truth, weights).of(scores)
    repeated = Probabilities.fit(scores[order], truth[order], np.ones(len(order))).of(scores)
    assert np.abs(found - repeated).max() < 0.08


@pytest.mark.parametrize("n_classes", [2, 4])
def test_scores_of_probabilities_are_scikit_learns(n_classes: int) -> None:
    rng = np.random.default_rng(5)
    probabilities = rng.dirichlet(np.ones(n_classes), 400)
    truth, weights = rng.integers(0, n_classes, 400), rng.uniform(0.1, 2, 400)
    parts = [Reliability.of(probabilities[p], truth[p], weights[p]) for p in (slice(0, 150), slice(150, 400))]
    figures = parts[0].merge(parts[1]).as_dict()
    assert figures["log_loss"] == pytest.approx(log_loss(truth, probabilities, sample_weight=weights))
    one_hot = np.eye(n_classes)[truth]
    brier = weights @ ((probabilities - one_hot) ** 2).sum(axis=1) / weights.sum() / (2 if n_classes == 2 else 1)
    assert figures["brier"] == pytest.approx(brier)
    if n_classes == 2:
        assert figures["brier"] == pytest.approx(brier_score_loss(truth, probabilities[:, 1], sample_weight=weights))
    told = probabilities[:, 1] if n_classes == 2 else probabilities.max(axis=1)
    hit = (truth == 1) if n_classes == 2 else truth == probabilities.argmax(axis=1)
    bins = (told * 15).astype(int)
    gaps = [abs(weights[bins == b] @ (told - hit)[bins == b]) for b in range(15)]
    assert figures["calibration_error"] == pytest.approx(sum(gaps) / weights.sum())


def test_coverage_and_width_of_several_targets() -> None:
    errors, radius = np.array([[0.5, -3.0], [-1.0, 1.0]]), np.array([[1.0, 2.0], [0.5, 1.0]])
    whole = Coverage.of(0.9, errors[:1], radius[:1], np.array([3.0])).merge(
        Coverage.of(0.9, errors[1:], radius[1:], None)
    )
    assert whole.as_dict(("a", "b")) == {
        "level": 0.9,
        "coverage": (0.75 + 0.25) / 2,
        "of": {"a": {"coverage": 0.75, "mean_width": 1.75}, "b": {"coverage": 0.25, "mean_width": 3.5}},
    }


def test_each_bin_is_isotonic_regression_with_one_row_more() -> None:
    rng = np.random.default_rng(6)
    total = rng.uniform(0.5, 3, 12)
    hits = total * rng.uniform(size=12)
    found = _merged(total, hits, 0.7)
    for b in range(12):
        both = []
        for label in (0, 1):
            more = np.where(np.arange(12) == b, 0.7, 0.0)
            shares, weights = (hits + label * more) / (total + more), total + more
            both.append(IsotonicRegression().fit_transform(np.arange(12), shares, sample_weight=weights)[b])
        assert found[b] == pytest.approx(both[1] / (1 - both[0] + both[1]))
