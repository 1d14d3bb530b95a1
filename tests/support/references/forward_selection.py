"""Forward selection the slow way: every candidate's cost is that of a fit of its own, one candidate after another."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Choices:
    """What was chosen, and how clear that was."""

    places: list[int]
    """In order."""
    margins: list[float]
    """By which share of the best candidate's gain the second best's is smaller, one a choice."""


def fitted_gain(normal: Array, rhs: Array, chosen: Sequence[int]) -> float:
    """Return zᵀP⁻¹z of these columns, summed over targets: by how much they lower the cost."""
    P, z = normal[np.ix_(chosen, chosen)], rhs[list(chosen)]
    return float(np.sum(z * np.linalg.solve(P, z))) if len(chosen) else 0.0


def novelty(matrix: Array, chosen: Sequence[int], candidate: int) -> float:
    """Return the share of the candidate's diagonal entry that the chosen columns leave."""
    if not len(chosen):
        return 1.0
    across = matrix[list(chosen), candidate]
    explained = across @ np.linalg.solve(matrix[np.ix_(chosen, chosen)], across)
    return float(1 - explained / matrix[candidate, candidate])


def choose_slowly(
    normal: Array, rhs: Array, rounds: Iterable[Iterable[int]], n_wanted: int, least_share: float = 1e-10
) -> Choices:
    """Choose, in each round, the candidate whose fit together with the chosen has the lowest cost."""
    choices = Choices([], [])
    for allowed in rounds:
        if len(choices.places) == n_wanted:
            break
        gains = {}
        before = fitted_gain(normal, rhs, choices.places)
        for candidate in allowed:
            if candidate not in choices.places and novelty(normal, choices.places, candidate) > least_share:
                gains[candidate] = fitted_gain(normal, rhs, [*choices.places, candidate]) - before
        note(choices, gains)
    return choices


def note(choices: Choices, gains: dict[int, float]) -> None:
    """Add the best candidate, if there is one; the first wins a tie."""
    if gains:
        best = max(gains, key=lambda candidate: gains[candidate])
        others = [gain for candidate, gain in gains.items() if candidate != best]
        choices.places.append(best)
        choices.margins.append(1 - max(others) / gains[best] if others and gains[best] > 0 else 1.0)
