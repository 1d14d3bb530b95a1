"""The rules by which columns become features of a new model, and what is said of its scales."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.jobs.recording import Notes
from support.stores.partitions import write_partition
from support.stores.stores import ingest_folder, ledger_of, new_store

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.dataset.feature_map_fit import fit_feature_map
from ridgestream.pipeline.dataset.feature_map_growth import plan_encodings
from ridgestream.pipeline.features.columns import NumericColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.stores.errors.exceptions import PartitionError, StoreError
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.column_rules import ColumnRules
from ridgestream.stores.schema.schema import SchemaRequest
from ridgestream.stores.segments.segments import Segments

RNG = np.random.default_rng(0)
MOMENTS = [datetime(2024, 1, 1 + n % 28, n % 24, tzinfo=UTC) for n in range(200)]
COLUMNS: dict[str, Any] = {
    "p0": RNG.normal(3.0, 2.0, 200),
    "p1": RNG.normal(0.0, 8.0, 200),
    "p2": np.full(200, 7.0),
    "flag": RNG.random(200) < 0.3,
    "at": MOMENTS,
    "day": [moment.date() for moment in MOMENTS],
    "midnight": [datetime(2024, 1, 1 + n % 28, tzinfo=UTC) for n in range(200)],
    "colour": ["mauve"] * 3 + ["red", "green", "red", "red"] * 49 + ["green"],
    "y": np.linspace(0.0, 1.0, 200),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("rules")
    write_partition(folder / "in" / "part-0.parquet", COLUMNS)
    made = new_store(folder / "store")
    ingest_folder(made, folder / "in", SchemaRequest("y"))
    return made


def fit(store: Store, rules: ColumnRules | None = None) -> FeatureMap:
    return fit_feature_map(Segments(store.root()), ledger_of(store), None, rules or ColumnRules())


def numeric(feature_map: FeatureMap) -> dict[str, NumericColumn]:
    return {column.name: column for column in feature_map.numeric}


def test_time_stamps_are_circles_and_days_have_no_hour(store: Store) -> None:
    columns = numeric(fit(store))
    assert {name: c.cycles for name, c in columns.items() if c.cycles} == {
        "at": ("hour", "weekday", "day_of_year"),
        "day": ("weekday", "day_of_year"),
        "midnight": ("weekday", "day_of_year"),
    }
    assert [name for name, column in columns.items() if not column.is_linear] == ["at", "day", "midnight"]
    assert fit(store).n_features == 4 + 2 * 7 + 3


def test_the_elapsed_time_counts_where_it_is_asked_for(store: Store) -> None:
    columns = numeric(fit(store, ColumnRules(timestamps="elapsed", columns={"at": "both"})))
    assert all(column.is_linear for column in columns.values())
    assert (len(columns["at"].cycles), columns["day"].cycles) == (3, ())
    seconds = np.array([moment.timestamp() for moment in MOMENTS])
    assert (columns["at"].centre, columns["at"].scale) == pytest.approx((seconds.mean(), seconds.std()))


def test_a_common_scale_is_that_of_all_columns_together(store: Store) -> None:
    columns = numeric(fit(store, ColumnRules(scaling="common", columns={"flag": "standardized"})))
    common = np.sqrt((COLUMNS["p0"].var() + COLUMNS["p1"].var()) / 2)
    assert [columns[name].scale for name in ("p0", "p1", "p2")] == pytest.approx([common] * 3, rel=1e-6)
    assert [columns[name].centre for name in ("p0", "p1", "p2")] == pytest.approx(
        [COLUMNS["p0"].mean(), COLUMNS["p1"].mean(), 7.0], rel=1e-6
    )
    assert columns["flag"].scale == pytest.approx(COLUMNS["flag"].std())
    assert {column.distinct for column in columns.values()} == {2}


def test_a_raw_column_is_left_as_it_is_and_filled_by_its_mean(store: Store) -> None:
    columns = numeric(fit(store, ColumnRules(columns={"p0": "raw", "p2": "raw", "flag": "raw"})))
    assert [(columns[name].centre, columns[name].scale) for name in ("p0", "p2", "flag")] == [(0.0, 1.0)] * 3
    assert columns["p0"].fill == pytest.approx(COLUMNS["p0"].mean(), rel=1e-6)
    assert fit(store, ColumnRules(columns={"flag": "raw"})).with_booleans(["flag"]).numeric[3].fill == 0.0
    assert columns["p1"].distinct == columns["p2"].distinct == 2


def test_categories_are_plain_unless_standardized(store: Store) -> None:
    (plain,), (scaled,) = fit(store).categorical, fit(store, ColumnRules("standardized")).categorical
    assert (plain.centre, plain.scale, plain.fill) == ((0.0,) * 3, (1.0,) * 3, 1)
    assert scaled.centre == pytest.approx((3 / 200, 148 / 200, 49 / 200), abs=0.01)
    assert scaled.fill is None
    assert fit(store, ColumnRules("standardized", columns={"colour": "plain"})).categorical == (plain,)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"colur": "plain"}, r"source\.columns has a rule for 'colur', which is no feature"),
        ({"y": "raw"}, r"source\.columns has a rule for 'y', which is no feature"),
        ({"p0": "calendar"}, r"'calendar' for 'p0', which is numeric: such a column is standardized, common or raw"),
        ({"at": "raw"}, r"'raw' for 'at', which is timestamp: such a column is calendar, elapsed or both"),
        ({"colour": "common"}, r"'common' for 'colour', which is categorical: such a column is plain or standardized"),
    ],
)
def test_a_rule_that_fits_no_column_is_refused(
    store: Store, tmp_path: Path, columns: dict[str, str], message: str
) -> None:
    rules = ColumnRules(columns=columns)
    with pytest.raises(InputError, match=message):
        fit(store, rules)
    write_partition(tmp_path / "in" / "part-0.parquet", COLUMNS)
    with pytest.raises(StoreError, match=message):
        ingest_folder(store, tmp_path / "in", SchemaRequest("y", rules=rules))
    unknown = r"part-0\.parquet has no column 'colur'; if 'colour' is that column under a new name"
    with pytest.raises(PartitionError, match=unknown if "colur" in columns else message):
        ingest_folder(new_store(tmp_path / "store"), tmp_path / "in", SchemaRequest("y", rules=rules))


def said_of(tmp_path: Path, parts: list[dict[str, Any]], rules: ColumnRules | None = None) -> Notes:
    """What is said of a new model's columns, standardized by the first of these partitions."""
    for number, columns in enumerate(parts):
        write_partition(tmp_path / "in" / f"part-{number}.parquet", columns)
    store, notes = new_store(tmp_path / "store"), Notes()
    ingest_folder(store, tmp_path / "in", SchemaRequest("y"))
    ledger = ledger_of(store)
    plan_encodings(
        Segments(store.root()),
        ledger,
        record=None,
        entries=ledger.entries,
        scaling_rows=1,
        policy="extend",
        report=notes,
        rules=rules or ColumnRules(),
    )
    return notes


def test_scales_of_few_rows_or_two_values_are_named(tmp_path: Path) -> None:
    spike, fractions = np.zeros(300), np.where(np.arange(300) % 2, 0.5, 37.25)
    spike[7] = 1e4
    columns = {"spike": spike, "fractions": fractions, "flag": np.arange(300) % 2, "code": np.arange(300) % 2 * 4}
    columns |= {"normal": RNG.normal(size=300), "heavy": RNG.standard_exponential(300), "y": RNG.normal(size=300)}
    notes = said_of(tmp_path, [columns])
    assert notes.facts("features.scale_from_few_rows") == {"columns": "spike, fractions"}


def test_a_scale_fixed_later_is_named_with_its_partition(tmp_path: Path) -> None:
    parts = [{"late": np.full(50, 2.0), "y": np.arange(50.0)} for _ in range(3)]
    parts[1]["late"] = np.full(50, 4.5)
    notes = said_of(tmp_path, parts)
    assert notes.facts("features.columns_constant") == {"columns": "late"}
    assert notes.facts("features.scale_fixed_later") == {"columns": "late (scale 2.5, from part-1.parquet)"}


def test_rare_categories_and_times_as_calendar_are_named(tmp_path: Path) -> None:
    notes = said_of(tmp_path, [COLUMNS])
    assert notes.facts("features.categories_rare") == {"categories": 1, "rows": "colour=mauve (3)"}
    assert notes.facts("features.times_as_calendar")["columns"] == (
        "at (hour, weekday, day_of_year), day (weekday, day_of_year), midnight (weekday, day_of_year)"
    )


def test_time_stamps_are_stored_as_they_are(tmp_path: Path) -> None:
    """Over decades, float32 would round a time stamp by minutes, which is little of its deviation."""
    days = [date(1950 + year, 6, 1) for year in range(100)]
    write_partition(tmp_path / "in" / "part-0.parquet", {"day": pa.array(days), "y": np.arange(100.0)})
    store = new_store(tmp_path / "store")
    ingest_folder(store, tmp_path / "in", SchemaRequest("y"))
    assert numeric(fit(store))["day"].cycles == ("weekday", "day_of_year")
