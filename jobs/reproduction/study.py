"""Studies: a table of a paper, each cell of which is measured again, over several repeats."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgestream.jobs.reproduction.data import DataFolder
from ridgestream.pipeline.base.array_checks import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Published:
    """A paper's value."""

    error: float
    """Its error."""
    std: float | None = None
    """Its standard deviation."""
    vectors: float | None = None
    """Its number of vectors, or their share, in the units of the study."""

    def __str__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std:g}"
        return f"{self.error:g}{spread}" + ("" if self.vectors is None else f" ({self.vectors:g})")


@dataclass(frozen=True)
class Outcome:
    """One measurement of a cell."""

    error: float
    """The error, in the units of the study."""
    vectors: float
    """The number of basis vectors, or their share."""
    better: dict[str, float] = field(default_factory=dict)
    """Errors with as many vectors, by what is done beyond the paper."""
    curve: dict[str, list[float]] = field(default_factory=dict)
    """Columns for the picture, and further facts of this measurement."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    name: str
    """The method, and where a study has several sizes or data sets, which."""
    published: Published | None = None
    """The paper's value; None where it gives none."""


@dataclass(frozen=True)
class Bench:
    """What a measurement begins with."""

    data: DataFolder
    """The sets of rows."""
    chosen: dict[str, Any]
    """The settings that were chosen from training rows."""


@dataclass(frozen=True)
class Measurement:
    """What is measured at once."""

    cells: tuple[Cell, ...]
    """The cells."""
    measure: Callable[[Bench, int], tuple[Outcome, ...]]
    """Measures them for a repeat, from zero."""
    repeats: int | None = None
    """The most repeats: one where they do not differ, few where each takes long; None for those of the study."""
    uses: tuple[str, ...] | None = None
    """The names of the choices that it uses; None for all."""


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
    given: Mapping[str, Any]
    """The settings that the paper gives, and those that are stated here."""
    choices: Mapping[str, Callable[[DataFolder], Any]]
    """Computes from training rows what the paper leaves open, by name."""
    measurements: tuple[Measurement, ...]
    """What is measured, in order."""
    needs: tuple[str, ...] = ()
    """The sets of rows that it reads, files NAME.parquet of the data folder."""
    draw: "Callable[[Figure, dict[str, list[Outcome]]], None] | None" = None
    """Draws the picture from the outcomes by cell."""
    drawn: tuple[str, ...] | None = None
    """The cells that the picture cannot do without; None for all."""
    findings: str = ""
    """What the figures show, in Markdown."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell, in order."""
        return tuple(cell for measurement in self.measurements for cell in measurement.cells)


def summarize(cell: Cell, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the facts of a measured cell."""
    errors: Floats = np.array([outcome.error for outcome in outcomes])
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.better)
    better = {name: [outcome.better[name] for outcome in outcomes if name in outcome.better] for name in names}
    return {
        "name": cell.name,
        "published": "–" if cell.published is None else str(cell.published),
        "mean": float(errors.mean()),
        "std": float(errors.std()),
        "vectors": float(np.mean([outcome.vectors for outcome in outcomes])),
        "better": {name: float(np.mean(values)) for name, values in better.items()},
        "deviations": _deviations(cell.published, float(errors.mean())),
        "repeats": len(outcomes),
    }


def _deviations(published: Published | None, mean: float) -> float | None:
    """Return how many of the paper's standard deviations the mean is above its value; None if it gives none."""
    if published is None or not published.std:
        return None
    return (mean - published.error) / published.std
