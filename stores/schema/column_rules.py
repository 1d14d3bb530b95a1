"""How columns become features of a model: a rule for each kind of column, and exceptions by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.schema.column_types import CATEGORICAL, TIMESTAMP
from ridgestream.stores.schema.field_types import check_types, strictly_typed

if TYPE_CHECKING:
    from ridgestream.stores.schema.schema import Feature

PLAIN, STANDARDIZED, COMMON, RAW = "plain", "standardized", "common", "raw"
CALENDAR, ELAPSED, BOTH = TIMESTAMPS = "calendar", "elapsed", "both"
COLUMNS = "columns"
"""The scaling by which each number has a scale of its own."""

SOURCE = "source"
"""The parameter of a model with its rules."""

_RULES = {CATEGORICAL: (PLAIN, STANDARDIZED), TIMESTAMP: TIMESTAMPS}
_OF_NUMBERS = (STANDARDIZED, COMMON, RAW)


@strictly_typed
@dataclass(frozen=True)
class ColumnRules:
    """The rules of a model, or what a job says of them: None where it says nothing."""

    indicators: str | None = None
    """Indicators of categories: PLAIN, 0 and 1, or STANDARDIZED."""
    scaling: str | None = None
    """Numbers and booleans: COLUMNS, each standardized by itself, or COMMON, all divided by one scale."""
    timestamps: str | None = None
    """Time stamps: CALENDAR, circles of hour, weekday and day of the year; ELAPSED, standardized seconds; or BOTH."""
    columns: Mapping[str, str] | None = None
    """Columns with a rule of their own: a number or boolean STANDARDIZED, COMMON or RAW, left as it is."""

    def within(self, known: Self) -> Self:
        """Return the rules with those of `known` where nothing is said."""
        return replace(known, **{name: value for name, value in vars(self).items() if value is not None})

    def parameters(self) -> dict[str, Any]:
        """Return the rules as a model's record keeps them."""
        return {**vars(self), "columns": dict(self.columns or {})}

    def rule_of(self, feature: "Feature") -> str | None:
        """Return the rule of a feature."""
        numbers = STANDARDIZED if self.scaling == COLUMNS else self.scaling
        of_kind = {CATEGORICAL: self.indicators, TIMESTAMP: self.timestamps}.get(feature.kind, numbers)
        return (self.columns or {}).get(feature.name, of_kind)

    def find_error(self, features: "Sequence[Feature]") -> str:
        """Return what is wrong with the exceptions for these features; empty if nothing is."""
        kinds = {feature.name: feature.kind for feature in features}
        for name, rule in (self.columns or {}).items():
            if name not in kinds:
                return f"source.columns has a rule for {name!r}, which is no feature"
            allowed = _RULES.get(kinds[name], _OF_NUMBERS)
            if rule not in allowed:
                return (
                    f"source.columns has the rule {rule!r} for {name!r}, which is {kinds[name]}: such a column is "
                    f"{', '.join(allowed[:-1])} or {allowed[-1]}"
                )
        return ""


OF_NEW_MODELS = ColumnRules(PLAIN, COLUMNS, CALENDAR, {})
"""What holds for a new model where its job says nothing."""

OF_OLDER_MODELS = ColumnRules(STANDARDIZED, COLUMNS, ELAPSED, {})
"""What holds for a model whose record says nothing."""


def rules_of(parameters: Mapping[str, Any]) -> ColumnRules:
    """Return the rules of a model with these parameters; raises ModelError if they are damaged."""
    if SOURCE not in parameters:
        return OF_OLDER_MODELS
    try:
        rules = ColumnRules(**parameters[SOURCE])
        check_types(rules)
    except TypeError as error:
        raise ModelError(f"the record of a model is damaged: its rules of columns are none: {error}") from error
    return rules


def with_rules(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a model with its rules among them, as those of older releases have not."""
    return {**parameters, SOURCE: rules_of(parameters).parameters()}
