"""Drift of partitions from training rows, computed from segment statistics with and without sketches."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.stores.partitions import REQUEST, mixed_columns, write_partition
from support.stores.stores import ingest_folder, ledger_of, new_store

from ridgestream.pipeline.features.columns import NumericColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.ingest.partition_statistics import PartitionStatistics
from ridgestream.pipeline.monitoring.drift import PartitionDrift, compare_partitions, follow_partitions
from ridgestream.pipeline.monitoring.segment_statistics import SegmentStatistics, StatisticsReader
from ridgestream.pipeline.monitoring.training_rows import TrainingRows
from ridgestream.pipeline.sums.moments import Moments
from ridgestream.pipeline.sums.quantile_sketch import Sketch
from ridgestream.stores.catalog.models import ModelRecord, Night
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.column_types import NUMERIC
from ridgestream.stores.schema.schema import Feature, Schema, SchemaRequest
from ridgestream.stores.segments.segment_format import SegmentFacts, SegmentLayout

Array = npt.NDArray[np.float64]

ROWS = 2000
CIRCLES = NumericColumn("seen", 0.0, 1.0, 0.0, cycles=("hour",), is_linear=False)
"""A time stamp that is circles only."""

ENCODING = FeatureMap((NumericColumn("length", 0.0, 1.0, 0.0),), (), TargetMap((0.0,), (1.0,))).as_dict()


def record_of(store: Store, scaled_by: int = 1) -> ModelRecord:
    """Return a model record standardized by the first `scaled_by` partitions of a store."""
    segments = tuple(entry.segment for entry in ledger_of(store).entries[:scaled_by])
    return ModelRecord("model", {"scaling_rows": 1}, ENCODING, scaled_by=segments)


def compare_all(store: Store, record: ModelRecord | None = None) -> tuple[PartitionDrift, ...]:
    ledger = ledger_of(store)
    return compare_partitions(StatisticsReader(store.root()), ledger, record or record_of(store), ledger.entries)


def moved(drift: PartitionDrift) -> list[str]:
    return [column.column for column in drift.moved]


def store_with(folder: Path, tables: list[dict[str, Any]], request: SchemaRequest = REQUEST) -> Store:
    for i, columns in enumerate(tables):
        write_partition(folder / "source" / f"{i}.parquet", columns)
    store = new_store(folder / "store")
    ingest_folder(store, folder / "source", request)
    return store


def omit_sketches(
    monkeypatch: pytest.MonkeyPatch, from_segment: Callable[[SegmentFacts], bool] = lambda _: True
) -> None:
    """Make ingest write segments without sketches, as older releases did."""
    facts_of = PartitionStatistics.facts

    def facts_without_sketch(gathered: Any, *tables: Any) -> SegmentFacts:
        facts = facts_of(gathered, *tables)
        return replace(facts, sketch=None) if from_segment(facts) else facts

    monkeypatch.setattr(PartitionStatistics, "facts", facts_without_sketch)
    monkeypatch.setattr(SegmentLayout, "is_small", False)


def units(columns: dict[str, Any]) -> dict[str, Any]:
    return columns | {"length": pa.array(columns["length"].to_numpy() * 2.54 + 1.0)}


def constant(columns: dict[str, Any]) -> dict[str, Any]:
    return columns | {"count": pa.array(np.full(ROWS, 20, dtype=np.int32))}


def flag(columns: dict[str, Any]) -> dict[str, Any]:
    return columns | {"flag": pa.array(~columns["flag"].to_numpy(zero_copy_only=False))}


def colour(columns: dict[str, Any]) -> dict[str, Any]:
    values = ["beige" if value == "red" else value for value in columns["colour"].to_pylist()]
    return columns | {"colour": pa.array(values)}


def target(columns: dict[str, Any]) -> dict[str, Any]:
    return columns | {"y": pa.array(10.0 * columns["y"].to_numpy())}


CHANGES = {"length": units, "count": constant, "flag": flag, "colour": colour, "y": target}


@pytest.mark.samples
@pytest.mark.parametrize("sketched", [True, False])
@pytest.mark.parametrize("name", CHANGES)
def test_only_the_column_that_has_drifted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sketched: bool
) -> None:
    if not sketched:
        omit_sketches(monkeypatch)
    tables = [mixed_columns(ROWS, seed=seed) for seed in range(4)]
    first, unchanged, changed, last = compare_all(
        store_with(tmp_path, [*tables[:2], CHANGES[name](tables[2]), tables[3]])
    )
    assert {column.shift.psi for column in first.columns} == {0.0}
    assert moved(unchanged) == moved(last) == []
    assert moved(changed) == [name]
    assert changed.is_suspect
    assert [column.column for column in changed.leading] == [name]
    assert [column.column for column in changed.columns] == ["length", "count", "flag", "seen", "colour", "y"]
    compared = {column.column: column.compared for column in changed.columns}
    assert set(compared.values()) == {"quantiles" if sketched else "moments", "counts"}
    assert compared["colour"] == "counts"


def test_training_rows_may_come_from_several_partitions(tmp_path: Path) -> None:
    """Two halves of a distribution: each differs from the whole, and the whole has not moved."""
    columns = mixed_columns(ROWS, seed=0)
    low = columns["length"].to_numpy() < 0
    halves = [pa.table(columns).filter(pa.array(part)) for part in (low, ~low)]
    tables = [*({name: t[name] for name in t.column_names} for t in halves), mixed_columns(ROWS, seed=1)]
    first, second, whole = compare_all(store_with(tmp_path, tables), None)
    assert moved(first) == []
    store = store_with(tmp_path / "again", tables)
    first, second, whole = compare_all(store, record_of(store, scaled_by=2))
    assert "length" in moved(first)
    assert "length" in moved(second)
    assert moved(whole) == []


def test_partitions_with_and_without_a_sketch_are_compared_by_their_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of an older release that is continued: its scaling partitions have no sketch."""
    tables = [mixed_columns(ROWS, seed=seed) for seed in range(3)]
    with monkeypatch.context() as older:
        omit_sketches(older)
        store = store_with(tmp_path, tables[:1])
    for i, columns in enumerate([tables[1], units(tables[2])], 1):
        write_partition(tmp_path / "source" / f"{i}.parquet", columns)
    ingest_folder(store, tmp_path / "source", REQUEST)
    old, unchanged, changed = compare_all(store)
    assert {column.compared for column in [*old.columns, *unchanged.columns, *changed.columns]} == {"moments", "counts"}
    assert moved(unchanged) == []
    assert moved(changed) == ["length"]


def test_multiclass_targets_are_compared_by_their_counts(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tables = [
        {"x": rng.standard_normal(ROWS), "y": rng.choice(["a", "b", "c"], ROWS, p=p)} for p in 3 * [[0.5, 0.3, 0.2]]
    ]
    tables[2]["y"] = rng.choice(["c", "a", "b"], ROWS, p=[0.6, 0.3, 0.1])
    _, unchanged, changed = compare_all(store_with(tmp_path, tables, SchemaRequest("y", classes="all")))
    assert [column.column for column in unchanged.columns] == ["x", "y"]
    assert moved(unchanged) == []
    assert moved(changed) == ["y"]


def test_rows_of_weight_zero_do_not_count(tmp_path: Path) -> None:
    tables = [mixed_columns(ROWS, seed=seed) | {"w": pa.array(np.ones(ROWS))} for seed in range(3)]
    length = tables[1]["length"].to_numpy().copy()
    length[::2] = 1e6
    tables[1] |= {"length": pa.array(length), "w": pa.array(np.arange(ROWS) % 2.0)}
    tables[2] |= {"w": pa.array(np.zeros(ROWS))}
    _, half, nothing = compare_all(store_with(tmp_path, tables, replace(REQUEST, weight="w")))
    assert moved(half) == []
    assert len(half.columns) == 6
    assert nothing.columns == ()
    assert not nothing.is_suspect


def test_a_partition_without_rows_has_nothing_to_compare(tmp_path: Path) -> None:
    first, empty = compare_all(store_with(tmp_path, [mixed_columns(50), mixed_columns(0)]))
    assert empty.columns == ()
    assert empty.leading == ()
    assert not first.is_suspect
    assert not empty.is_suspect


def statistics_of(values: Array, *, sketched: bool = True) -> SegmentStatistics:
    """Return the statistics of a segment with a feature that has missing values and a target without."""
    present = values[~np.isnan(values)]
    feature, target = Moments.of(present[:, np.newaxis]), Moments.of(np.arange(float(len(values)))[:, np.newaxis])
    moments = np.hstack([feature.as_array(), target.as_array()])
    sketch = Sketch.of(np.column_stack([values, np.arange(float(len(values)))])).as_array()
    return SegmentStatistics(SegmentFacts(moments, (), (), sketch=sketch if sketched else None), len(values))


@pytest.mark.parametrize("sketched", [True, False])
def test_missing_values_are_reported_and_an_increase_is_drift(sketched: bool) -> None:
    schema = Schema("y", None, (Feature("x", NUMERIC),))
    rng = np.random.default_rng(0)
    values = rng.standard_normal((3, ROWS))
    values[0, rng.random(ROWS) < 0.1] = np.nan
    values[1, rng.random(ROWS) < 0.1] = np.nan
    values[2, rng.random(ROWS) < 0.5] = np.nan
    training = TrainingRows(schema, [statistics_of(values[0], sketched=sketched)])
    unchanged, worse, entirely = (
        training.compare(statistics_of(v, sketched=sketched))[0] for v in (values[1], values[2], np.full(ROWS, np.nan))
    )
    assert unchanged.missing == pytest.approx(0.1, abs=0.03)
    assert not unchanged.shift.is_large
    assert worse.missing == pytest.approx(0.5, abs=0.03)
    assert worse.shift.is_large
    assert entirely.missing == 1.0
    assert entirely.shift.is_large


def night_of(partitions: list[str], **more: Any) -> Night:
    return Night("", tuple(partitions), ROWS, ROWS, 1, more.pop("error", 0.2), None, None, 0.0, **more)


def test_errors_belong_to_segments_and_relearned_segments_have_the_latest(tmp_path: Path) -> None:
    store = store_with(tmp_path, [mixed_columns(ROWS, seed=seed) for seed in range(5)])
    nights = (
        night_of(["0", "1"], segments=(0, 1), progressive_errors=(0.30, 0.25)),
        night_of(["2"], segments=(2,), progressive_errors=(0.9,)),
        night_of([], segments=(), error=None),
        night_of(["2", "3"], segments=(2, 3), progressive_errors=(0.24, None)),
    )
    record = replace(record_of(store), learned=(0, 1, 2, 3), history=nights)
    ledger = ledger_of(store)
    drifts = compare_partitions(StatisticsReader(store.root()), ledger, record, ledger.entries[:4])
    drifts += follow_partitions(StatisticsReader(store.root()), ledger, record, {4: 0.8})[0]
    assert [drift.progressive_error for drift in drifts] == [0.30, 0.25, 0.24, None, 0.8]
    assert [drift.error_limit is None for drift in drifts] == [True, False, False, True, False]
    assert [drift.erred for drift in drifts] == [False, False, False, False, True]


def test_a_model_of_an_older_release_compares_with_the_rows_of_its_first_run(tmp_path: Path) -> None:
    tables = [mixed_columns(ROWS, seed=seed) for seed in range(4)]
    store = store_with(tmp_path, [tables[0], tables[1], units(tables[2]), tables[3]])
    record = ModelRecord(
        "model", {"scaling_rows": ROWS}, ENCODING, learned=(0, 1, 2), history=(night_of(["0", "1"]), night_of(["2"]))
    )
    ledger = ledger_of(store)
    drifts = compare_partitions(StatisticsReader(store.root()), ledger, record, ledger.entries[:3])
    drifts += follow_partitions(StatisticsReader(store.root()), ledger, record, {3: 0.9})[0]
    assert [moved(drift) for drift in drifts] == [[], [], ["length"], []]
    assert {column.shift.psi for column in drifts[0].columns} == {0.0}
    assert [drift.progressive_error for drift in drifts] == [None, None, None, 0.9]
    assert drifts[3].erred


def test_a_model_whose_training_rows_are_gone_has_no_comparison(tmp_path: Path) -> None:
    store = store_with(tmp_path, [mixed_columns(ROWS)])
    (drift,) = compare_all(store, replace(record_of(store), scaled_by=(17,)))
    assert drift.columns == ()


@pytest.mark.parametrize(("third", "is_news"), [(0.45, False), (0.9, True)])
def test_an_error_is_news_once_unless_it_grows_much_further(tmp_path: Path, third: float, is_news: bool) -> None:
    store = store_with(tmp_path, [mixed_columns(ROWS, seed=seed) for seed in range(4)])
    night = night_of(["0"], segments=(0,), progressive_errors=(0.2,))
    record = replace(record_of(store), learned=(0,), history=(night,))
    errors = {1: 0.2, 2: 0.4, 3: third}
    drifts, _ = follow_partitions(StatisticsReader(store.root()), ledger_of(store), record, errors)
    assert [drift.erred for drift in drifts] == [False, True, True]
    assert [drift.is_suspect for drift in drifts] == [False, True, is_news]


def test_the_rows_that_fix_the_standardization_are_no_news_however_they_differ(tmp_path: Path) -> None:
    store = store_with(tmp_path, [mixed_columns(ROWS), *(units(mixed_columns(ROWS, seed=seed)) for seed in (1, 2))])
    record = record_of(store, scaled_by=2)
    errors = {0: 0.2, 1: 0.9, 2: 0.9}
    drifts, _ = follow_partitions(StatisticsReader(store.root()), ledger_of(store), record, errors)
    assert ["length" in moved(drift) for drift in drifts] == [True, False, False]
    assert [drift.erred for drift in drifts] == [False, True, False]
    assert not any(drift.is_suspect for drift in drifts)
    again = compare_all(store, replace(record, learned=(0, 1), history=(night_of(["0", "1"], segments=(0, 1)),)))
    assert not any(drift.is_suspect for drift in again[:2])


def later(columns: dict[str, Any]) -> dict[str, Any]:
    """Times a year later, and a length a fifth of a deviation off, which is no drift."""
    year = pa.scalar(timedelta(days=365), pa.duration("us"))
    return columns | {"seen": pc.add(columns["seen"], year), "length": pa.array(columns["length"].to_numpy() + 0.2)}


def test_a_time_stamp_that_is_circles_only_wakes_nobody_and_is_not_named(tmp_path: Path) -> None:
    store = store_with(tmp_path, [mixed_columns(ROWS), later(mixed_columns(ROWS, seed=1))])
    linear = replace(FeatureMap.from_dict(ENCODING), numeric=(replace(CIRCLES, is_linear=True),))
    for feature_map, leading in ((linear, "seen"), (replace(linear, numeric=(CIRCLES,)), "length")):
        record = replace(record_of(store), encoding=feature_map.as_dict())
        (drift,), _ = follow_partitions(StatisticsReader(store.root()), ledger_of(store), record, {1: 0.2})
        assert [column.column for column in drift.leading] == [leading]
        assert drift.is_suspect == (leading == "seen")
