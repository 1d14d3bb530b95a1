"""The schema of a store, fixed at the first ingest: which column is what."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from ridgestream.stores.errors import PartitionError, StoreError

if TYPE_CHECKING:
    import pyarrow as pa

NUMERIC, BOOLEAN, TIMESTAMP, CATEGORICAL = "numeric", "boolean", "timestamp", "categorical"

Label = bool | int | float | str


@dataclass(frozen=True)
class SchemaRequest:
    """What a job says of the columns; the rest is read off the first partition."""

    target: str
    """The column to predict."""
    positive: Label | None = None
    """The class that counts as +1 against all others as −1; None for regression."""
    features: tuple[str, ...] = ()
    """The feature columns; every other column if empty."""
    ignore: tuple[str, ...] = ()
    """Columns that are no features."""
    categorical: tuple[str, ...] = ()
    """Features whose numbers are names; text is always taken so."""
    weight: str | None = None
    """The column of row weights, zero or positive."""


@dataclass(frozen=True)
class Feature:
    """A feature column."""

    name: str
    """Its name in the Parquet files."""
    kind: str
    """numeric, boolean, timestamp (seconds since 1970) or categorical."""


@dataclass(frozen=True)
class Schema:
    """Which column is what, for every partition of the store."""

    target: str
    """The column to predict."""
    positive: Label | None
    """The class that is +1 against all others as −1; None for regression."""
    features: tuple[Feature, ...]
    """The features, in the order of the first partition's columns."""
    ignore: tuple[str, ...] = field(default=())
    """Columns that were named as no features."""
    weight: str | None = None
    """The column of row weights."""

    @property
    def numeric(self) -> tuple[Feature, ...]:
        """The features that are kept as numbers."""
        return tuple(f for f in self.features if f.kind != CATEGORICAL)

    @property
    def categorical(self) -> tuple[Feature, ...]:
        """The features that are kept as codes."""
        return tuple(f for f in self.features if f.kind == CATEGORICAL)

    def columns(self, *, with_target: bool) -> list[str]:
        """Return the columns to read: features, then target and weight where rows are learned or judged."""
        names = [f.name for f in self.features]
        return [*names, self.target, *([self.weight] if self.weight else [])] if with_target else names

    def unnamed(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Return those of a file's columns that are neither read nor named as ignored."""
        named = {*self.columns(with_target=True), *self.ignore}
        return tuple(name for name in columns if name not in named)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Make it from what `as_dict` returned, or JSON made of that."""
        features = tuple(Feature(**f) for f in plain["features"])
        return cls(plain["target"], plain["positive"], features, tuple(plain["ignore"]), plain["weight"])


def infer_schema(request: SchemaRequest, arrow: "pa.Schema", place: str) -> Schema:
    """Make the schema from the request and the first partition's columns; raise PartitionError naming `place`."""
    taken = {name for name in (request.target, request.weight, *request.ignore) if name is not None}
    names = request.features or tuple(name for name in arrow.names if name not in taken)
    for name in (request.target, *([request.weight] if request.weight else []), *names, *request.categorical):
        check_column(name, arrow, place)
    if not names:
        raise PartitionError(f"{place} has no feature column beside {', '.join(sorted(taken))}")
    _check_parts(request, names, place)
    features = tuple(Feature(n, _kind(n, arrow.field(n).type, request.categorical, place)) for n in names)
    if request.positive is None and not _is_numeric(arrow.field(request.target).type):
        raise PartitionError(
            f"{place}: the target {request.target!r} has type {arrow.field(request.target).type}, which is no number; "
            "if it holds classes, say which one counts as +1: source.positive"
        )
    return Schema(request.target, request.positive, features, request.ignore, request.weight)


def _check_parts(request: SchemaRequest, names: tuple[str, ...], place: str) -> None:
    """Raise PartitionError if a column is given two parts, or is called categorical without being a feature."""
    others = [name for name in (request.target, request.weight, *request.ignore) if name is not None]
    clash = sorted(set(names) & set(others))
    if clash:
        raise PartitionError(f"{place}: column {clash[0]!r} is named as a feature and as target, weight or ignored")
    twice = next((n for part in (names, others[:2]) for n in part if part.count(n) > 1), None)
    if twice is not None:
        raise PartitionError(f"{place}: column {twice!r} is named twice; give each column one part")
    stray = sorted(set(request.categorical) - set(names))
    if stray:
        raise PartitionError(f"{place}: column {stray[0]!r} is called categorical, but is no feature")


def check_request(schema: Schema, request: SchemaRequest, store: str) -> None:
    """Raise StoreError naming the key if a later job says something else than the first ingest did."""
    for key in ("target", "positive", "weight"):
        before, now = getattr(schema, key), getattr(request, key)
        if before != now or isinstance(before, bool) != isinstance(now, bool):
            raise StoreError(
                f"the store {store} was made with {key} = {before!r}, the job says {now!r}; "
                "the schema of a store is fixed at its first ingest: use another store"
            )
    names = {f.name for f in schema.features}
    if request.features and set(request.features) != names:
        different = sorted(set(request.features) ^ names)
        raise StoreError(f"the store {store} was made with other features: they differ in {', '.join(different)}")
    ignored = sorted(set(request.ignore) & names)
    if ignored:
        raise StoreError(f"the store {store} was made with {ignored[0]!r} as a feature, the job ignores it")
    plain = sorted(set(request.categorical) - {f.name for f in schema.categorical})
    if plain:
        raise StoreError(f"the store {store} was made with {plain[0]!r} as a number, the job calls it categorical")


def check_column(name: str, arrow: "pa.Schema", place: str) -> None:
    """Raise PartitionError if the file has no such column, or has it twice."""
    count = arrow.names.count(name)
    if count == 0:
        near = ", ".join(arrow.names[:12]) + (", …" if len(arrow.names) > 12 else "")
        raise PartitionError(f"{place} has no column {name!r}; its columns are {near}")
    if count > 1:
        raise PartitionError(f"{place} has {count} columns {name!r}; names must be unique")


def is_text(kind: "pa.DataType") -> bool:
    """Tell whether an Arrow type is text, in any of its layouts."""
    import pyarrow.types as t

    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind))


def is_number(kind: "pa.DataType") -> bool:
    """Tell whether an Arrow type is a number or a boolean."""
    import pyarrow.types as t

    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_boolean(kind))


def is_time(kind: "pa.DataType") -> bool:
    """Tell whether an Arrow type is a point in time or a day."""
    import pyarrow.types as t

    return bool(t.is_timestamp(kind) or t.is_date(kind))


def _is_numeric(kind: "pa.DataType") -> bool:
    import pyarrow.types as t

    return is_number(kind.value_type if t.is_dictionary(kind) else kind)


def _kind(name: str, kind: "pa.DataType", categorical: tuple[str, ...], place: str) -> str:
    import pyarrow.types as t

    value = kind.value_type if t.is_dictionary(kind) else kind
    if is_text(value) or (name in categorical and is_number(value)):
        return CATEGORICAL
    if name in categorical:
        raise PartitionError(f"{place}: column {name!r} has type {kind}; only text and numbers can be categorical")
    if t.is_boolean(value):
        return BOOLEAN
    if is_time(value):
        return TIMESTAMP
    if is_number(value):
        return NUMERIC
    raise PartitionError(f"{place}: column {name!r} has type {kind}, which is no feature; list it under ignore")
