"""A reporter that records its calls, and an executor that is killed."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ridgestream.pipeline.base.events import Event, Step
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Fact

LINE_KEYS = {"timestamp", "level", "event", "message", "run"}
"""What each line of a log has besides the facts of its event."""


@dataclass
class Notes:
    """A reporter that records steps, rows, and the codes of events with their facts."""

    steps: list[str] = field(default_factory=list)
    rows: int = 0
    events: list[tuple[str, dict[str, Fact]]] = field(default_factory=list)
    ended: list[dict[str, Fact]] = field(default_factory=list)

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:  # noqa: ARG002
        self.steps.append(step.code)

    def advance(self, rows: int, **facts: Fact) -> None:  # noqa: ARG002
        self.rows += rows

    def end(self, **facts: Fact) -> None:
        self.ended.append(facts)

    def say(self, event: Event, **facts: Fact) -> None:
        assert not facts.keys() & LINE_KEYS, f"{event.code}: a line of the log has these keys already"
        self.events.append((event.code, facts))

    warn = say

    @property
    def codes(self) -> list[str]:
        """The codes of all events."""
        return [code for code, _ in self.events]

    def all(self, code: str) -> list[dict[str, Fact]]:
        """The facts of each event of this code."""
        return [facts for other, facts in self.events if other == code]

    def facts(self, code: str) -> dict[str, Fact]:
        """The facts of the one event of this code."""
        (facts,) = self.all(code)
        return facts


class Killed(InProcess):
    """An executor that is killed after some tasks, and counts those that are done."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after, self.done = after, 0

    def run(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:
        for result in super().run(function, tasks, *shared):
            if self.done == self.after:
                raise KeyboardInterrupt
            self.done += 1
            yield result


NEVER = -1
"""The `after` of an executor that is never killed and only counts tasks."""
