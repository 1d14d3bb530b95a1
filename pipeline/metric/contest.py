"""The kernels that are compared, and their candidates, of which only those that may be chosen keep their sums."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.metric.candidate import Candidate, JudgedErrors, Verdict

GAMMAS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""γ that the first round compares, in units of one over the number of features; the best at an edge widens the grid."""

REGULARIZATIONS = tuple(10.0**power for power in range(-9, 2))
"""λ per row that the first round compares; a later one compares those near the last choice."""

WIDEST, NARROWEST = 2.0**-10, 2.0**10
"""Where the grid ends."""

LEAP = 4.0
"""The factor of γ where a neighbour promises nothing."""

FLAT_SHARE = 0.02
"""The share of an error by which candidates differ at most where none is seen to be better."""


@dataclass(frozen=True)
class KernelFamily:
    """The kernels among which a pilot chooses."""

    make: Callable[[float | None], Kernel]
    """Returns the kernel of a γ; None for a kernel without."""
    n_features: int
    """The number of features."""
    chooses: bool = True
    """Whether γ is chosen."""
    given: tuple[float | None, ...] = (None,)
    """The values of γ that are compared otherwise; None alone for a kernel without."""

    def of_rounds(self) -> "KernelFamily":
        """Return the kernels of the rounds of a metric, of any γ: a given one is meant for the last metric."""
        return replace(self, chooses=self.chooses or self.given != (None,))

    def first_grid(self) -> tuple[float | None, ...]:
        """Return the values of γ to begin with."""
        return tuple(gamma / self.n_features for gamma in GAMMAS) if self.chooses else self.given

    def around(self, gamma: float | None) -> tuple[float | None, ...]:
        """Return the values to compare after a choice: itself, and where γ is chosen, its neighbours."""
        return (gamma / 2, gamma, 2 * gamma) if self.chooses and gamma is not None else (gamma,)

    def neighbour(self, judged: Collection[float | None], best: float | None) -> float | None:
        """Return a neighbour of the best value that is not yet judged; None if both are, or where γ is given."""
        if not self.chooses or best is None:
            return None
        near = (gamma for gamma in (2 * best, best / 2) if WIDEST <= gamma * self.n_features <= NARROWEST)
        return next((gamma for gamma in near if gamma not in judged), None)

    def narrower(self, gamma: float | None) -> float | None:
        """Return the double of a chosen γ; None beyond the grid's end, or where γ is given."""
        chooses = self.chooses and gamma is not None and 2 * gamma * self.n_features <= NARROWEST
        return 2 * gamma if chooses and gamma is not None else None

    def far_narrower(self, judged: Collection[float | None]) -> float | None:
        """Return LEAP times the largest γ judged, at least the grid's first; None beyond the grid's end."""
        narrowest = max((gamma for gamma in judged if gamma is not None), default=0.0)
        gamma = LEAP * max(narrowest, WIDEST / self.n_features)
        return gamma if self.chooses and gamma * self.n_features <= NARROWEST else None


class Contest:
    """Candidates by γ, judged in the order in which they enter."""

    def __init__(self) -> None:
        self.entered: list[float | None] = []
        """The γ of every candidate so far."""
        self._errors: dict[float | None, JudgedErrors] = {}
        self._held: dict[float | None, Candidate] = {}

    def enter(self, gamma: float | None, candidate: Candidate | None) -> None:
        """Add a candidate; None stands for one that cannot be judged."""
        self.entered.append(gamma)
        if candidate is not None:
            self._errors[gamma], self._held[gamma] = candidate.errors, candidate
            gammas, verdict = list(self._errors), self.verdict
            self._held = {each: self._held[each] for each in {gammas[verdict.pooled], gammas[verdict.later]}}

    @property
    def verdict(self) -> Verdict:
        """Which of the candidates that can be judged is best."""
        return Verdict.of(list(self._errors.values()))

    @property
    def is_flat(self) -> bool:
        """Whether all candidates are about as good, or as bad, as the best one."""
        errors = [each.pooled for each in self._errors.values()]
        return bool(errors) and max(errors) <= (1 + FLAT_SHARE) * min(errors)

    @property
    def best(self) -> Candidate | None:
        """The best candidate; None if none can be judged."""
        return self._held[list(self._errors)[self.verdict.index]] if self._errors else None


def near_regularizations(regularization: float, steps: int) -> tuple[float, ...]:
    """Return the λ of the grid that are at most so many steps away."""
    position = REGULARIZATIONS.index(regularization)
    return REGULARIZATIONS[max(position - steps, 0) : position + steps + 1]
