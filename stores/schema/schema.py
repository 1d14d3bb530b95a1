"""The schema of a store, fixed at the first ingest: which column is what."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from ridgestream.stores.errors.exceptions import PartitionError, StoreError
from ridgestream.stores.schema.class_labels import Label, infer_class_kind, order_classes
from ridgestream.stores.schema.column_types import (
    CATEGORICAL,
    check_column,
    infer_kind,
    is_number,
    shown_type,
    value_type,
)

if TYPE_CHECKING:
    import pyarrow as pa

Target = str | tuple[str, ...]
"""The column to predict, or several."""

Classes = Literal["all"] | tuple[Label, ...]
"""The classes of a target, each learned against the rest: those that the rows have, or those listed."""

PANDAS_INDEX = re.compile(r"__index_level_\d+__")
"""What pandas calls an index without a name that it writes along: no feature, unless it is asked for."""

_FIXED = "the schema of a store is fixed at its first ingest: use another store"


@dataclass(frozen=True)
class SchemaRequest:
    """What a job says of the columns; the rest is read off the first partition."""

    target: Target
    """The column to predict, or several to regress on."""
    positive: Label | None = None
    """The class that counts as +1 against all others as −1."""
    features: tuple[str, ...] = ()
    """The feature columns; every other column if empty."""
    ignore: tuple[str, ...] = ()
    """Columns that are no features."""
    categorical: tuple[str, ...] = ()
    """Features whose numbers are names; text is always taken so."""
    weight: str | None = None
    """The column of row weights, zero or positive."""
    classes: Classes | None = None
    """The classes, each learned against the rest; None, as `positive`, for regression."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns to predict."""
        return _names_of(self.target)


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

    target: Target
    """The column to predict, or several to regress on."""
    positive: Label | None
    """The class that is +1 against all others as −1."""
    features: tuple[Feature, ...]
    """The features, in the order of the first partition's columns."""
    ignore: tuple[str, ...] = field(default=())
    """Columns that were named as no features."""
    weight: str | None = None
    """The column of row weights."""
    classes: Classes | None = None
    """The classes, each learned against the rest, sorted if listed; None, as `positive`, for regression."""
    class_kind: str | None = None
    """Of classes: text, boolean, integer or number."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns to predict."""
        return _names_of(self.target)

    @property
    def classifies(self) -> bool:
        """Whether the target is a class, one against the rest or each."""
        return self.positive is not None or self.classes is not None

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
        return [*names, *self.targets, *([self.weight] if self.weight else [])] if with_target else names

    def unnamed(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Return those of a file's columns that are neither read nor named as ignored."""
        named = {*self.columns(with_target=True), *self.ignore}
        return tuple(name for name in columns if name not in named)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it; what only classes need is left out where there are none."""
        plain = asdict(self)
        return plain if self.classes is not None else {k: v for k, v in plain.items() if not k.startswith("class")}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Make it from what `as_dict` returned, or JSON made of that."""
        features = tuple(Feature(**f) for f in plain["features"])
        lists = {key: tuple(value) for key, value in plain.items() if isinstance(value, list)}
        return cls(**{**plain, **lists, "features": features})


def _names_of(target: Target) -> tuple[str, ...]:
    return (target,) if isinstance(target, str) else target


def infer_schema(request: SchemaRequest, arrow: "pa.Schema", place: str) -> Schema:
    """Make the schema from the request and the first partition's columns; raise PartitionError naming `place`."""
    weight = (request.weight,) if request.weight else ()
    taken = {*request.targets, *weight, *request.ignore}
    names = request.features or tuple(n for n in arrow.names if n not in taken and not PANDAS_INDEX.fullmatch(n))
    for name in (*request.targets, *weight, *names, *request.categorical):
        check_column(name, arrow, place)
    if not names:
        raise PartitionError(f"{place} has no feature column beside {', '.join(sorted(taken))}")
    _check_parts(request, names, place)
    features = tuple(Feature(n, infer_kind(arrow.field(n), request.categorical, place)) for n in names)
    classes, kind = _infer_classes(request, arrow, place)
    return Schema(request.target, request.positive, features, request.ignore, request.weight, classes, kind)


def _infer_classes(request: SchemaRequest, arrow: "pa.Schema", place: str) -> tuple[Classes | None, str | None]:
    """Return the classes and their kind; without any, raise PartitionError for a target that is no number."""
    if request.classes is not None:
        (name,) = request.targets
        kind = infer_class_kind(arrow.field(name), place)
        listed = request.classes
        return (listed if isinstance(listed, str) else order_classes(kind, listed, name, place)), kind
    for name in request.targets if request.positive is None else ():
        if not is_number(value_type(arrow.field(name))):
            raise PartitionError(
                f"{place}: the target {name!r} has type {shown_type(arrow.field(name))}, which is no number; if it "
                "holds classes, say which one counts as +1: source.positive, or learn each: source.classes"
            )
    return None, None


def _check_parts(request: SchemaRequest, names: tuple[str, ...], place: str) -> None:
    """Raise PartitionError if a column is given two parts, or is called categorical without being a feature."""
    parts = [*request.targets, *([request.weight] if request.weight else [])]
    others = [*parts, *request.ignore]
    clash = sorted(set(names) & set(others))
    if clash:
        raise PartitionError(f"{place}: column {clash[0]!r} is named as a feature and as target, weight or ignored")
    twice = next((n for part in (names, parts) for n in part if part.count(n) > 1), None)
    if twice is not None:
        raise PartitionError(f"{place}: column {twice!r} is named twice; give each column one part")
    stray = sorted(set(request.categorical) - set(names))
    if stray:
        raise PartitionError(f"{place}: column {stray[0]!r} is called categorical, but is no feature")


def check_request(schema: Schema, request: SchemaRequest, store: str) -> None:
    """Raise StoreError naming the key if a later job says something else than the first ingest did."""
    for key in ("target", "positive", "classes", "weight"):
        before, now = getattr(schema, key), getattr(request, key)
        if _comparable(before) != _comparable(now):
            made = f"without {key}" if before is None else f"with {key} = {before!r}"
            raise StoreError(
                f"the store {store} was made {made}, the job says {'none' if now is None else repr(now)}; {_FIXED}"
            )
    names = {f.name for f in schema.features}
    if request.features and set(request.features) != names:
        different = sorted(set(request.features) ^ names)
        raise StoreError(
            f"the store {store} was made with other features: they differ in {', '.join(different)}; {_FIXED}"
        )
    ignored = sorted(set(request.ignore) & names)
    if ignored:
        raise StoreError(f"the store {store} was made with {ignored[0]!r} as a feature, the job ignores it; {_FIXED}")
    plain = sorted(set(request.categorical) - {f.name for f in schema.categorical})
    if plain:
        raise StoreError(
            f"the store {store} was made with {plain[0]!r} as a number, the job calls it categorical; {_FIXED}"
        )


def _comparable(value: Label | tuple[Label, ...] | None) -> tuple[bool, frozenset[tuple[bool, Label | None]]]:
    """Return what is equal for the same request only: 1 is not true, and the order of a list does not matter."""
    listed = isinstance(value, tuple)
    return listed, frozenset((isinstance(v, bool), v) for v in (value if isinstance(value, tuple) else (value,)))
