"""Decoding Arrow columns: every type that can be a number, a time or a category, and all invalid values."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores.partitions import REQUEST, column_of, only_partition, write_partition

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.column_reader import LARGEST_VALUE
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.parquet.partitions import read_arrow_schema, read_batches
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.row_batch import Rows, join_rows
from ridgestream.stores.schema.schema import Feature, Schema, SchemaRequest, infer_schema


def decode(path: Path, columns: Mapping[str, Any] | pa.Table, schema: Schema, **options: Any) -> tuple[Rows, Decoder]:
    """Write a partition and return its rows."""
    file = only_partition(write_partition(path / "part-7.parquet", columns, **options))
    decoder = Decoder(schema, str(file.path))
    decoder.check(read_arrow_schema(file))
    names = schema.columns(with_target=True)
    return join_rows([decoder.decode(batch) for batch in read_batches(file, names)]), decoder


def schema_with(kind: str, **more: Any) -> Schema:
    return Schema("y", None, (Feature("x", kind),), **more)


def decode_x(path: Path, x: pa.Array, kind: str = "numeric") -> npt.NDArray[np.floating]:
    """Write column x and return its decoded values."""
    rows, _ = decode(path, column_of("x", x), schema_with(kind))
    return rows.numeric[:, 0]


def categories_of(path: Path, x: pa.Array) -> list[str]:
    """Write column x as categories and return its decoded values, looked up by code."""
    rows, decoder = decode(path, column_of("x", x), schema_with("categorical"))
    table = list(decoder.categories[0])
    return [table[code] for code in rows.codes[:, 0]]


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [pa.decimal32(9, 2), pa.decimal64(12, 2), pa.decimal128(20, 2), pa.decimal256(50, 2)]


@pytest.mark.parametrize("kind", [*INTEGERS, *FLOATS, *DECIMALS], ids=str)
def test_numbers_of_every_width_give_the_same_values(tmp_path: Path, kind: pa.DataType) -> None:
    values = [0, 1, 2, 100]
    x = pa.array([Decimal(v) for v in values] if pa.types.is_decimal(kind) else np.array(values)).cast(kind)
    np.testing.assert_array_equal(decode_x(tmp_path, x), [0.0, 1.0, 2.0, 100.0])


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_the_extremes_of_an_integer_type_are_exact(tmp_path: Path, kind: pa.DataType) -> None:
    info = np.iinfo(kind.to_pandas_dtype())
    low, high = max(info.min, -(2**53)), min(info.max, 2**53)
    np.testing.assert_array_equal(decode_x(tmp_path, pa.array([low, high], kind)), [float(low), float(high)])


@given(values=st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=30))
def test_floats_round_trip_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    path = tmp_path_factory.mktemp("floats")
    assert decode_x(path, pa.array(values)).tobytes() == np.array(values).tobytes()


def test_float32_is_widened_exactly(tmp_path: Path) -> None:
    values = np.array([0.1, -3.3e38, 1.4e-45], dtype=np.float32)
    np.testing.assert_array_equal(decode_x(tmp_path, pa.array(values)), values.astype(np.float64))


def test_decimals_keep_their_fraction(tmp_path: Path) -> None:
    x = pa.array([Decimal("1.25"), Decimal("-7.10")], pa.decimal128(10, 2))
    np.testing.assert_array_max_ulp(decode_x(tmp_path, x), np.array([1.25, -7.10]), maxulp=1)


@pytest.mark.parametrize("kind", ["boolean", "numeric"])
def test_booleans_are_zero_and_one(tmp_path: Path, kind: str) -> None:
    np.testing.assert_array_equal(decode_x(tmp_path, pa.array([True, False]), kind), [1.0, 0.0])


def test_a_number_other_than_zero_or_one_is_no_boolean(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match=r"column 'x' has the value 7\.0 in row 1; .*true, false, 1 or 0"):
        decode_x(tmp_path, pa.array([1, 7], pa.int8()), "boolean")


def test_zeros_and_ones_are_accepted_as_booleans(tmp_path: Path) -> None:
    np.testing.assert_array_equal(decode_x(tmp_path, pa.array([1, 0], pa.int8()), "boolean"), [1.0, 0.0])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kolkata"])
def test_timestamps_are_seconds_since_1970_utc_in_any_unit_and_zone(
    tmp_path: Path, unit: str, zone: str | None
) -> None:
    moments = [datetime(2024, 2, 29, 12, 30, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)]
    plain = moments if zone else [moment.replace(tzinfo=None) for moment in moments]
    decoded = decode_x(tmp_path, pa.array(plain, pa.timestamp(unit, zone)), "timestamp")
    np.testing.assert_array_equal(decoded, [moment.timestamp() for moment in moments])


def test_a_timestamp_is_the_same_number_from_nanoseconds_and_microseconds(tmp_path: Path) -> None:
    ticks = 1_700_000_000_000_000 + 7 * np.arange(500)
    fine = decode_x(tmp_path / "ns", pa.array(1000 * ticks, pa.timestamp("ns")), "timestamp")
    np.testing.assert_array_equal(fine, decode_x(tmp_path / "us", pa.array(ticks, pa.timestamp("us")), "timestamp"))


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()], ids=str)
def test_dates_are_midnights(tmp_path: Path, kind: pa.DataType) -> None:
    decoded = decode_x(tmp_path, pa.array([date(1970, 1, 2), date(1969, 12, 31)], kind), "timestamp")
    np.testing.assert_array_equal(decoded, [86400.0, -86400.0])


def test_a_time_out_of_range_is_refused_not_wrapped(tmp_path: Path) -> None:
    x = pa.array([0, 2**50], pa.timestamp("s")).cast(pa.timestamp("ms"))
    with pytest.raises(PartitionError, match=r"part-7\.parquet: column 'x' .*out of bounds timestamp.*; correct"):
        decode_x(tmp_path, x, "timestamp")


TEXTS = [pa.string(), pa.large_string(), pa.string_view()]


@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_text_of_every_arrow_layout_is_categorical(tmp_path: Path, kind: pa.DataType) -> None:
    values = ["b", "a", "", "b", "ä😀", "a"]
    assert categories_of(tmp_path, pa.array(values, kind)) == values


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (pa.array([3, 1, 3], pa.int8()), ["3", "1", "3"]),
        (pa.array([3.0, 1.0, 3.0]), ["3", "1", "3"]),
        (pa.array([3, 1, 3], pa.uint64()), ["3", "1", "3"]),
        (pa.array([2**53 + 1, 2**53]), ["9007199254740993", "9007199254740992"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array(["3", "1"]), ["3", "1"]),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_numbers_can_be_categories_and_are_equal_in_another_type(
    tmp_path: Path, x: pa.Array, expected: list[str]
) -> None:
    assert categories_of(tmp_path, x) == expected


def test_codes_follow_first_appearance_not_the_file_s_dictionary(tmp_path: Path) -> None:
    values = ["b", "a", "b", "c"]
    plain = decode(tmp_path / "plain", column_of("x", pa.array(values)), schema_with("categorical"))
    for position, table in enumerate((["a", "b", "c"], ["c", "unused", "b", "a"])):
        x = pa.DictionaryArray.from_arrays(pa.array([table.index(v) for v in values], pa.int8()), pa.array(table))
        rows, decoder = decode(tmp_path / str(position), column_of("x", x), schema_with("categorical"))
        np.testing.assert_array_equal(rows.codes, plain[0].codes)
        assert decoder.categories == plain[1].categories == [{"b": 0, "a": 1, "c": 2}]


def test_codes_follow_first_appearance_across_batches_and_row_groups(tmp_path: Path) -> None:
    values = ["late" if i == 40_000 else ("b", "a")[i % 2] for i in range(40_001)]
    rows, decoder = decode(tmp_path, column_of("x", pa.array(values)), schema_with("categorical"), row_group_size=1000)
    assert list(decoder.categories[0]) == ["b", "a", "late"]
    np.testing.assert_array_equal(rows.codes[:, 0], [{"b": 0, "a": 1, "late": 2}[v] for v in values])


@pytest.mark.parametrize("values", [pa.array([1.5, 2.5]), pa.array([7, 8]), pa.array([True, False])], ids=str)
def test_a_dictionary_of_numbers_is_numbers(tmp_path: Path, values: pa.Array) -> None:
    x = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), values)
    np.testing.assert_array_equal(decode_x(tmp_path, x), [float(values[i].as_py()) for i in (1, 0, 1)])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 1e200, -1e200, 1.1 * LARGEST_VALUE])
def test_non_finite_and_huge_values_are_refused(tmp_path: Path, bad: float) -> None:
    message = rf"part-7\.parquet: column 'x' has the value {bad!r} in row 2; values must be finite and at most 1e\+100"
    with pytest.raises(PartitionError, match=message.replace("e+", r"e\+")):
        decode_x(tmp_path, pa.array([0.0, 1.0, bad, 2.0]))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("numeric", pa.array([0.0, 1.0, None, 2.0])),
        ("numeric", pa.array([0, 1, None, 2], pa.int8())),
        ("boolean", pa.array([True, False, None, True])),
        ("timestamp", pa.array([0, 1, None, 2], pa.timestamp("ms"))),
        ("categorical", pa.array(["a", "b", None, "c"])),
        ("categorical", pa.array(["a", "b", None, "c"]).dictionary_encode()),
        ("categorical", pa.array([1.0, 1.0, None, 2.0])),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_a_null_is_refused_with_its_row(tmp_path: Path, kind: str, values: pa.Array) -> None:
    with pytest.raises(PartitionError, match=r"part-7\.parquet: column 'x' has the value null in row 2; .*fill or rem"):
        decode_x(tmp_path, values, kind)


@pytest.mark.parametrize("kind", ["numeric", "boolean", "timestamp", "categorical"])
def test_a_column_of_nulls_is_refused_at_its_first_row(tmp_path: Path, kind: str) -> None:
    with pytest.raises(PartitionError, match=r"part-7\.parquet: column 'x' has the value null in row 0"):
        decode_x(tmp_path, pa.nulls(3), kind)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_is_no_category(tmp_path: Path, bad: float) -> None:
    with pytest.raises(PartitionError, match=rf"part-7\.parquet: column 'x' has the value {bad} in row 1"):
        categories_of(tmp_path, pa.array([1.0, bad]))


def test_rows_in_messages_are_counted_from_the_start_of_the_file(tmp_path: Path) -> None:
    x = np.zeros(50_000)
    x[40_000] = np.nan
    with pytest.raises(PartitionError, match="column 'x' has the value nan in row 40000;"):
        decode_x(tmp_path, pa.array(x))


@pytest.mark.parametrize("bad", [2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)])
def test_an_integer_that_is_not_exact_as_double_is_refused(tmp_path: Path, bad: int) -> None:
    with pytest.raises(
        PartitionError, match=rf"part-7\.parquet: column 'x' has the value {bad} in row 1; .*categorical"
    ):
        decode_x(tmp_path, pa.array([0, bad], pa.int64()))


def test_an_unsigned_integer_that_is_not_exact_as_double_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match=r"column 'x' has the value 18446744073709551615 in row 1; .*offset"):
        decode_x(tmp_path, pa.array([0, 2**64 - 1], pa.uint64()))


def test_invalid_utf8_is_refused(tmp_path: Path) -> None:
    offsets = pa.array([0, 1, 3], pa.int32()).buffers()[1]
    x = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff\xfe")])
    with pytest.raises(PartitionError, match=r"part-7\.parquet: column 'x' has a value that cannot be used.*utf-8"):
        categories_of(tmp_path, x)


UNFIT = [
    ("numeric", pa.array(["1", "2"])),
    ("numeric", pa.array(["1", "2"]).dictionary_encode()),
    ("numeric", pa.array([0, 1], pa.timestamp("s"))),
    ("numeric", pa.array([[1.0], [2.0]])),
    ("numeric", pa.array([{"a": 1}, {"a": 2}])),
    ("numeric", pa.array([b"1", b"2"])),
    ("boolean", pa.array(["true", "false"])),
    ("timestamp", pa.array([1, 2])),
    ("timestamp", pa.array(["2024-01-01", "2024-01-02"])),
    ("timestamp", pa.array([1, 2], pa.duration("s"))),
    ("timestamp", pa.array([1, 2], pa.time64("us"))),
    ("categorical", pa.array([date(2024, 1, 1), date(2024, 1, 2)])),
    ("categorical", pa.array([["a"], ["b"]])),
    ("categorical", pa.array([b"a", b"b"])),
]


@pytest.mark.parametrize(("kind", "x"), UNFIT, ids=[f"{kind}-{x.type}" for kind, x in UNFIT])
def test_a_type_incompatible_with_the_store_is_refused(tmp_path: Path, kind: str, x: pa.Array) -> None:
    message = (
        rf"part-7\.parquet: column 'x' has type .*, the store has it as {kind}, which takes .*; write the file again"
    )
    with pytest.raises(PartitionError, match=message):
        decode_x(tmp_path, x, kind)


@pytest.mark.parametrize("name", ["x", "y"])
def test_a_missing_column_is_refused(tmp_path: Path, name: str) -> None:
    columns = column_of("x", pa.array([1.0])) | {"other": [2.0]}
    del columns[name]
    with pytest.raises(PartitionError, match=rf"part-7\.parquet has no column '{name}'; new here: other; write"):
        decode(tmp_path, columns, schema_with("numeric"))


@pytest.mark.parametrize("name", ["x", "y"])
def test_a_duplicate_column_is_refused(tmp_path: Path, name: str) -> None:
    columns = column_of("x", pa.array([1.0]))
    table = pa.table(columns).append_column(name, pa.array([5.0]))
    with pytest.raises(PartitionError, match=rf"part-7\.parquet has 2 columns '{name}'; names must be unique"):
        decode(tmp_path, table, schema_with("numeric"))


def test_columns_are_selected_by_name_and_others_not_read(tmp_path: Path) -> None:
    columns = {"list": [[1], [2]], "y": [5.0, 6.0], "twice": [1, 2], "x": [1.0, 2.0]}
    table = pa.table(columns).append_column("twice", pa.array([None, 1]))
    rows, _ = decode(tmp_path, table, schema_with("numeric"))
    np.testing.assert_array_equal(rows.numeric[:, 0], [1.0, 2.0])
    assert rows.targets is not None
    np.testing.assert_array_equal(rows.targets[:, 0], [5.0, 6.0])


LABELS: list[tuple[Label, pa.Array]] = [
    (2, pa.array([1, 2, 2, 7], pa.int8())),
    (2, pa.array([1, 2, 2, 7], pa.uint64())),
    (2, pa.array([1.0, 2.0, 2.0, 7.0], pa.float16())),
    (2, pa.array([1.0, 2.0, 2.0, 7.0])),
    (2.0, pa.array([1, 2, 2, 7], pa.int64())),
    (2, pa.array([Decimal(1), Decimal(2), Decimal(2), Decimal(7)])),
    (2, pa.array([1, 2, 2, 7]).dictionary_encode()),
    (2, pa.array([2**60, 2, 2, 7])),
    (True, pa.array([False, True, True, False])),
    ("b", pa.array(["a", "b", "b", "c"])),
    ("b", pa.array(["a", "b", "b", "c"]).dictionary_encode()),
    ("b", pa.array(["a", "b", "b", "c"], pa.large_string())),
    ("b", pa.array(["a", "b", "b", "c"], pa.string_view())),
    ("", pa.array(["a", "", "", "c"])),
]


@pytest.mark.parametrize(("positive", "y"), LABELS, ids=[f"{label!r}-{y.type}" for label, y in LABELS])
def test_one_class_against_the_rest_is_plus_and_minus_one(tmp_path: Path, positive: Label, y: pa.Array) -> None:
    schema = Schema("y", positive, (Feature("x", "numeric"),))
    rows, _ = decode(tmp_path, {"x": [1.0, 2.0, 3.0, 4.0], "y": y}, schema)
    assert rows.targets is not None
    np.testing.assert_array_equal(rows.targets, [[-1.0], [1.0], [1.0], [-1.0]])


WRONG_LABELS: list[tuple[Label, pa.Array]] = [
    ("2", pa.array([1, 2])),
    (2, pa.array(["1", "2"])),
    (1, pa.array([True, False])),
    (True, pa.array([1, 0])),
    ("true", pa.array([True, False])),
    (1.0, pa.array([True, False])),
    (1, pa.array([0, 1], pa.timestamp("s"))),
    (1, pa.array([date(2024, 1, 1), date(2024, 1, 2)])),
    ("a", pa.array([b"a", b"b"])),
    (1, pa.array([[1], [2]])),
    (2, pa.array(["1", "2"]).dictionary_encode()),
]


@pytest.mark.parametrize(("positive", "y"), WRONG_LABELS, ids=[f"{label!r}-{y.type}" for label, y in WRONG_LABELS])
def test_a_class_of_another_type_than_the_column_is_refused(tmp_path: Path, positive: Label, y: pa.Array) -> None:
    schema = Schema("y", positive, (Feature("x", "numeric"),))
    message = rf"part-7\.parquet: column 'y' has type .*, which positive = {positive!r} cannot equal; give the class"
    with pytest.raises(PartitionError, match=message):
        decode(tmp_path, {"x": [1.0, 2.0], "y": y}, schema)


def test_a_class_too_large_for_any_column_is_refused(tmp_path: Path) -> None:
    schema = Schema("y", 2**70, (Feature("x", "numeric"),))
    with pytest.raises(PartitionError, match=r"part-7\.parquet: column 'y' has a value that cannot be used.*too large"):
        decode(tmp_path, {"x": [1.0], "y": [1]}, schema)


@pytest.mark.parametrize(("bad", "value_text"), [(float("nan"), "nan"), (float("inf"), "inf"), (None, "null")])
@pytest.mark.parametrize("positive", [None, 1])
def test_a_missing_or_non_finite_target_is_refused(
    tmp_path: Path, bad: float | None, value_text: str, positive: Label | None
) -> None:
    schema = Schema("y", positive, (Feature("x", "numeric"),))
    with pytest.raises(PartitionError, match=rf"part-7\.parquet: column 'y' has the value {value_text} in row 1"):
        decode(tmp_path, {"x": [1.0, 2.0], "y": pa.array([1.0, bad])}, schema)


def test_a_text_target_of_a_regression_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match=r"part-7\.parquet: column 'y' has type string, the store has it as numer"):
        decode(tmp_path, {"x": [1.0], "y": ["1"]}, schema_with("numeric"))


def test_weights_are_read_with_the_target(tmp_path: Path) -> None:
    columns = column_of("x", pa.array([1.0, 2.0, 3.0])) | {"w": pa.array([0, 2, 1], pa.int8())}
    rows, _ = decode(tmp_path, columns, schema_with("numeric", weight="w"))
    assert rows.weights is not None
    np.testing.assert_array_equal(rows.weights, [0.0, 2.0, 1.0])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (-1.0, r"has the value -1\.0 in row 1; weights must be zero or positive"),
        (float("nan"), "has the value nan in row 1; values must be finite"),
        (float("inf"), "has the value inf in row 1; values must be finite"),
        (None, "has the value null in row 1; every value must be present; a target or weight is never imputed"),
    ],
)
def test_invalid_weights_are_refused(tmp_path: Path, bad: float | None, message: str) -> None:
    columns = column_of("x", pa.array([1.0, 2.0, 3.0])) | {"w": pa.array([1.0, bad, 1.0])}
    with pytest.raises(PartitionError, match=rf"part-7\.parquet: column 'w' {message}"):
        decode(tmp_path, columns, schema_with("numeric", weight="w"))


def test_text_weights_are_refused(tmp_path: Path) -> None:
    columns = column_of("x", pa.array([1.0])) | {"w": ["1"]}
    with pytest.raises(PartitionError, match=r"part-7\.parquet: column 'w' has type string, the store has it as num"):
        decode(tmp_path, columns, schema_with("numeric", weight="w"))


def test_rows_for_prediction_need_neither_target_nor_weight(tmp_path: Path) -> None:
    schema = schema_with("numeric", weight="w")
    file = only_partition(write_partition(tmp_path / "part-7.parquet", {"x": [1.0, 2.0]}))
    decoder = Decoder(schema, str(file.path), with_target=False)
    decoder.check(read_arrow_schema(file))
    (batch,) = read_batches(file, schema.columns(with_target=False))
    rows = decoder.decode(batch)
    np.testing.assert_array_equal(rows.numeric, [[1.0], [2.0]])
    assert rows.targets is None
    assert rows.weights is None


@pytest.mark.parametrize("kind", ["numeric", "categorical"])
def test_a_column_of_null_type_without_rows_is_accepted(tmp_path: Path, kind: str) -> None:
    """As pandas writes an empty frame of objects."""
    columns = {"x": pa.nulls(0), "y": pa.array([], pa.float64())}
    file = only_partition(write_partition(tmp_path / "part-7.parquet", columns))
    decoder = Decoder(schema_with(kind), str(file.path))
    decoder.check(read_arrow_schema(file))
    assert [len(decoder.decode(batch)) for batch in read_batches(file, ["x", "y"])] in ([], [0])
    assert decoder.rows == 0


def test_an_inferred_schema_decodes_its_own_file(tmp_path: Path) -> None:
    kinds = {str(x.type): x for x in (pa.array([1], kind) for kind in [*INTEGERS, *FLOATS[1:], pa.date32()])}
    kinds |= {str(kind): pa.array(["a"], kind) for kind in TEXTS} | {"flag": pa.array([True])}
    columns = kinds | {"y": pa.array([1.0])}
    file = only_partition(write_partition(tmp_path / "in.parquet", columns))
    schema = infer_schema(REQUEST, read_arrow_schema(file), str(file.path))
    rows, decoder = decode(tmp_path, columns, schema)
    assert rows.numeric.shape == (1, len(kinds) - len(TEXTS))
    assert decoder.categories == [{"a": 0}] * len(TEXTS)


def test_numbers_declared_as_categories_are_categories_in_every_type(tmp_path: Path) -> None:
    request = SchemaRequest(target="y", categorical=("x",))
    for position, x in enumerate((pa.array([1, 2]), pa.array([1.0, 2.0]), pa.array(["1", "2"]))):
        file = only_partition(write_partition(tmp_path / f"{position}.parquet", column_of("x", x)))
        schema = infer_schema(request, read_arrow_schema(file), str(file.path))
        assert decode(tmp_path, column_of("x", x), schema)[1].categories == [{"1": 0, "2": 1}]
