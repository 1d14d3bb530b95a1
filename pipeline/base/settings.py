"""Settings classes: frozen dataclasses from which sections of job files, records and the reference are made.

Each setting is declared once, in the class of its method: its name, bounded type, default, and docstring.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from itertools import pairwise
from types import NoneType
from typing import Annotated, Any, Literal, get_type_hints

from annotated_types import Ge, Gt, Lt

from ridgestream.pipeline.base.bounds import alternatives_of, describe

Count = Annotated[int, Ge(1)]
"""A whole number of at least one."""

CountOrAll = Count | Literal["all"]
"""A whole number of at least one, or "all"."""

Positive = Annotated[float, Gt(0)]
"""A number above zero."""

NotNegative = Annotated[float, Ge(0)]
"""A number of at least zero."""

Share = Annotated[float, Ge(0), Lt(1)]
"""A fraction below one."""


@dataclass(frozen=True)
class Internal:
    """Marks a field that job files cannot set: a limit of the process, or a choice that does not change the model."""


@dataclass(frozen=True)
class Setting:
    """One setting, as its class defines it."""

    name: str
    """Its key."""
    owner: type
    """The class of its method."""
    type: Any
    """Its type, with bounds."""
    default: Any
    """Its default; MISSING for none."""

    @property
    def sentence(self) -> str:
        """What it means."""
        return sentences_of(self.owner).get(self.name, "")

    @property
    def bounds(self) -> str:
        """What a value must be, such as "a whole number of at least 1"."""
        parts = [describe(alternative) for alternative in alternatives_of(self.type) if alternative is not NoneType]
        return " or ".join(part or "any" for part in parts)


def settings_of(kind: type) -> tuple[Setting, ...]:
    """Return the settings of a class and of its bases in the order of the fields, internal ones left out."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        Setting(item.name, kind, hints[item.name], _default(item))
        for item in fields(kind)
        if not _is_internal(hints[item.name])
    )


def _is_internal(hint: Any) -> bool:  # noqa: ANN401
    return any(isinstance(marker, Internal) for marker in getattr(hint, "__metadata__", ()))


def _default(item: "Field[Any]") -> Any:  # noqa: ANN401
    return item.default_factory() if item.default_factory is not MISSING else item.default


@cache
def sentences_of(kind: type) -> dict[str, str]:
    """Return the docstring below each field of a class, or else of its bases; parses their source, some milliseconds.

    Classes that were made at run time have no source, and no sentences.
    """
    sentences: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        with suppress(OSError, TypeError):
            sentences |= dict(_own_sentences(base))
    return sentences


def _own_sentences(kind: type) -> Iterator[tuple[str, str]]:
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for field, below in pairwise(statements):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            text = below.value.value if isinstance(below.value, ast.Constant) else ""
            yield field.target.id, inspect.cleandoc(str(text))
