"""Candidates with different kernels, of which only those that may still be chosen keep their sums in memory."""

from ridgestream.pipeline.metric.candidate import Candidate, JudgedErrors, Verdict

FLAT_SHARE = 0.02
"""The share of an error by which candidates differ at most where none is seen to be better."""


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
