"""Points at which a law is tested: some in the ordinary run, all others in the thorough one."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def points(values: Iterable[Any], ordinary: Collection[Any]) -> list[Any]:
    """Return the values as parameters of a test, in their order; those not among `ordinary` are marked thorough."""
    values = list(dict.fromkeys(values))
    assert {*ordinary} <= {*values}, "an ordinary point is none of the points"
    return [value if value in ordinary else _thorough(value) for value in values]


def _thorough(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.thorough)
