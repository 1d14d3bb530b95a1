"""Lags against pandas' shift over all rows at once, whatever the cuts into partitions and batches."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet import partitions
from ridgestream.stores.parquet.lags import Lags
from ridgestream.stores.parquet.partitions import list_partitions, read_arrow_schema, read_batches, with_lags


def draw(n: int, n_keys: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "t": np.arange(n),
            "load": rng.normal(size=n),
            "kind": rng.choice(["a", "b"], n),
            "place": rng.integers(0, n_keys, n),
        }
    )


def write(folder: Path, rows: pd.DataFrame, cuts: Sequence[int]) -> None:
    folder.mkdir(exist_ok=True)
    ends = [0, *sorted(cuts), len(rows)]
    for number, (start, stop) in enumerate(pairwise(ends)):
        table = pa.Table.from_pandas(rows.iloc[start:stop], preserve_index=False)
        pq.write_table(table, folder / f"part-{number:02d}.parquet")


def shifted(rows: pd.DataFrame, lags: Lags) -> pd.DataFrame:
    grouped = rows.groupby(lags.key) if lags.key else rows
    columns = {name: grouped[source].shift(lag) for name, (source, lag) in lags.names.items()}
    return rows.assign(**columns)


def read(folder: Path, lags: Lags, columns: list[str] | None = None) -> pd.DataFrame:
    files = with_lags(list_partitions(folder), lags)
    return pd.concat([batch.to_pandas() for file in files for batch in read_batches(file, columns)], ignore_index=True)


@settings(max_examples=30, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 60), max_size=5),
    n_keys=st.integers(1, 6),
    keyed=st.booleans(),
    seed=st.integers(0, 99),
    rows=st.integers(1, 7),
)
def test_lags_are_a_shift_of_all_rows_at_once(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], n_keys: int, keyed: bool, seed: int, rows: int
) -> None:
    folder, data = tmp_path_factory.mktemp("rows"), draw(60, n_keys, seed)
    write(folder, data, cuts)
    lags = Lags((("load", (1, 2, 7)), ("kind", (3,))), "place" if keyed else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "BATCH_ROWS", rows)
        found = read(folder, lags)
    pd.testing.assert_frame_equal(found, shifted(data, lags), check_dtype=False)


def test_only_the_columns_that_are_asked_for_come_in_their_order(tmp_path: Path) -> None:
    data, lags = draw(30, 3, 0), Lags((("load", (1,)),), "place")
    write(tmp_path / "rows", data, [11])
    found = read(tmp_path / "rows", lags, ["load_lag1", "t"])
    pd.testing.assert_frame_equal(found, shifted(data, lags)[["load_lag1", "t"]])
    schema = read_arrow_schema(with_lags(list_partitions(tmp_path / "rows"), lags)[0])
    assert schema.names == ["t", "load", "kind", "place", "load_lag1"]


def test_partitions_of_another_source_follow_those_of_the_first(tmp_path: Path) -> None:
    data, lags = draw(50, 3, 1), Lags((("load", (1, 4)),), "place")
    write(tmp_path / "rows", data.iloc[:30], [13])
    write(tmp_path / "later", data.iloc[30:], [9])
    history = list_partitions(tmp_path / "rows")
    files = with_lags(list_partitions(tmp_path / "later"), lags, history)
    found = pd.concat([batch.to_pandas() for file in files for batch in read_batches(file, None)], ignore_index=True)
    pd.testing.assert_frame_equal(found, shifted(data, lags).iloc[30:].reset_index(drop=True))
    again = with_lags(history[1:], lags, history)
    assert [file.name for file in again[0].before] == ["part-00.parquet"]


def test_keys_may_be_those_of_folders(tmp_path: Path) -> None:
    for place, shift in (("1", 0), ("2", 100)):
        for number in range(2):
            folder = tmp_path / "rows" / f"day={number}" / f"place={place}"
            folder.mkdir(parents=True)
            pq.write_table(pa.table({"load": [shift + 2 * number, shift + 2 * number + 1]}), folder / "part.parquet")
    found = read(tmp_path / "rows", Lags((("load", (1,)),), "place"))
    assert found["load_lag1"].fillna(-1).tolist() == [-1, 0, -1, 100, 1, 2, 101, 102]


def test_another_number_type_before_is_cast_and_text_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"load": pa.array([1, 2], pa.int32())}), tmp_path / "part-0.parquet")
    pq.write_table(pa.table({"load": pa.array([3.5, 4.5])}), tmp_path / "part-1.parquet")
    assert read(tmp_path, Lags((("load", (2,)),)))["load_lag2"].tolist()[2:] == [1.0, 2.0]
    pq.write_table(pa.table({"load": ["a", "b"]}), tmp_path / "part-0.parquet")
    with pytest.raises(
        PartitionError, match=r"part-1.parquet: lags need columns of one type in consecutive partitions"
    ):
        read(tmp_path, Lags((("load", (2,)),)))


@pytest.mark.parametrize(
    ("lags", "message"),
    [
        (Lags((("speed", (1,)),)), "has no column 'speed', which source.lags needs"),
        (Lags((("load", (1,)),), "station"), "has no column 'station', which source.lags needs"),
        (Lags((("lo", (1,)),)), "has a column 'lo_lag1' of its own"),
    ],
)
def test_columns_that_are_absent_or_there_twice_are_refused(tmp_path: Path, lags: Lags, message: str) -> None:
    pq.write_table(pa.table({"load": [1.0], "lo": [1.0], "lo_lag1": [1.0]}), tmp_path / "part-0.parquet")
    with pytest.raises(PartitionError, match=message):
        read(tmp_path, lags)


def test_rows_further_back_than_the_reach_are_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        pq.write_table(pa.table({"load": [number], "place": [number % 4]}), tmp_path / f"part-{number}.parquet")
    lags = Lags((("load", (1,)),), "place")
    assert read(tmp_path, lags)["load_lag1"].tolist()[4] == 0
    monkeypatch.setattr(partitions, "REACH", 3)
    assert [len(file.before) for file in with_lags(list_partitions(tmp_path), lags)] == [0, 1, 2, 3, 3]
    assert np.isnan(read(tmp_path, lags)["load_lag1"].tolist()[4])
