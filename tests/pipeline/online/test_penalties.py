"""Penalties other than λn: of the whole stream from the first row on, and none."""

import numpy as np
import pytest
from support.references.extended_precision import GaussianKernel
from support.references.online import RowByRow

from ridgestream import RBF, InputError, OnlineLSSVM
from ridgestream.pipeline.models.uncertainty import Uncertainty
from ridgestream.pipeline.online.settings import OnlineSettings

RNG = np.random.default_rng(3)
X = RNG.standard_normal((300, 2))
y = np.sin(2 * X[:, 0]) + 0.1 * RNG.standard_normal(300)


def test_the_penalty_of_the_whole_stream_decides_and_publishes_as_row_by_row() -> None:
    """The paper's γ = λt: P, swaps and coefficients, in the middle of the stream too."""
    learner = OnlineLSSVM(RBF(0.5), regularization=1e-4, max_basis=12, stream_rows=300)
    reference = RowByRow(GaussianKernel(0.5), 1e-4, 12, stream_rows=300)
    for start, stop in ((0, 100), (100, 300)):
        learner.partial_fit(X[start:stop], y[start:stop])
        for row in range(start, stop):
            reference.learn(X[row], y[row])
        state = learner.state()
        assert state.basis_rows.tolist() == reference.basis_rows
        assert state.penalty == pytest.approx(0.03)
        expected = np.asarray(reference.published_coefficients(), float)
        np.testing.assert_allclose(learner.coefficients(), expected, atol=1e-8 * np.abs(expected).max())
    assert learner.swaps > 0


def test_it_is_another_penalty_than_that_of_the_rows_seen() -> None:
    fixed, growing = (OnlineLSSVM(RBF(0.5), max_basis=12, stream_rows=rows) for rows in (300, None))
    for learner in (fixed, growing):
        learner.partial_fit(X[:100], y[:100])
    assert np.abs(fixed.coefficients() - growing.coefficients()).max() > 1e-3


def test_settings_outlive_states_and_records() -> None:
    settings = OnlineSettings(RBF(0.5), stream_rows=300)
    assert OnlineSettings.from_dict(settings.as_dict()) == settings
    assert not {"stream_rows", "unpenalized"} & OnlineSettings(RBF(0.5)).as_dict().keys()
    learner = OnlineLSSVM(RBF(0.5), selection="novelty", unpenalized=True).partial_fit(X, y)
    assert OnlineLSSVM.from_state(learner.state()).coefficients().tobytes() == learner.coefficients().tobytes()


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(InputError, match="unpenalized coefficients need selection 'novelty', it is 'supervised'"):
        OnlineLSSVM(RBF(0.5), unpenalized=True)
    with pytest.raises(InputError, match="stream_rows must be a whole number of at least 1"):
        OnlineLSSVM(RBF(0.5), stream_rows=0)
    learner = OnlineLSSVM(RBF(0.5), selection="novelty", unpenalized=True).partial_fit(X, y)
    with pytest.raises(InputError, match="error bars need a penalty"):
        Uncertainty.of(learner.state())
