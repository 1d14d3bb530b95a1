"""Selection rules: which rows of the stream enter the dictionary, and what happens when it is full.

- `supervised`: Jung & Polani (2006). A row enters if it is novel and useful; at the cap it may replace the weakest.
- `novelty`: approximate linear dependence, as in kernel recursive least squares (Engel, Mannor & Meir 2004, "The kernel
  recursive least-squares algorithm"). Every novel row enters, none is replaced; at the cap the dictionary stays as it
  is. Departure: the coefficients minimize the regularized cost of the online LS-SVM.
- `fixed`: the dictionary is given, and no row changes it.
"""

import math
from dataclasses import dataclass

from ridgestream.pipeline.base.errors import InputError


@dataclass(frozen=True)
class SelectionRule:
    """What a learner asks before it changes its dictionary."""

    name: str
    """Its key in SELECTIONS."""
    grows: bool
    """Whether rows of the stream enter the dictionary at all."""
    asks_usefulness: bool
    """Whether a novel row must also be useful: TOL2."""
    replaces: bool
    """Whether a row may take the place of the weakest basis vector where the dictionary is full."""

    def usefulness_bar(self, threshold: float) -> float:
        """Return what a candidate's novelty times its gain must exceed: `threshold`, or −∞ if nobody asks."""
        return threshold if self.asks_usefulness else -math.inf

    def is_closed(self, n_basis: int, max_basis: int | None) -> bool:
        """Tell whether no row can change a dictionary of this size any more: absorbing needs only sums then."""
        return not self.grows or (not self.replaces and max_basis is not None and n_basis >= max_basis)


SUPERVISED = SelectionRule("supervised", grows=True, asks_usefulness=True, replaces=True)
NOVELTY = SelectionRule("novelty", grows=True, asks_usefulness=False, replaces=False)
FIXED = SelectionRule("fixed", grows=False, asks_usefulness=False, replaces=False)

SELECTIONS: dict[str, SelectionRule] = {rule.name: rule for rule in (SUPERVISED, NOVELTY, FIXED)}


def selection_rule(name: str) -> SelectionRule:
    """Return the rule called `name`; raise InputError if there is none."""
    if name not in SELECTIONS:
        raise InputError(f"selection must be one of {', '.join(SELECTIONS)}, it is {name!r}")
    return SELECTIONS[name]
