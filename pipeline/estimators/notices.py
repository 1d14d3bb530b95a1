"""What a training says to the user of an estimator: a warning where something may have impaired the model."""

import logging
from collections.abc import Sequence

from ridgestream.pipeline.base.errors import warn_caller
from ridgestream.pipeline.base.events import FEATURES_TIMES_AS_CALENDAR, Event
from ridgestream.pipeline.base.reporter import Fact, Silent
from ridgestream.stores.schema.column_types import TIMESTAMP
from ridgestream.stores.schema.schema import Feature

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


def warn_of_times(features: Sequence[Feature], timestamps: str | None) -> None:
    """Warn of time stamps that become circles of the calendar unasked."""
    names = [feature.name for feature in features if feature.kind == TIMESTAMP]
    if names and timestamps is None:
        remedy = 'timestamps="elapsed" or "both" follows it, and "calendar" leaves out this warning'
        warn_caller(f"columns {', '.join(names)}: {FEATURES_TIMES_AS_CALENDAR.sentence}; {remedy}")


def _sentence(event: Event, facts: dict[str, Fact]) -> str:
    listed = ", ".join(f"{name}={value}" for name, value in facts.items())
    return f"{event.sentence} ({listed})" if listed else event.sentence
