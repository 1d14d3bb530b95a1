"""What every section of a job file is made of: strict, frozen, and no boolean where a number is meant."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from ridgestream.pipeline.base.settings import sentences_of

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Level = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Text, ...], Field(min_length=1)]
Grid = Annotated[tuple[Positive, ...], Field(min_length=1)]

LABELS = ("positive", "classes")
"""Keys whose values are labels, which may be booleans."""

_BOOLEANS = (*LABELS, "refit", "gcv", "anonymous", "ordered", "proba")


def refuse_boolean(value: object, info: ValidationInfo) -> object:
    """Take no boolean for a number: a λ of `true` would be 1."""
    if isinstance(value, bool) and info.field_name not in _BOOLEANS:
        raise ValueError("a boolean is no value for it")
    return value


def describe_keys(schema: dict[str, Any], section: type) -> None:
    """Add to a section's schema the sentences below its keys; read only for the reference, not by each command."""
    for name, sentence in sentences_of(section).items():
        schema["properties"].get(name, {}).setdefault("description", sentence)


def described(default: Any, sentence: Callable[[], str]) -> Any:  # noqa: ANN401
    """Return a key with this default, whose sentence is asked for only by the reference."""
    return Field(default=default, json_schema_extra=lambda schema: schema.update(description=sentence()))


class Section(BaseModel):
    """A table of a job file."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=describe_keys)

    @model_validator(mode="before")
    @classmethod
    def _take_back(cls, keys: object) -> object:
        """Leave out keys without a value: `--set KEY=` takes back what the file says."""
        return {k: v for k, v in keys.items() if v is not None} if isinstance(keys, dict) else keys

    _refuse_booleans = field_validator("*", mode="before")(refuse_boolean)
