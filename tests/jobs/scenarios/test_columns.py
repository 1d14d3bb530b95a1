"""How columns become features: late columns, time stamps, plain indicators, common and raw scales, keys of folders."""

import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import Settings, Workplace, assert_same_model, open_store
from support.jobs.recording import Notes
from support.points import points
from support.stores.stores import PicklingExecutor

from ridgestream.jobs.commands.predict import run_predict
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Fact
from ridgestream.pipeline.dataset.feature_map_growth import feature_map_of
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.training.online import checkpoints
from ridgestream.stores.catalog.models import require_model, write_model
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.schema.column_rules import SOURCE

ROWS = 60
JOB: Settings = {
    "source.target": "y",
    "source.positive": None,
    "source.missing": "impute",
    "model.max_basis": 12,
    "model.scaling_rows": ROWS,
    "model.kernel.gamma": 0.2,
    "evaluate.path": None,
}
METRIC: Settings = {"model.metric": "full", "model.metric_options.rows": ROWS, "model.metric_options.basis": 20}
METHODS: dict[str, Settings] = {
    "online": {},
    "metric": METRIC,
    "pilot sees it wake": {**METRIC, "model.metric_options.rows": 3 * ROWS},
    "kernel-ridge": {"model.method": "kernel-ridge", "model.max_basis": None, "model.regularization": 1e-3},
    "drawn": {"model.selection": "fixed", "model.max_basis": None, "model.random_basis": 8},
}
NIGHTS = {"pilot sees it wake": (range(3), range(3, 5)), "drawn": (range(5),)}
"""Where nights end in which a method's first rows are more than one partition."""

FIRST = datetime(2024, 2, 26, 6, 30, tzinfo=UTC)


def draw(number: int) -> pa.Table:
    """`late` is 0.1 but from the third partition on, `never` has no value before the second, `flag` no true before."""
    rng = np.random.default_rng(number)
    x, late, never = rng.normal(size=ROWS), np.full(ROWS, 0.1), np.full(ROWS, np.nan)
    if number >= 2:
        late[::2] = rng.normal(5.0, 2.0, size=ROWS // 2)
        late[1] = np.nan
    if number >= 1:
        never[:40] = rng.normal(-3.0, 7.0, size=40)
    y = np.sin(x) + np.where(np.isnan(late), 0.0, late) / 4 + 0.05 * rng.normal(size=ROWS)
    flag = rng.random(ROWS) < (0.3 if number >= 3 else 0.0)
    times = [FIRST + timedelta(days=number, minutes=float(m)) for m in rng.integers(0, 1440, ROWS)]
    colour = rng.choice(["red", "green"], ROWS)
    colour[:2] = "mauve"
    columns = {"x": x, "late": late, "never": never, "flag": flag, "when": times, "colour": colour, "y": y}
    return pa.table(columns)


def new_place(folder: Path, numbers: range = range(0)) -> Workplace:
    folder.mkdir()
    put_all(work := Workplace(folder), numbers)
    return work


def put_all(work: Workplace, numbers: range) -> None:
    for number in numbers:
        work.put(number, draw(number))


def run(work: Workplace, changes: Settings, **more: Any) -> dict[str, Any]:
    return work.run_here({**JOB, **changes}, **more)


def map_of(work: Workplace) -> FeatureMap:
    return feature_map_of(work.model())


@pytest.mark.at_most(2)
@pytest.mark.thorough
@pytest.mark.parametrize("method", points([*METHODS], ["metric"]))
def test_a_column_that_wakes_up_late_leaves_no_trace_of_nights(tmp_path: Path, method: str) -> None:
    changes = METHODS[method]
    straight, nights = new_place(tmp_path / "straight", range(5)), new_place(tmp_path / "nights")
    run(straight, changes, executor=PicklingExecutor())
    for night in NIGHTS.get(method, (range(1), range(1, 3), range(3, 5))):
        put_all(nights, night)
        run(nights, changes)
    assert_same_model(nights.model(), straight.model())
    columns = {column.name: column for column in map_of(straight).numeric}
    late = np.array(draw(2)["late"])
    late = late[~np.isnan(late)]
    assert (columns["late"].centre, columns["late"].fill) == (0.1, 0.1)
    assert columns["late"].scale == pytest.approx(late.std(), rel=1e-6)
    never = np.array(draw(1)["never"][:40])
    assert (columns["never"].centre, columns["never"].scale) == pytest.approx((never.mean(), never.std()), rel=1e-6)
    assert {column.distinct for column in columns.values()} == {2}
    if method == "metric":
        check_own_axis(map_of(straight), ["late", "never", "flag"])


def check_own_axis(feature_map: FeatureMap, late: list[str]) -> None:
    """Check that columns which the pilot never saw vary are axes of their own, of average weight."""
    metric, names = feature_map.metric, [column.name for column in feature_map.linear]
    assert metric is not None
    axes = metric.apply(np.eye(feature_map.n_features))
    own = np.isin(np.arange(len(axes)), [names.index(name) for name in late])
    average = np.sqrt(np.mean(np.sum(axes[~own] ** 2, axis=1)))
    np.testing.assert_allclose(axes[own], average * np.eye(len(axes))[own], rtol=1e-9)


class KilledAfterABlock(Notes):
    """A run that is killed when it has learned one block of rows."""

    def advance(self, rows: int, **facts: Fact) -> None:
        super().advance(rows, **facts)
        if facts.get("n_basis"):
            raise KeyboardInterrupt


@pytest.mark.thorough
def test_a_killed_training_with_a_late_column_ends_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which a part arrives after the kill: what it opens changes nothing of what was learned before."""
    monkeypatch.setattr(checkpoints, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "COST", 0.0)
    straight, killed = new_place(tmp_path / "straight", range(5)), new_place(tmp_path / "killed", range(2))
    run(straight, {})
    with suppress(KeyboardInterrupt):
        run(killed, {}, report=KilledAfterABlock())
    put_all(killed, range(2, 5))
    notes = Notes()
    run(killed, {}, report=notes)
    assert "train.started_from_checkpoint" in notes.codes
    assert_same_model(killed.model(), straight.model())


@pytest.mark.thorough
def test_a_model_of_an_older_release_keeps_its_columns(tmp_path: Path) -> None:
    """Its record says nothing of them: indicators are standardized, and time stamps are seconds."""
    work = new_place(tmp_path / "work", range(2))
    older = {"source.indicators": "standardized", "source.timestamps": "elapsed"}
    run(work, older)
    record = work.model()
    forget(work)
    put_all(work, range(2, 3))
    run(work, {})
    assert work.model().encoding["scale"][:6] == record.encoding["scale"][:6]
    put_all(work, range(3, 4))
    run(work, older)
    assert SOURCE not in work.model().parameters
    put_all(work, range(4, 5))
    with pytest.raises(ModelError, match=r"source\.indicators was 'standardized', is 'plain'"):
        run(work, {"source.indicators": "plain"})
    with pytest.raises(ModelError, match=r"source\.columns\.x was none, is 'raw'"):
        run(work, {"source.columns.x": "raw"})


def forget(work: Workplace) -> None:
    """Take from the record what an older release does not write."""
    store = open_store(work.store)
    with store.lock(), store.write("forget") as writing:
        record = require_model(writing.root, "model")
        added = {"cycles", "linear", "distinct", "category_fill"}
        encoding = {key: value for key, value in record.encoding.items() if key not in added}
        parameters = {key: value for key, value in record.parameters.items() if key != SOURCE}
        write_model(writing.root, replace(record, encoding=encoding, parameters=parameters))


def draw_feed(number: int, rows: int = 300) -> pa.Table:
    """Delays that grow from day to day, and are longer in the evening."""
    rng = np.random.default_rng(number)
    minutes = rng.integers(0, 1440, rows)
    times = [FIRST.replace(hour=0, minute=0) + timedelta(days=number, minutes=int(m)) for m in minutes]
    late = 5.0 + number + 4.0 * np.sin(2 * np.pi * (minutes / 1440 - 0.5)) + rng.normal(size=rows)
    return pa.table({"when": times, "late": late})


FEED: Settings = {
    **JOB,
    "source.target": "late",
    "model.scaling_rows": 300,
    "model.max_basis": 30,
    "evaluate.path": "held-out",
    "report": "reports",
}


def report_of(work: Workplace, changes: Settings) -> dict[str, Any]:
    """Run the job and return its report."""
    return dict(json.loads(Path(str(run(work, changes)["report"]["json"])).read_text()))


@pytest.mark.parametrize("timestamps", ["calendar", "elapsed"])
def test_a_feed_with_a_trend_says_what_a_person_should_know(tmp_path: Path, timestamps: str) -> None:
    work = Workplace(tmp_path)
    for number in range(4):
        work.put(number, draw_feed(number))
    work.put(4, draw_feed(4), where="held-out")
    feed = {**FEED, "source.timestamps": timestamps}
    report = report_of(work, feed)
    predicted = run_predict_of(work, feed)
    if timestamps == "calendar":
        assert "tomorrow" in only(report, "Time stamps")
        assert "rows_outside_range" not in predicted
        return
    outside = only(report, "outside the range")
    assert outside.startswith(
        "300 of 300 held-out rows (100.00 %) lie outside the range of the rows learned: when (300)"
    )
    assert report["words"]["state"] == "look"
    assert report["evaluation"]["outside_range"] == {"when": 300}
    assert (predicted["rows_outside_range"], predicted["outside_range"]) == (300, {"when": 300})
    evaluated = work.evaluate_here(feed)
    assert (evaluated["rows_outside_range"], evaluated["outside_range"]) == (300, {"when": 300})


def run_predict_of(work: Workplace, changes: Settings) -> dict[str, Any]:
    job = read_job(work.job(changes), {})
    return run_predict(job, work.folder / "held-out", work.folder / "out", InProcess(), Notes())


def only(report: dict[str, Any], words: str) -> str:
    """The one sentence of a report that has these words."""
    (sentence,) = (each for each in report["words"]["sentences"] if words in each)
    return str(sentence)


def test_a_column_that_wakes_up_and_a_rare_category_are_in_the_report(tmp_path: Path) -> None:
    work = new_place(tmp_path / "work", range(1))
    work.put(0, pa.concat_tables([draw(0)] * 2))
    changes = {"report": "reports", "model.scaling_rows": 2 * ROWS}
    first = report_of(work, changes)
    assert only(first, "Few rows").startswith(
        "Few rows have these categories, of which little is learned: colour=mauve (4)"
    )
    put_all(work, range(1, 3))
    second = report_of(work, changes)
    assert "late (scale 2" in only(second, "vary for the first time")
    assert only(second, "vary for the first time").endswith("part-02.parquet).")


def put_month(work: Workplace, year: int, month: int, where: str = "rows") -> None:
    """Write a partition whose year and month its folders have, and no column of it."""
    rng = np.random.default_rng(month)
    x = rng.normal(size=ROWS)
    path = work.folder / where / f"year={year}" / f"month={month:02d}" / "part-0.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"x": x, "y": x + month / 4}), path)


@pytest.mark.thorough
def test_keys_of_folders_are_columns_that_wake_up_with_their_second_value(tmp_path: Path) -> None:
    straight, nights = new_place(tmp_path / "straight"), new_place(tmp_path / "nights")
    for month in range(1, 4):
        put_month(straight, 2024, month)
    run(straight, {})
    for month in range(1, 4):
        put_month(nights, 2024, month)
        run(nights, {})
    assert_same_model(nights.model(), straight.model())
    columns = {column.name: column for column in map_of(straight).numeric}
    assert (columns["month"].centre, columns["month"].scale, columns["year"].distinct) == (1.0, 1.0, 1)
    put_month(straight, 2025, 1, where="held-out")
    assert run_predict_of(straight, JOB)["outside_range"] == {"year": ROWS}


def draw_day(number: int, rows: int = 300) -> pa.Table:
    """Delays by the hour and the weekday, and by a load that is 0 for five days and then some thousands."""
    rng, day = np.random.default_rng(number), FIRST.replace(hour=0, minute=0) + timedelta(days=number)
    minutes, load = rng.integers(0, 1440, rows), np.zeros(rows)
    late = 20 * np.exp(-(((minutes - 1080) / 120) ** 2)) + 5 * (day.weekday() < 5) + rng.normal(size=rows)
    if number >= 5:
        load = rng.normal(3000, 500, rows)
        late += (load - 3000) / 250
    return pa.table({"when": [day + timedelta(minutes=int(m)) for m in minutes], "load": load, "late": late})


@pytest.mark.thorough
def test_tomorrow_is_predicted_by_the_calendar_and_by_a_late_column(tmp_path: Path) -> None:
    """Elapsed time, or a load in its own units, makes the model worse than the mean, or no better."""
    work = Workplace(tmp_path)
    for number in range(14):
        work.put(number, draw_day(number))
    work.put(14, draw_day(14), where="held-out")
    columns: dict[str, Settings] = {
        "new": {},
        "elapsed": {"source.timestamps": "elapsed"},
        "unscaled": {"source.columns.load": "raw"},
    }
    feed = {**FEED, "model.max_basis": 200, "model.metric": "standardized", "report": "none"}
    results = {name: run(work, {**feed, **each, "model.name": name}) for name, each in columns.items()}
    assert results["new"]["skill"] > 0.8
    assert results["elapsed"]["skill"] < 0.0
    assert results["unscaled"]["skill"] < 0.3
