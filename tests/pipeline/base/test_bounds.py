"""Bounds declared in annotations are checked, each with a message that names field, bound and value."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from annotated_types import Ge, Gt, Le

from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.base.errors import InputError


@dataclass(frozen=True)
class Settings:
    scale: Annotated[float, Gt(0)] = 1.0
    floor: Annotated[float, Ge(0)] = 0.0
    share: Annotated[float, Ge(0), Le(1)] = 0.5
    size: Annotated[int, Ge(2)] | None = None
    rule: Literal["one", "other"] = "one"
    note: str = ""


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"share": 1},
        {"scale": np.float32(0.5), "floor": 3},
        {"size": 2, "rule": "other"},
        {"size": np.int64(7), "note": "any"},
    ],
)
def test_values_within_their_bounds_pass(values: dict[str, Any]) -> None:
    check_bounds(Settings(**values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"scale": 0.0}, "^scale must be a positive number, it is 0.0$"),
        ({"scale": float("inf")}, "^scale must be a positive number, it is inf$"),
        ({"scale": None}, "^scale must be a positive number, it is None$"),
        ({"floor": -1}, "^floor must be zero or positive, it is -1$"),
        ({"floor": "x"}, "^floor must be zero or positive, it is 'x'$"),
        ({"share": 1.01}, "^share must be from 0 to 1, it is 1.01$"),
        ({"share": -0.1}, "^share must be from 0 to 1, it is -0.1$"),
        ({"size": 1}, "^size must be a whole number of at least 2, or None for no bound; it is 1$"),
        ({"size": 2.0}, "^size must be a whole number of at least 2, or None for no bound; it is 2.0$"),
        ({"rule": "third"}, "^rule must be one of one, other, it is 'third'$"),
    ],
)
def test_a_value_outside_its_bounds_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_bounds(Settings(**values))
