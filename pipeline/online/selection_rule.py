"""Selection rules: which rows of the stream enter the dictionary, and what happens when it is full.

- `supervised`: Jung & Polani (2006). A row enters if it is novel and useful; when the dictionary is full, it may
  replace the weakest basis vector.
- `novelty`: approximate linear dependence, as in kernel recursive least squares (Engel, Mannor & Meir 2004, "The kernel
  recursive least-squares algorithm"). Every novel row enters until the dictionary is full; none is replaced. Departure:
  the coefficients minimize the regularized cost of the online LS-SVM, unless they are `unpenalized`.
- `fixed`: the dictionary is given, and no row changes it.
"""

import math
from dataclasses import dataclass
from typing import Literal

Selection = Literal["supervised", "novelty", "fixed"]
"""The name of a selection rule."""


@dataclass(frozen=True)
class SelectionRule:
    """How a learner decides on changes of its dictionary."""

    name: Selection
    """Its key in SELECTIONS."""
    grows: bool
    """Whether rows of the stream enter the dictionary at all."""
    tests_usefulness: bool
    """Whether a novel row must also be useful: TOL2."""
    replaces: bool
    """Whether a row may replace the weakest basis vector when the dictionary is full."""

    def least_usefulness(self, threshold: float) -> float:
        """Return what a candidate's novelty times its gain must exceed: `threshold`, or −∞ if it is not tested."""
        return threshold if self.tests_usefulness else -math.inf

    def is_closed(self, n_basis: int, max_basis: int | None) -> bool:
        """Whether no further row can change a dictionary of this size, so that rows need only be summed."""
        return not self.grows or (not self.replaces and max_basis is not None and n_basis >= max_basis)


SUPERVISED = SelectionRule("supervised", grows=True, tests_usefulness=True, replaces=True)
NOVELTY = SelectionRule("novelty", grows=True, tests_usefulness=False, replaces=False)
FIXED = SelectionRule("fixed", grows=False, tests_usefulness=False, replaces=False)

SELECTIONS: dict[Selection, SelectionRule] = {rule.name: rule for rule in (SUPERVISED, NOVELTY, FIXED)}
