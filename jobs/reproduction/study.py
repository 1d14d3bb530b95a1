"""Studies: a table of a paper, each cell of which is measured again, over several repeats."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats


@dataclass(frozen=True)
class Outcome:
    """One measurement of a cell."""

    error: float
    """The error, in the units of the study."""
    vectors: int
    """The number of basis vectors."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    name: str
    """The method, and where a study has several sizes or data sets, which."""
    published: str
    """The paper's value; "–" where it gives none."""
    measure: Callable[[int], Outcome]
    """Measures it for a repeat, from zero."""
    is_repeated: bool = True
    """Whether repeats differ."""


@dataclass(frozen=True)
class Study:
    """A table."""

    title: str
    """What it shows."""
    source: str
    """The paper, and where in it."""
    error: str
    """What the error is."""
    repeats: int
    """The number of repeats in the paper, or by default."""
    takes: str
    """About how long these take on one core."""
    settings: Callable[[], dict[str, Any]]
    """Computes what the paper gives, and what is chosen from training rows where it gives nothing."""
    cells: tuple[Cell, ...]
    """Its cells, in order."""


def summarize(cell: Cell, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the facts of a measured cell."""
    errors: Floats = np.array([outcome.error for outcome in outcomes])
    return {
        "name": cell.name,
        "published": cell.published,
        "mean": float(errors.mean()),
        "std": float(errors.std()),
        "vectors": float(np.mean([outcome.vectors for outcome in outcomes])),
        "repeats": len(outcomes),
    }
