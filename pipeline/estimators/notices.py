"""What a training says to the user of an estimator: a warning where something may have impaired the model."""

import logging

from ridgestream.pipeline.base.errors import warn_caller
from ridgestream.pipeline.base.events import Event
from ridgestream.pipeline.base.reporter import Fact, Silent

LOG = logging.getLogger("ridgestream")


class Notices(Silent):
    """Warns with an InputWarning of what may have impaired a model, and logs all other events."""

    def say(self, event: Event, **facts: Fact) -> None:
        """Log an event."""
        LOG.info(_sentence(event, facts))

    def warn(self, event: Event, **facts: Fact) -> None:
        """Warn of an event that casts doubt on the model; log another one."""
        if event.casts_doubt:
            warn_caller(_sentence(event, facts))
        else:
            LOG.info(_sentence(event, facts))


def _sentence(event: Event, facts: dict[str, Fact]) -> str:
    told = ", ".join(f"{name}={value}" for name, value in facts.items())
    return f"{event.sentence} ({told})" if told else event.sentence
