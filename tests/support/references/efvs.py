"""EFVS the slow way: J(S) of the paper by a solve for every candidate, from the whole kernel matrix."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from support.references.forward_selection import Choices, note, novelty

from ridgestream.pipeline.selection.candidate_rounds import draw_round, draw_unchosen

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DenseEFVS:
    """The kernel matrix of all rows, and what is asked."""

    K: Array
    """(rows, rows)."""
    weights: Array
    """(rows,)."""
    spanned_threshold: float

    def mean_explained(self, chosen: Sequence[int], over: Sequence[int]) -> float:
        """J(S), the mean being over the rows `over`."""
        shown = [i for i in over if self.weights[i] > 0 and self.K[i, i] > 0]
        k = self.K[np.ix_(list(chosen), shown)]
        explained = np.sum(k * np.linalg.solve(self.K[np.ix_(chosen, chosen)], k), axis=0) if len(chosen) else 0.0
        w = self.weights[shown]
        return float(np.sum(w * explained / np.diagonal(self.K)[shown]) / w.sum())

    def choose(
        self, max_basis: int, candidates: int | None, sample: int | None, seed: int, rounds: int, pool: str = "all"
    ) -> tuple[Choices, list[float]]:
        """Choose, and return 1 − J after each choice; from the pool "unchosen", as many candidates in every round."""
        n_rows, choices, errors = len(self.K), Choices([], []), list[float]()
        for number in range(rounds):
            if len(choices.places) == max_basis:
                break
            drawn = draw_round(seed, number, n_rows, candidates or n_rows).tolist()
            if pool == "unchosen" and candidates and candidates < n_rows:
                order = draw_unchosen(seed, number, n_rows, n_rows, np.empty(0, np.int64)).tolist()
                drawn = sorted([place for place in order if place not in choices.places][:candidates])
            over = draw_round(seed, number, n_rows, sample or n_rows, stream=1).tolist()
            left = [i for i in over if self.weights[i] > 0 and self.open(choices.places, i)]
            if not left:
                continue
            before, size = self.mean_explained(choices.places, left), len(choices.places)
            usable = [
                c for c in drawn if self.weights[c] > 0 and c not in choices.places and self.open(choices.places, c)
            ]
            note(choices, {c: self.mean_explained([*choices.places, c], left) - before for c in usable})
            if len(choices.places) > size:
                errors.append(1 - self.mean_explained(choices.places, over))
        return choices, errors

    def open(self, chosen: Sequence[int], candidate: int) -> bool:
        """Whether the chosen do not span the candidate."""
        return bool(self.K[candidate, candidate] > 0) and novelty(self.K, chosen, candidate) > self.spanned_threshold
