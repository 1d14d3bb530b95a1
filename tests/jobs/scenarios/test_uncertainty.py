"""Intervals and probabilities, from the job file to the predictions, the nights and the report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import (
    Settings,
    Workplace,
    assert_same_model,
    draw_regression,
    draw_rows,
    run_command,
    set_column,
)

from ridgestream.jobs.commands.history import run_rollback
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import JobFileError
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.models.calibration import intervals_of
from ridgestream.stores.errors.exceptions import ModelError

PRICES: Settings = {"source.target": "price", "source.positive": None}
EACH: Settings = {"source.positive": None, "source.classes": "all"}
BATCH: Settings = {"model.method": "subset-of-regressors", "model.max_basis": None}
LEVEL = 0.8


def prices(folder: Path, partitions: int = 3, rows: int = 300) -> Workplace:
    work = Workplace(folder)
    for number in range(partitions):
        work.put(number, draw_regression(number, rows))
    work.put(0, draw_regression(100, 2000), where="held-out")
    return work


def coverage(table: pa.Table) -> float:
    truth = draw_regression(100, 2000)["price"].to_numpy()
    lower, upper = (table[name].to_numpy() for name in ("lower", "upper"))
    np.testing.assert_allclose((lower + upper) / 2, table["prediction"].to_numpy(), rtol=1e-12)
    return float(((lower <= truth) & (truth <= upper)).mean())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model.refit": True},
        BATCH,
        pytest.param({"model.metric": "diagonal", "model.metric_options.basis": 20}, marks=pytest.mark.thorough),
    ],
    ids=["online", "refit", "batch", "metric"],
)
def test_intervals_cover_their_level_on_held_out_rows(tmp_path: Path, changes: Settings) -> None:
    work = prices(tmp_path)
    work.run_here({**PRICES, **changes})
    table = work.predict_here("held-out", {**PRICES, **changes}, level=LEVEL)
    found = coverage(table)
    assert LEVEL - 0.06 < found < LEVEL + 0.08
    told = work.evaluate_here({**PRICES, **changes, "evaluate.interval": LEVEL})["intervals"]
    assert told["coverage"] == pytest.approx(found)
    width = (table["upper"].to_numpy() - table["lower"].to_numpy()).mean()
    assert told["of"] == {"price": {"coverage": told["coverage"], "mean_width": pytest.approx(width)}}


@pytest.mark.parametrize("changes", [{}, pytest.param(BATCH, marks=pytest.mark.thorough)], ids=["online", "batch"])
def test_nights_keep_the_scores_of_one_run_and_a_rollback_restores_them(tmp_path: Path, changes: Settings) -> None:
    once, nights = (Workplace(tmp_path / name) for name in ("once", "nights"))
    records = []
    for work in (once, nights):
        work.folder.mkdir()
        work.put(0, draw_regression(100), where="held-out")
        for number in range(3):
            work.put(number, draw_regression(number))
            if work is nights:
                work.run_here({**PRICES, **changes})
                records.append(work.model())
    once.run_here({**PRICES, **changes})
    if not changes:
        assert_same_model(once.model(), nights.model())
    covered = [night.coverage for night in nights.model().history]
    assert covered[0] is None
    assert all(0.6 < share <= 1 for share in covered[1:] if share is not None)
    first, last = (intervals_of(record) for record in (records[0], records[2]))
    assert first is not None
    assert last is not None
    assert (first.outside != last.outside).any()
    run_rollback(read_job(nights.job({**PRICES, **changes}), {}), 1, 0.0, replay=False)
    restored = intervals_of(nights.model())
    assert restored is not None
    assert all((getattr(first, n) == getattr(restored, n)).all() for n in ("scores", "weights", "outside", "powers"))


def test_several_targets_with_weights_and_missing_values(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    changes = {**PRICES, "source.target": ["price", "half"], "source.weight": "w", "source.missing": "impute"}
    for number, where in ((0, "rows"), (1, "rows"), (100, "held-out")):
        table, rng = draw_regression(number, 600), np.random.default_rng(number)
        size = np.where(rng.uniform(size=600) < 0.05, np.nan, table["size"].to_numpy())
        half = table["price"].to_numpy() / 2 + rng.normal(size=600)
        for name, values in (("size", size), ("half", half), ("w", rng.integers(0, 3, 600).astype(float))):
            table = set_column(table, name, values)
        work.put(number, table, where=where)
    work.run_here(changes)
    told = work.evaluate_here(changes)["intervals"]
    assert list(told["of"]) == ["price", "half"]
    assert 0.84 < told["coverage"] < 0.96
    assert told["of"]["price"]["mean_width"] == pytest.approx(2 * told["of"]["half"]["mean_width"], rel=0.2)
    table = work.predict_here("held-out", changes, level=0.9, with_std=True)
    assert table.column_names[2:] == [
        *("std_price", "std_observed_price", "std_half", "std_observed_half"),
        *("lower_price", "upper_price", "lower_half", "upper_half"),
    ]


def test_probabilities_of_one_class_against_the_rest_are_calibrated(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(4), held_out=0)
    work.put(0, draw_rows(100, 3000), where="held-out")
    work.run_here()
    table = work.predict_here("held-out", with_probabilities=True)
    assert table.column_names == ["prediction", "score", "probability_2"]
    probability = table["probability_2"].to_numpy()
    truth = draw_rows(100, 3000)["label"].to_numpy() == 2
    told = work.evaluate_here()["probabilities"]
    assert told["brier"] == pytest.approx(np.mean((probability - truth) ** 2))
    assert told["calibration_error"] < 0.08
    assert told["brier"] < np.mean(truth) * (1 - np.mean(truth))


@pytest.mark.parametrize("changes", [{}, pytest.param(BATCH, marks=pytest.mark.thorough)], ids=["online", "batch"])
def test_probabilities_of_many_classes_add_up_to_one(tmp_path: Path, changes: Settings) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(3))
    work.run_here({**EACH, **changes})
    table = work.predict_here("held-out", {**EACH, **changes}, with_probabilities=True)
    names = ["probability_1", "probability_2", "probability_3"]
    assert table.column_names == ["prediction", *names]
    shares = np.column_stack([table[name].to_numpy() for name in names])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert (shares > 0).all()
    told = work.evaluate_here({**EACH, **changes})["probabilities"]
    assert sum(each["weight"] for each in told["reliability"]) == len(table)
    assert told["log_loss"] < np.log(3)


def test_what_cannot_be_told_is_refused_with_what_helps(tmp_path: Path) -> None:
    work = prices(tmp_path, 1, 30)
    work.run_here(PRICES)
    few = r"30 rows, which count as \d+\.\d of equal weight, are too few .* of the level 0\.99, which need 99"
    with pytest.raises(InputError, match=few):
        work.predict_here("held-out", PRICES, level=0.99)
    with pytest.raises(JobFileError, match=r"--interval takes a level above 0 and below 1"):
        work.predict_here("held-out", PRICES, level=90.0)
    with pytest.raises(JobFileError, match=r"--proba is for classes, .* --interval has intervals"):
        work.predict_here("held-out", PRICES, with_probabilities=True)


def test_a_model_without_calibration_says_when_it_will_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = prices(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr("ridgestream.jobs.commands.train.calibrate", lambda _context, trained, _learned: trained)
        work.run_here(PRICES)
    with pytest.raises(ModelError, match=r"has no intervals: an older release .* the next night that learns rows"):
        work.predict_here("held-out", PRICES, level=0.9)
    work.put(1, draw_regression(1))
    work.run_here(PRICES)
    assert "lower" in work.predict_here("held-out", PRICES, level=0.9).column_names


def test_the_command_writes_intervals(tmp_path: Path) -> None:
    work = prices(tmp_path, 1)
    work.run_here(PRICES)
    done = run_command("predict", work.job(PRICES), work.folder / "held-out", work.folder / "out", "--interval", "0.5")
    assert done.code == 0
    assert {"lower", "upper"} <= set(pq.read_table(work.folder / "out").column_names)


def report_of(work: Workplace, changes: Settings) -> tuple[dict[str, Any], str]:
    """The night's report, as JSON and as a page."""
    written = work.run_here({**changes, "report": "reports"})["report"]
    return json.loads(Path(written["json"]).read_text()), Path(written["html"]).read_text()


def test_the_report_says_what_intervals_cover_and_what_a_refit_gains(tmp_path: Path) -> None:
    work = prices(tmp_path, 1)
    work.run_here(PRICES)
    work.put(1, draw_regression(1))
    facts, page = report_of(work, {**PRICES, "model.refit": "auto"})
    told, figures = facts["evaluation"]["intervals"], facts["figures"]
    assert figures["coverage"] == work.model().history[-1].coverage
    assert figures["refit_gain"] == work.model().history[-1].refit_gain
    words = str(facts["words"])
    assert f"Of the held-out values {100 * told['coverage']:.2f} % lie in their 90.00 % interval" in words
    assert f"The model before covered {100 * figures['coverage']:.2f} % of the new values" in words
    assert "the squared error on rows left out by" in words
    assert "in their 90.00 % interval" in page


def test_the_report_shows_the_reliability_of_probabilities(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(2))
    facts, page = report_of(work, EACH)
    told = facts["evaluation"]["probabilities"]
    assert f"off by {100 * told['calibration_error']:.2f} % in the mean (Brier score {told['brier']:.4g}" in str(facts)
    assert 'id="reliability-title"' in page
