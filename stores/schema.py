"""The schema of a store, fixed at the first ingest: which column is what."""

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
    named = [request.target, *request.features, *request.categorical, *([request.weight] if request.weight else [])]
    for name in named:
        check_column(name, arrow, place)
    taken = {request.target, request.weight, *request.ignore}
    names = request.features or tuple(name for name in arrow.names if name not in taken)
    if not names:
        raise PartitionError(f"{place} has no feature column beside {', '.join(sorted(t for t in taken if t))}")
    clash = sorted(set(names) & taken - {None})
    if clash:
        raise PartitionError(f"column {clash[0]!r} is named as a feature and as target, weight or ignored")
    features = tuple(Feature(n, _kind(n, arrow.field(n).type, request.categorical, place)) for n in names)
    return Schema(request.target, request.positive, features, request.ignore, request.weight)


def check_request(schema: Schema, request: SchemaRequest, store: str) -> None:
    """Raise StoreError naming the key if a later job says something else than the first ingest did."""
    for key in ("target", "positive", "weight"):
        if getattr(schema, key) != getattr(request, key):
            raise StoreError(
                f"the store {store} was made with {key} = {getattr(schema, key)!r}, the job says "
                f"{getattr(request, key)!r}; the schema of a store is fixed at its first ingest: use another store"
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


def _kind(name: str, kind: "pa.DataType", categorical: tuple[str, ...], place: str) -> str:
    import pyarrow.types as t

    value = kind.value_type if t.is_dictionary(kind) else kind
    if t.is_string(value) or t.is_large_string(value) or name in categorical:
        return CATEGORICAL
    if t.is_boolean(value):
        return BOOLEAN
    if t.is_timestamp(value) or t.is_date(value):
        return TIMESTAMP
    if t.is_integer(value) or t.is_floating(value) or t.is_decimal(value):
        return NUMERIC
    raise PartitionError(f"{place}: column {name!r} has type {kind}, which is no feature; list it under ignore")
