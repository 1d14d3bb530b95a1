"""The schema of a store, fixed at the first ingest: the role and kind of each column."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from ridgestream.stores.errors.exceptions import PartitionError, SchemaMismatch
from ridgestream.stores.schema.category_names import is_by_value
from ridgestream.stores.schema.class_labels import Label, infer_class_kind, order_classes
from ridgestream.stores.schema.column_rules import ColumnRules
from ridgestream.stores.schema.column_types import (
    CATEGORICAL,
    check_column,
    folder_text,
    infer_kind,
    is_date_text,
    is_number,
    is_time,
    shown_type,
    value_type,
)
from ridgestream.stores.schema.field_types import strictly_typed
from ridgestream.stores.schema.transitions import TransitionRequest

if TYPE_CHECKING:
    import pyarrow as pa

Target = str | tuple[str, ...]
"""The target column, or several."""

Classes = Literal["all"] | tuple[Label, ...]
"""The classes of a multi-class target: "all" that occur in the rows, or those listed."""

PANDAS_INDEX = re.compile(r"__index_level_\d+__")
"""The name pandas gives to an unnamed index that it stores as a column; not a feature unless listed."""

AUTO, SINGLE, DOUBLE, EACH = "auto", "float32", "float64", "each"
"""How the numbers of a store are stored. SINGLE: as float32 wherever that changes no value of a partition by more than
10⁻⁶ of its column's deviation, else exactly, as float64. DOUBLE: exactly. AUTO, in requests: SINGLE if that holds in
the first rows of the first partition, else DOUBLE. EACH: as SINGLE, whatever the first rows are.
"""

_FIXED = "a store keeps the schema of its first ingest: correct the job, or use another store"


@dataclass(frozen=True)
class SchemaRequest:
    """The roles of columns as configured in a job; the rest is inferred from the first partition."""

    target: Target
    """The target column, or several for regression."""
    positive: Label | None = None
    """The class encoded as +1, all others as −1."""
    features: tuple[str, ...] = ()
    """The feature columns; all other columns if empty."""
    ignore: tuple[str, ...] = ()
    """Columns that are not features."""
    categorical: tuple[str, ...] = ()
    """Numeric features to be treated as categories; text always is."""
    weight: str | None = None
    """The column of row weights, which are zero or positive."""
    classes: Classes | None = None
    """The classes of a multi-class target, each learned against the rest; None, like `positive`, for regression."""
    precision: str = AUTO
    """How numbers are stored: AUTO or DOUBLE."""
    rules: ColumnRules = ColumnRules()  # noqa: RUF009 (frozen)
    """What is said of how columns become features of a model; the store has no part of it but the names."""
    transitions: TransitionRequest | None = None
    """The columns after a step; None if rows are no transitions."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The target columns."""
        return _names_of(self.target)


@strictly_typed
@dataclass(frozen=True)
class Feature:
    """A feature column."""

    name: str
    """Its column name in the Parquet files."""
    kind: str
    """numeric, boolean, timestamp (seconds since 1970) or categorical."""


@strictly_typed
@dataclass(frozen=True)
class Schema:
    """The role and kind of each column, for all partitions of the store."""

    target: Target
    """The target column, or several for regression."""
    positive: Label | None
    """The class encoded as +1, all others as −1."""
    features: tuple[Feature, ...]
    """The features, in the column order of the first partition."""
    ignore: tuple[str, ...] = field(default=())
    """Columns listed as not features."""
    weight: str | None = None
    """The column of row weights."""
    classes: Classes | None = None
    """The classes of a multi-class target, sorted if listed; None, like `positive`, for regression."""
    class_kind: str | None = None
    """The kind of class labels: text, boolean, integer or number."""
    folder_keys: tuple[str, ...] = ()
    """Features that are keys of the partitions' folders, each with one value in all rows of a partition."""
    as_written: tuple[str, ...] = ()
    """Categorical columns whose numbers are named as they are written, in stores of earlier releases; not recorded."""
    precision: str = EACH
    """How numbers are stored, one rule for all partitions: SINGLE or DOUBLE; EACH in stores of earlier releases."""
    ahead: tuple[str, ...] = ()
    """Of transitions, the column of each feature after the step."""
    done: str | None = None
    """Of transitions, the column that says whether an episode ended with the step; None if none does."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The target columns."""
        return _names_of(self.target)

    @property
    def classifies(self) -> bool:
        """Whether the target is a class, binary or multi-class."""
        return self.positive is not None or self.classes is not None

    @property
    def numeric(self) -> tuple[Feature, ...]:
        """The features stored as numbers."""
        return tuple(f for f in self.features if f.kind != CATEGORICAL)

    @property
    def categorical(self) -> tuple[Feature, ...]:
        """The features stored as codes."""
        return tuple(f for f in self.features if f.kind == CATEGORICAL)

    def columns(self, *, with_target: bool) -> list[str]:
        """Return the columns to read: the features, and with `with_target` also targets and weight."""
        names = [f.name for f in self.features]
        return [*names, *self.learned_columns] if with_target else names

    @property
    def learned_columns(self) -> tuple[str, ...]:
        """The columns that are read to learn a row, besides its features."""
        known = (*self.targets, self.weight, *self.ahead, self.done)
        return tuple(name for name in known if name is not None)

    def unused_columns(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Return those of a file's columns that are neither read nor listed as ignored."""
        named = {*self.columns(with_target=True), *self.ignore}
        return tuple(name for name in columns if name not in named)

    def as_dict(self) -> dict[str, Any]:
        """Return the schema as a JSON object; keys of what few stores have are left out if idle."""
        idle = {"as_written", *(("classes", "class_kind") if self.classes is None else ())}
        idle |= {"precision"} if self.precision == EACH else set()
        idle |= {name for name in ("folder_keys", "ahead", "done") if not getattr(self, name)}
        return {key: value for key, value in asdict(self).items() if key not in idle}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Return the schema from the result of `as_dict`, or its JSON."""
        features = tuple(Feature(**f) for f in plain["features"])
        lists = {key: tuple(value) for key, value in plain.items() if isinstance(value, list)}
        return cls(**{**plain, **lists, "features": features})

    def with_names_of(self, tables: Iterable[Iterable[str]]) -> Self:
        """Return the schema of a store with these categories, by categorical column.

        Numbers are named by value, but in a column that has a name of another kind: in a store of an earlier release,
        in which a decimal 3.00 and −0.0 were categories of their own, they stay what they are.
        """
        columns = zip(self.categorical, tables, strict=False)
        return replace(self, as_written=tuple(f.name for f, table in columns if not all(map(is_by_value, table))))


def _names_of(target: Target) -> tuple[str, ...]:
    return (target,) if isinstance(target, str) else target


def infer_schema(request: SchemaRequest, arrow: "pa.Schema", file: str) -> Schema:
    """Infer the schema from the request and the first partition's columns; raises PartitionError naming `file`."""
    weight = (request.weight,) if request.weight else ()
    other_roles = {*request.targets, *weight, *request.ignore}
    names = request.features or tuple(n for n in arrow.names if n not in other_roles and not PANDAS_INDEX.fullmatch(n))
    if request.transitions and not request.features:
        names = request.transitions.features_among(names)
    for name in (*request.targets, *weight, *names, *request.categorical, *(request.rules.columns or ())):
        check_column(name, arrow, file)
    if not names:
        raise PartitionError(f"{file} has no feature column besides {', '.join(sorted(other_roles))}")
    _check_roles(request, names, file)
    for name in () if request.features else set(names) - set(request.categorical):
        _check_no_date(arrow.field(name), file)
    features = tuple(Feature(n, infer_kind(arrow.field(n), request.categorical, file)) for n in names)
    if error := request.rules.find_error(features):
        raise PartitionError(f"{file}: {error}")
    classes, kind = _infer_classes(request, arrow, file)
    transitions = request.transitions
    return Schema(
        target=request.target,
        positive=request.positive,
        features=features,
        ignore=request.ignore,
        weight=request.weight,
        classes=classes,
        class_kind=kind,
        folder_keys=tuple(n for n in names if folder_text(arrow.field(n)) is not None),
        ahead=transitions.columns_ahead(features, other_roles, arrow, file) if transitions else (),
        done=transitions.done if transitions else None,
    )


def _check_no_date(field: "pa.Field", file: str) -> None:
    """Raise PartitionError for a key of folders that is a date, which is another one in each later partition."""
    text = folder_text(field)
    if text is not None and is_date_text(text):
        raise PartitionError(
            f"{file}: the name of its folder, {field.name}={text}, would make a feature of a date, and no row that was "
            f"learned has that of a later folder: list {field.name!r} under source.ignore, or, to use it all the same, "
            "under source.features or source.categorical"
        )


def _infer_classes(request: SchemaRequest, arrow: "pa.Schema", file: str) -> tuple[Classes | None, str | None]:
    """Return the classes and their kind; for regression, raise PartitionError for a target that is not a number."""
    if request.classes is not None:
        (name,) = request.targets
        kind = infer_class_kind(arrow.field(name), file)
        listed = request.classes
        return (listed if isinstance(listed, str) else order_classes(kind, listed, name, file)), kind
    for name in request.targets if request.positive is None else ():
        kind = value_type(arrow.field(name))
        if not is_number(kind):
            remedy = (
                "write a number, such as seconds"
                if is_time(kind)
                else "if it holds classes, say which one counts as +1: source.positive, or learn each: source.classes"
            )
            raise PartitionError(
                f"{file}: the target {name!r} has type {shown_type(arrow.field(name))}, which is no number; {remedy}"
            )
    return None, None


def _check_roles(request: SchemaRequest, names: tuple[str, ...], file: str) -> None:
    """Raise PartitionError if a column has two roles, or is listed as categorical without being a feature."""
    roles = [*request.targets, *([request.weight] if request.weight else [])]
    others = [*roles, *request.ignore]
    clash = sorted(set(names) & set(others))
    if clash:
        raise PartitionError(f"{file}: column {clash[0]!r} is named as a feature and as target, weight or ignored")
    twice = next((n for role in (names, roles) for n in role if role.count(n) > 1), None)
    if twice is not None:
        raise PartitionError(f"{file}: column {twice!r} is named twice; give each column one role")
    stray = sorted(set(request.categorical) - set(names))
    if stray:
        raise PartitionError(f"{file}: column {stray[0]!r} is listed as categorical, but is not a feature")


def check_request(schema: Schema, request: SchemaRequest, store: str) -> None:
    """Raise SchemaMismatch naming the key if a later job declares other columns than the first ingest did."""
    for key in ("target", "positive", "classes", "weight"):
        before, now = getattr(schema, key), getattr(request, key)
        if _comparable(before) != _comparable(now):
            setting = f"without {key}" if before is None else f"with {key} = {before!r}"
            raise SchemaMismatch(
                f"the store {store} was made {setting}, the job says {'none' if now is None else repr(now)}; {_FIXED}"
            )
    _check_transitions(schema, request.transitions, store)
    if request.precision == DOUBLE != schema.precision:
        raise SchemaMismatch(
            f"the store {store} was made with precision float32, the job asks for source.precision = "
            f"{DOUBLE!r}; {_FIXED}"
        )
    names = {f.name for f in schema.features}
    if request.features and set(request.features) != names:
        different = sorted(set(request.features) ^ names)
        raise SchemaMismatch(
            f"the store {store} was made with other features: they differ in {', '.join(different)}; {_FIXED}"
        )
    ignored = sorted(set(request.ignore) & names)
    if ignored:
        raise SchemaMismatch(
            f"the store {store} was made with {ignored[0]!r} as a feature, the job ignores it; {_FIXED}"
        )
    if error := request.rules.find_error(schema.features):
        raise SchemaMismatch(f"the store {store} does not fit the job: {error}")
    plain = sorted(set(request.categorical) - {f.name for f in schema.categorical})
    if plain:
        raise SchemaMismatch(
            f"the store {store} was made with {plain[0]!r} as a number, the job calls it categorical; {_FIXED}"
        )


def _check_transitions(schema: Schema, request: TransitionRequest | None, store: str) -> None:
    """Raise SchemaMismatch if a later job declares other columns after a step than the first ingest did."""
    ahead = tuple(request.ahead_of(feature.name) for feature in schema.features) if request else ()
    if (ahead, request.done if request else None) != (schema.ahead, schema.done):
        was = f"source.next = {', '.join(schema.ahead)} and source.done = {schema.done}" if schema.ahead else "none"
        raise SchemaMismatch(f"the store {store} was made with other columns after a step: {was}; {_FIXED}")


def _comparable(value: Label | tuple[Label, ...] | None) -> tuple[bool, frozenset[tuple[bool, Label | None]]]:
    """Return a value that is equal for equal requests only: 1 differs from true, the order of a list is irrelevant."""
    listed = isinstance(value, tuple)
    return listed, frozenset((isinstance(v, bool), v) for v in (value if isinstance(value, tuple) else (value,)))
