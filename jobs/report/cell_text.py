"""The cells of local experts in words: which are weak, starved or busy."""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

NAMED = 5
"""Cells of a kind that are named at most; the JSON has all."""


def notable_cells(cells: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the weakest, the most starved and the busiest cells, each with why it is named."""
    if not cells:
        return []
    known = [each for each in cells["cells"] if each["error"] is not None]
    weakest = sorted(known, key=itemgetter("error"), reverse=True)
    starved = sorted((cells["cells"][number] for number in cells["starved"]), key=itemgetter("rows"))
    busiest = sorted(cells["cells"], key=itemgetter("rows"), reverse=True)
    kinds = (("weakest", weakest), ("starved", starved), ("busiest", busiest))
    return [(kind, each) for kind, some in kinds for each in some[:NAMED]]


def sentences_of_cells(facts: dict[str, Any]) -> Iterator[str]:
    """Yield which cells have by far the largest errors, and which have too few rows; nothing for one dictionary."""
    cells = facts["cells"]
    if not cells:
        return
    if cells["weak"]:
        yield f"Weak cells, with more than twice the error of all: {_named(cells['weak'])}."
    if cells["starved"]:
        yield f"Starved cells, with few rows for their vectors or none: {_named(cells['starved'])}."


def _named(numbers: list[int]) -> str:
    more = f" and {len(numbers) - NAMED} more of {len(numbers)}" if len(numbers) > NAMED else ""
    return ", ".join(map(str, numbers[:NAMED])) + more
