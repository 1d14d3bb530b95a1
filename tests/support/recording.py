"""A reporter that remembers what it was told."""

from dataclasses import dataclass, field

from ridgestream.pipeline.reporting import Fact, Silent


@dataclass
class Told(Silent):
    """What was said, in order."""

    said: list[tuple[str, dict[str, Fact]]] = field(default_factory=list)

    def say(self, message: str, **facts: Fact) -> None:
        self.said.append((message, facts))
