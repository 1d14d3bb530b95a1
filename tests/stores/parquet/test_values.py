"""Values as they come from files: what is decoded is what the writer wrote, in every type, or is refused."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores.partitions import column_of, only_partition, write_partition

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.parquet.partitions import read_arrow_schema, read_batches
from ridgestream.stores.schema.column_types import CATEGORICAL, NUMERIC, TIMESTAMP
from ridgestream.stores.schema.row_batch import Rows, join_rows
from ridgestream.stores.schema.schema import Feature, Schema

Exact = Fraction | int | float
Options = Mapping[str, Any]

INT96 = {"use_deprecated_int96_timestamps": True, "store_schema": False}
EXACT_UP_TO = 2**53
WIDE = Context(prec=90)


def decode(path: Path, columns: Mapping[str, Any], schema: Schema, **options: Any) -> tuple[Rows, Decoder]:
    file = only_partition(write_partition(path, columns, **options))
    decoder = Decoder(schema, str(file.path))
    decoder.check(read_arrow_schema(file))
    batches = read_batches(file, schema.columns(with_target=True))
    return join_rows([decoder.decode(batch) for batch in batches]), decoder


def schema_of(kind: str, **more: Any) -> Schema:
    return Schema("y", None, (Feature("x", kind),), **more)


def decode_x(path: Path, x: pa.Array, kind: str, **options: Any) -> npt.NDArray[np.floating]:
    return decode(path / "part-7.parquet", column_of("x", x), schema_of(kind), **options)[0].numeric[:, 0]


def categories_of(path: Path, x: pa.Array, schema: Schema | None = None, **options: Any) -> list[str]:
    schema = schema or schema_of(CATEGORICAL)
    rows, decoder = decode(path / "part-7.parquet", column_of("x", x), schema, **options)
    return [list(decoder.categories[0])[code] for code in rows.codes[:, 0]]


# Time stamps of INT96, the type of Spark and Impala.


@pytest.mark.parametrize(
    "moment",
    [
        datetime(9999, 12, 31, 23, 59, 59),
        datetime(2262, 4, 12),
        datetime(1677, 9, 21),
        datetime(1600, 2, 29),
        datetime(1, 1, 1),
        datetime(2024, 2, 29, 12, 30, 0, 125_000),
    ],
    ids=str,
)
def test_time_stamps_of_int96_in_any_year_are_those_of_microseconds(tmp_path: Path, moment: datetime) -> None:
    x = pa.array([moment, datetime(1970, 1, 1)], pa.timestamp("us"))
    seconds = decode_x(tmp_path / "int96", x, TIMESTAMP, **INT96)
    np.testing.assert_array_equal(seconds, decode_x(tmp_path / "us", x, TIMESTAMP))
    assert seconds[0] == (moment - datetime(1970, 1, 1)) / timedelta(seconds=1)


# Every primitive type in every way of writing it.


@dataclass(frozen=True)
class Case:
    """A column of one type, with the exact value of each of its rows."""

    kind: str
    x: pa.Array
    exact: tuple[Exact, ...]


def lists(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(elements, min_size=1, max_size=6)


def integers(kind: pa.DataType) -> st.SearchStrategy[Case]:
    info = np.iinfo(kind.to_pandas_dtype())
    near = [v for v in (0, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63) if info.min <= v <= info.max]
    values = st.integers(int(info.min), int(info.max)) | st.sampled_from(near)
    return lists(values).map(lambda v: Case(NUMERIC, pa.array(v, kind), tuple(v)))


def floats(kind: pa.DataType) -> st.SearchStrategy[Case]:
    largest = [v for v in (1e100, -2e100) if abs(v) <= float(np.finfo(kind.to_pandas_dtype()).max)]
    values = st.floats(width=kind.bit_width) | st.sampled_from([0.5, *largest])
    return lists(values).map(lambda v: Case(NUMERIC, pa.array(np.array(v, kind.to_pandas_dtype())), tuple(v)))


def decimals(kind: pa.DataType) -> st.SearchStrategy[Case]:
    limit = 2**53 * 10**kind.scale
    unscaled = st.integers(-(10**kind.precision) + 1, 10**kind.precision - 1) | st.sampled_from([1, limit, -limit - 1])

    def case(values: list[int]) -> Case:
        fitting = [v for v in values if abs(v) < 10**kind.precision] or [1]
        exact = tuple(Fraction(v, 10**kind.scale) for v in fitting)
        return Case(NUMERIC, pa.array([Decimal(v).scaleb(-kind.scale, WIDE) for v in fitting], kind), exact)

    return lists(unscaled).map(case)


def times(kind: pa.DataType, ticks_a_second: int) -> st.SearchStrategy[Case]:
    bits = 31 if kind == pa.date32() else 63
    calendar = st.sampled_from([-719_162, -106_752, 106_752, 2_932_896])  # days of the years 1, 1677, 2262 and 9999
    ticks = st.integers(-(2**bits), 2**bits - 1) | calendar.map(lambda day: day * (86_400 * ticks_a_second or 1))
    whole = 86_400_000 if kind == pa.date64() else 1

    def case(values: list[int]) -> Case:
        days = [v // whole * whole for v in values if abs(v) < 2**62] or [0]
        seconds = Fraction(86400) if kind == pa.date32() else Fraction(1, ticks_a_second)
        storage = pa.array(days, pa.int32() if kind == pa.date32() else pa.int64())
        return Case(TIMESTAMP, storage.cast(kind), tuple(v * seconds for v in days))

    return lists(ticks).map(case)


UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
INTEGER_TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
DECIMAL_TYPES = [pa.decimal32(9, 2), pa.decimal64(18, 0), pa.decimal128(20, 0), pa.decimal128(38, 3)]
DECIMAL_TYPES += [pa.decimal128(38, 18), pa.decimal256(76, 10), pa.decimal128(10, 4)]
CASES = {
    "integers": st.sampled_from(INTEGER_TYPES).flatmap(integers),
    "floats": st.sampled_from([pa.float16(), pa.float32(), pa.float64()]).flatmap(floats),
    "decimals": st.sampled_from(DECIMAL_TYPES).flatmap(decimals),
    "times": st.one_of(
        *(times(pa.timestamp(unit, zone), n) for unit, n in UNITS.items() for zone in (None, "Asia/Kolkata")),
        times(pa.date32(), 0),
        times(pa.date64(), 1000),
    ),
}
WRITERS = st.fixed_dictionaries(
    {
        "use_deprecated_int96_timestamps": st.booleans(),
        "store_schema": st.booleans(),
        "use_dictionary": st.booleans(),
        "version": st.sampled_from(["1.0", "2.4", "2.6"]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "compression": st.sampled_from(["none", "snappy", "zstd"]),
    }
)


def can_be_written(x: pa.Array, options: Options) -> bool:
    try:
        pq.write_table(pa.table({"x": x}), io.BytesIO(), **options)
    except pa.ArrowInvalid:
        return False
    return True


def is_true(stored: float, case: Case, exact: Exact) -> bool:
    """Whether a stored number is the exact one, as nearly as float64 can be; times are cut off to microseconds."""
    if isinstance(exact, float):
        return stored == exact
    error = abs(Fraction(stored) - exact)
    is_near = error <= abs(Fraction(exact)) * Fraction(2.0**-51)
    return is_near if case.kind == NUMERIC else is_near or error < Fraction(1, 10**6)


@pytest.mark.parametrize("kind", CASES)
@settings(max_examples=50)
@given(data=st.data(), options=WRITERS)
def test_a_value_is_stored_as_it_was_written_or_refused(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject, options: Options
) -> None:
    case = data.draw(CASES[kind])
    if int96_lacks(case, options) or not can_be_written(case.x, options):
        return
    path = tmp_path_factory.mktemp("x")
    if any(is_out_of_range(case, exact) for exact in case.exact):
        with pytest.raises(PartitionError, match="column 'x'"):
            decode_x(path, case.x, case.kind, **options)
        return
    for value, exact in zip(decode_x(path, case.x, case.kind, **options).tolist(), case.exact, strict=True):
        assert is_true(value, case, exact), (value, exact)


def int96_lacks(case: Case, options: Options) -> bool:
    """Whether INT96 cannot hold the times: their days are of int32, and pyarrow takes the first, in -4713, for null."""
    days = [Fraction(exact) / 86400 for exact in case.exact] if case.kind == TIMESTAMP else []
    lacks = any(abs(day) > 2**31 - 2_500_000 or day // 1 == -2_440_588 for day in days)
    return bool(options["use_deprecated_int96_timestamps"]) and lacks


def is_out_of_range(case: Case, exact: Exact) -> bool:
    if case.kind == TIMESTAMP:
        return not -(2**63) <= Fraction(exact) * 10**6 <= 2**63 - 1
    return not abs(exact) <= 1e100 if isinstance(exact, float) else abs(Fraction(exact)) > EXACT_UP_TO


# One rule of exactness for all types of numbers.

BEYOND = 2**53 + 1


def integer_columns(value: int) -> dict[str, pa.Array]:
    """One integer in every type that holds it, after a row that all of them hold."""
    columns = {str(kind): pa.array([1, value], kind) for kind in (pa.int64(), pa.uint64())}
    kinds = (
        pa.decimal64(18, 0),
        pa.decimal64(18, 1),
        pa.decimal128(20, 0),
        pa.decimal128(38, 18),
        pa.decimal256(76, 3),
    )
    columns |= {str(kind): pa.array([Decimal(1), Decimal(value)], kind) for kind in kinds}
    return columns | {"dictionary": pa.array([Decimal(1), Decimal(value)], pa.decimal128(20, 0)).dictionary_encode()}


@pytest.mark.parametrize("role", ["x", "y", "w"])
@pytest.mark.parametrize("name", integer_columns(BEYOND))
def test_an_integer_beyond_float64_is_refused_in_every_type_and_role(tmp_path: Path, name: str, role: str) -> None:
    columns = {"x": [1.0, 2.0], "y": [1.0, 2.0], "w": [1.0, 2.0], role: integer_columns(BEYOND)[name]}
    message = (
        rf"column '{role}' has the value 9007199254740993(\.0+)? in row 1; a number cannot represent integers beyond"
    )
    with pytest.raises(PartitionError, match=message):
        decode(tmp_path / "part-7.parquet", columns, schema_of(NUMERIC, weight="w"))


@pytest.mark.parametrize("name", integer_columns(2**53))
def test_the_largest_exact_integer_is_accepted_in_every_type(tmp_path: Path, name: str) -> None:
    np.testing.assert_array_equal(decode_x(tmp_path, integer_columns(2**53)[name], NUMERIC), [1.0, 2.0**53])


def test_fractions_that_float64_rounds_are_accepted_as_decimals(tmp_path: Path) -> None:
    prices = [Decimal("0.1"), Decimal("19.99"), Decimal("0.333333333333333333"), Decimal("9007199254740991.999")]
    decoded = decode_x(tmp_path, pa.array(prices, pa.decimal128(38, 18)), NUMERIC)
    np.testing.assert_allclose(decoded, [float(price) for price in prices], rtol=2**-51)


def test_classes_that_are_decimals_beyond_float64_are_refused(tmp_path: Path) -> None:
    schema = Schema("y", None, (Feature("x", NUMERIC),), classes="all", class_kind="number")
    y = pa.array([Decimal(2**60), Decimal(2**60 + 1)], pa.decimal128(20, 0))
    with pytest.raises(
        PartitionError, match=r"column 'y' has the value 1152921504606846976 in row 0; .*divide by a unit"
    ):
        decode(tmp_path / "part-7.parquet", {"x": [1.0, 2.0], "y": y}, schema)


@pytest.mark.parametrize("positive", [7.1, 2, 2**60 + 1])
def test_a_decimal_class_is_compared_exactly(tmp_path: Path, positive: float) -> None:
    y = pa.array([Decimal(str(positive)), Decimal(2**60), Decimal(3)], pa.decimal128(38, 2))
    rows, _ = decode(tmp_path / "p.parquet", {"x": [1.0] * 3, "y": y}, Schema("y", positive, (Feature("x", NUMERIC),)))
    assert rows.targets is not None
    assert rows.targets[:, 0].tolist() == [1.0, -1.0, -1.0]


# One value, one category.


def number_columns(value: int) -> dict[str, pa.Array]:
    columns = {str(kind): pa.array([value], kind) for kind in INTEGER_TYPES}
    columns |= {str(kind): pa.array(np.array([value], kind.to_pandas_dtype())) for kind in FLOAT_TYPES}
    columns |= {str(kind): pa.array([Decimal(value)], kind) for kind in (pa.decimal32(5, 2), pa.decimal128(9, 0))}
    return columns | {"dictionary": pa.array([float(value)]).dictionary_encode(), "text": pa.array([str(value)])}


FLOAT_TYPES = (pa.float16(), pa.float32(), pa.float64())


@pytest.mark.parametrize("name", number_columns(0))
def test_a_number_is_the_same_category_in_every_type(tmp_path: Path, name: str) -> None:
    for value in (0, 1, 100):
        assert categories_of(tmp_path / str(value), number_columns(value)[name]) == [str(value)]


@pytest.mark.parametrize("kind", FLOAT_TYPES, ids=str)
def test_negative_zero_is_the_category_of_zero(tmp_path: Path, kind: pa.DataType) -> None:
    x = pa.array(np.array([-0.0, 0.0, 1.0, -0.0], kind.to_pandas_dtype()))
    rows, decoder = decode(tmp_path / "part-7.parquet", column_of("x", x), schema_of(CATEGORICAL))
    assert (rows.codes[:, 0].tolist(), decoder.categories) == ([0, 0, 1, 0], [{"0": 0, "1": 1}])


@pytest.mark.parametrize("text", ["0.1", "-2.5", "0.000001", "1234.5"])
def test_a_fraction_is_the_same_category_as_float_and_decimal(tmp_path: Path, text: str) -> None:
    columns = [pa.array([float(text)]), pa.array([float(text)], pa.float32())]
    columns += [pa.array([Decimal(text)], kind) for kind in (pa.decimal128(20, 6), pa.decimal256(50, 12))]
    names = {categories_of(tmp_path / str(i), x)[0] for i, x in enumerate(columns)}
    assert len(names) == 1


@given(value=st.decimals(-(10**20), 10**20, places=6, allow_nan=False))
def test_equal_decimals_have_one_name_and_different_ones_two(
    tmp_path_factory: pytest.TempPathFactory, value: Decimal
) -> None:
    path, step = tmp_path_factory.mktemp("x"), Decimal("0.000001")
    one = categories_of(path / "1", pa.array([value, value + step], pa.decimal128(38, 6)))
    other = categories_of(path / "2", pa.array([value, value + step], pa.decimal256(60, 20)))
    assert one == other
    assert len(set(one)) == 2


def test_all_nans_are_one_missing_value(tmp_path: Path) -> None:
    payloads = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], dtype=np.uint64).view(np.float64)
    file = only_partition(write_partition(tmp_path / "p.parquet", column_of("x", pa.array(payloads))))
    decoder = Decoder(schema_of(CATEGORICAL), "p", missing="impute")
    (batch,) = read_batches(file, ["x", "y"])
    assert decoder.decode(batch).codes[:, 0].tolist() == [-1, -1, -1]


def test_text_stays_as_it_is(tmp_path: Path) -> None:
    texts = ["0", "-0", "0.0", "00701", "701", "1e0", "\u00e9", "e\u0301", " 1"]
    assert categories_of(tmp_path, pa.array(texts)) == texts


def test_a_store_that_has_negative_zero_as_a_category_keeps_it(tmp_path: Path) -> None:
    earlier, other = (schema_of(CATEGORICAL).with_names_of([table]) for table in (["0", "-0"], ["0", "1"]))
    x = pa.array([-0.0, 0.0])
    assert categories_of(tmp_path / "earlier", x, earlier) == ["-0", "0"]
    assert categories_of(tmp_path / "other", x, other) == ["0", "0"]


# Rows that a reader loses.


def test_rows_that_a_damaged_page_hides_are_missed(tmp_path: Path) -> None:
    """Where the header of a page says other numbers than its file's footer, pyarrow's batches end silently."""
    path = write_partition(tmp_path / "part-7.parquet", column_of("x", pa.array([1.0, 2.5])), compression="none")
    whole, page = path.read_bytes(), pq.read_metadata(path).row_group(0).column(0).data_page_offset
    file, messages = only_partition(path), set()
    for bit in range(8 * page, 8 * (page + 16)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert sum(batch.num_rows for batch in read_batches(file, ["x", "y"])) == 2
        except PartitionError as error:
            messages.add(str(error).removeprefix(f"{path} "))
    assert "is damaged: 0 rows can be read, and its footer says 2; write it again or remove it" in messages
