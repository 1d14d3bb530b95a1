"""The machine's clock beside the times of commits: each commit must be later than the one before it.

Clocks of machines differ by seconds, which are waited for; what differs by more is wrong somewhere.
"""

import logging
from datetime import UTC, datetime
from time import sleep

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.requests.activity import ACTIVITY

MAX_BEHIND_SECONDS = 60.0
"""How far this machine's clock may be behind the last commit."""

_TICK_SECONDS = 0.01
_log = logging.getLogger(__name__)


def await_clock(last_commit_at: datetime) -> None:
    """Wait until this machine's clock is past the last commit's time, and log that; raises StoreError if it is far off.

    At most MAX_BEHIND_SECONDS are waited for each commit of another machine: the process's own are in order.
    """
    behind = seconds_behind(last_commit_at)
    if behind < 0:
        return
    if behind > MAX_BEHIND_SECONDS:
        raise StoreError(
            f"this machine's clock is {behind:,.0f} s behind the last commit, of {last_commit_at:%Y-%m-%d %H:%M:%S} "
            "UTC: set the clock (is it synchronized, by NTP?), here or on the machine that made that commit"
        )
    if behind >= 1:
        _log.warning("this machine's clock is %.0f s behind the last commit; waiting until it is past it", behind)
    with ACTIVITY.paused():
        while (behind := seconds_behind(last_commit_at)) >= 0:
            sleep(min(1.0, behind + _TICK_SECONDS))


def seconds_behind(moment: datetime) -> float:
    """Return how long ago, by this machine's clock, a moment is, as a negative number; positive if it is to come."""
    return (moment - datetime.now(UTC)).total_seconds()
