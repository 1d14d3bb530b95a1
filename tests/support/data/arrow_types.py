"""Arrow columns of every type that Parquet can hold, each with four rows and the way it should be read."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

NUMBER, BOOLEAN, TEXT, TIME, NULL, OTHER = "number", "boolean", "text", "time", "null", "other"

VALUES = (0, 1, 1, 0)
"""The values of numbers and booleans; text columns hold them as strings, times as days after 1970-01-01."""


@dataclass(frozen=True)
class Sample:
    """A column of one type."""

    group: str
    """How its values should be read: one of the constants above."""
    make: Callable[[], pa.Array]
    """Builds the column."""
    shown: str = ""
    """The name of its type in messages; if empty, the type itself."""
    extension: str = ""
    """The name of its extension type, whether or not the library that defines it is loaded."""
    parameters: str = ""
    """How that library writes the parameters of the type."""

    def table(self, name: str, others: dict[str, Any]) -> pa.Table:
        """Return a table of the column under a name, followed by other columns."""
        column = self.make()
        named = {"ARROW:extension:name": self.extension, "ARROW:extension:metadata": self.parameters}
        metadata = named if self.extension else None
        fields = [pa.field(name, column.type, metadata=metadata)]
        fields += [pa.field(n, pa.array(values).type) for n, values in others.items()]
        return pa.table([column, *others.values()], schema=pa.schema(fields))


def _numbers(kind: pa.DataType) -> Sample:
    return Sample(NUMBER, lambda: pa.array(np.array(VALUES)).cast(kind))


def _decimals(kind: pa.DataType) -> Sample:
    return Sample(NUMBER, lambda: pa.array([Decimal(v) for v in VALUES], kind))


def _words(kind: pa.DataType) -> Sample:
    return Sample(TEXT, lambda: pa.array([str(v) for v in VALUES], kind))


def _coded(words: list[str], codes: pa.DataType, values: pa.DataType, *, ordered: bool = False) -> Sample:
    def make() -> pa.Array:
        positions = pa.array([words.index(str(v)) for v in VALUES], codes)
        return pa.DictionaryArray.from_arrays(positions, pa.array(words, values), ordered=ordered)

    return Sample(TEXT, make)


def _times(unit: str, zone: str | None) -> Sample:
    moments = [datetime(1970, 1, 1 + v, tzinfo=UTC if zone else None) for v in VALUES]
    return Sample(TIME, lambda: pa.array(moments, pa.timestamp(unit, zone)))


def _extended(kind: pa.DataType, storage: Callable[[], pa.Array], group: str = OTHER) -> Sample:
    return Sample(group, lambda: pa.ExtensionArray.from_storage(kind, storage()), f"extension<{kind.extension_name}>")


def _other(make: Callable[[], pa.Array], shown: str = "") -> Sample:
    return Sample(OTHER, make, shown)


_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_FLOATS = (pa.float16(), pa.float32(), pa.float64())
_DECIMALS = (pa.decimal32(9, 2), pa.decimal64(12, 2), pa.decimal128(20, 2), pa.decimal256(50, 2))

SAMPLES: dict[str, Sample] = {
    **{str(kind): _numbers(kind) for kind in (*_INTEGERS, *_FLOATS)},
    **{str(kind): _decimals(kind) for kind in _DECIMALS},
    "dictionary of integers": Sample(NUMBER, lambda: pa.array(VALUES).dictionary_encode()),
    "bool": Sample(BOOLEAN, lambda: pa.array([bool(v) for v in VALUES])),
    "arrow.bool8": _extended(pa.bool8(), lambda: pa.array(VALUES, pa.int8()), BOOLEAN),
    "arrow.bool8, unknown": Sample(BOOLEAN, lambda: pa.array(VALUES, pa.int8()), extension="arrow.bool8"),
    **{str(kind): _words(kind) for kind in (pa.string(), pa.large_string(), pa.string_view())},
    "dictionary": _coded(["0", "1"], pa.int8(), pa.string()),
    "dictionary, other codes": _coded(["1", "unused", "0"], pa.uint32(), pa.large_string(), ordered=True),
    **{f"timestamp {unit} {zone}": _times(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")},
    "timestamp us +05:30": _times("us", "+05:30"),
    "date32": Sample(TIME, lambda: pa.array([date(1970, 1, 1 + v) for v in VALUES], pa.date32())),
    "date64": Sample(TIME, lambda: pa.array([date(1970, 1, 1 + v) for v in VALUES], pa.date64())),
    "null": Sample(NULL, lambda: pa.nulls(4)),
    "list": _other(lambda: pa.array([[1.0]] * 4)),
    "large_list": _other(lambda: pa.array([[1.0]] * 4, pa.large_list(pa.float64()))),
    "list_view": _other(lambda: pa.array([[1.0]] * 4, pa.list_view(pa.float64()))),
    "fixed_size_list": _other(lambda: pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float64(), 2))),
    "struct": _other(lambda: pa.array([{"a": 1}] * 4)),
    "map": _other(lambda: pa.array([[("a", 1)]] * 4, pa.map_(pa.string(), pa.int8()))),
    "binary": _other(lambda: pa.array([b"1"] * 4)),
    "large_binary": _other(lambda: pa.array([b"1"] * 4, pa.large_binary())),
    "binary_view": _other(lambda: pa.array([b"1"] * 4, pa.binary_view())),
    "fixed_size_binary": _other(lambda: pa.array([b"1"] * 4, pa.binary(1))),
    "duration": _other(lambda: pa.array(VALUES, pa.duration("us"))),
    "time32": _other(lambda: pa.array(VALUES, pa.time32("ms"))),
    "time64": _other(lambda: pa.array(VALUES, pa.time64("ns"))),
    "arrow.uuid": _extended(pa.uuid(), lambda: pa.array([uuid.UUID(int=v).bytes for v in VALUES], pa.binary(16))),
    "arrow.json": _extended(pa.json_(), lambda: pa.array(["{}"] * 4)),
    "arrow.opaque": _extended(pa.opaque(pa.int64(), "money", "acme"), lambda: pa.array(VALUES, pa.int64())),
    "arrow.fixed_shape_tensor": _extended(
        pa.fixed_shape_tensor(pa.float64(), [2]), lambda: pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float64(), 2))
    ),
    **{
        name: Sample(OTHER, lambda: pa.array(VALUES, pa.int64()), f"extension<{name}>", name, parameters)
        for name, parameters in (("pandas.period", '{"freq": "D"}'), ("acme.money", ""))
    },
    "pandas.interval": Sample(
        OTHER,
        lambda: pa.array([{"left": v, "right": v + 1} for v in VALUES]),
        "extension<pandas.interval>",
        "pandas.interval",
        '{"subtype": "int64", "closed": "right"}',
    ),
}
"""Sample columns by type name."""
