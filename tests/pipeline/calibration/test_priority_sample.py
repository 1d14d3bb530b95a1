"""The sample of rows that calibrates: the same for any division, unbiased, and of a fixed size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgestream.pipeline.calibration import priority_sample
from ridgestream.pipeline.calibration.kept_predictions import KeptPredictions
from ridgestream.pipeline.calibration.priority_sample import PrioritySample, sample_size


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=8))
def test_the_sample_depends_on_the_number_of_rows_alone(blocks: list[int]) -> None:
    sample, first = PrioritySample(), 0
    for count in blocks:
        sample, _ = sample.after(first, count, 16)
        first += count
    whole = PrioritySample.of(first, 16)
    assert sample.rows.tolist() == whole.rows.tolist()
    assert sample.threshold == whole.threshold
    assert len(sample.rows) == min(first, 16)


def test_all_rows_are_kept_while_they_fit_and_weigh_more_the_later_they_are() -> None:
    weights, ages = PrioritySample.of(100, 2048).weights, np.arange(99, -1, -1)
    np.testing.assert_allclose(weights, ((100 - ages) / 100) ** 3 * np.exp(-ages / priority_sample.MEMORY_ROWS))


def test_what_is_kept_stands_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority_sample, "MEMORY_ROWS", 1000)
    n = 20_000
    ages = np.arange(n - 1, -1, -1)
    whole = np.exp(-ages / 1000) * (n - ages) ** 3.0
    sample = PrioritySample.of(n, 2048)
    logs = np.maximum(sample.rows / 1000 + 3 * np.log1p(sample.rows), sample.threshold) - (n - 1) / 1000
    assert abs(np.exp(logs).sum() / whole.sum() - 1) < 0.05
    assert abs((np.exp(logs) @ (n - 1 - sample.rows)) / (whole @ ages) - 1) < 0.1


def test_predictions_are_kept_with_their_rows() -> None:
    kept = KeptPredictions.none(30)
    for first in range(0, 5000, 700):
        rows = np.arange(first, min(first + 700, 5000))
        outputs = np.repeat(rows[:, np.newaxis], 30, axis=1).astype(float)
        kept = kept.after(first, outputs, -outputs, outputs[:, 0] + 1 if first else None)
    assert len(kept.outputs) == sample_size(30) == 65_536 // 30
    assert (kept.outputs == kept.sample.rows[:, np.newaxis]).all()
    assert (kept.targets == -kept.outputs).all()
    assert (kept.weights == np.where(kept.sample.rows < 700, 1, kept.sample.rows + 1)).all()
