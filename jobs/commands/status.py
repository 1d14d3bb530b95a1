"""The status command: one line and an exit code for monitors, from the store and the reports of failures alone."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.report.failed_reports import last_failure
from ridgestream.jobs.runs.health import Health, read_health
from ridgestream.jobs.runs.shortcomings import Shortfall
from ridgestream.jobs.runs.trivial_errors import skill_of_night
from ridgestream.stores.catalog.models import Night
from ridgestream.stores.errors.exceptions import StoreError

OK = "ok"
STORE, FAILED, FEED, MODEL, GUARD, DRIFT, QUALITY = "store", "failed", "feed", "model", "guard", "drift", "quality"
"""What may be wrong, the worst first."""

_SEVERITY = (STORE, FAILED, FEED, MODEL, GUARD, DRIFT, QUALITY)
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_NAMED = 3
"""Suspect partitions that are named at most."""

_MAX_REASON_CHARACTERS = 200


@dataclass(frozen=True)
class Problem:
    """Something that is wrong."""

    kind: str
    """One of _SEVERITY."""
    message: str
    """What, in one line."""


def parse_age(text: str) -> timedelta | None:
    """Return the age that a text such as 90m, 36h or 7d names, None for "none"; raises JobFileError for another one."""
    if text == "none":
        return None
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([mhd])", text)
    if match is None:
        raise JobFileError(
            f"--max-age is a number of minutes, hours or days, such as 90m, 36h or 7d, or none; it is {text!r}"
        )
    return timedelta(**{_UNITS[match[2]]: float(match[1])})


def run_status(job: Job, max_age: timedelta | None, now: datetime | None = None) -> dict[str, Any]:
    """Return the status of the job and what is wrong, worst first; reads no row, and changes nothing.

    `max_age` is how long ago the model may have learned a new partition.
    """
    now, facts = now or datetime.now(UTC), {"model": job.model.name, "store": job.store}
    try:
        health = read_health(job)
    except StoreError as error:
        return _status(facts, [Problem(STORE, _one_line(error))], str(error))
    facts |= _facts(health, now)
    problems = [*_failures(job, health), *_problems(health, max_age, now)]
    return _status(facts, problems, _summary(health, now))


def _status(facts: dict[str, Any], problems: list[Problem], summary: str) -> dict[str, Any]:
    ranked = sorted(problems, key=lambda problem: _SEVERITY.index(problem.kind))
    status = ranked[0].kind if ranked else OK
    message = "; ".join(problem.message for problem in ranked) or summary
    named = [{"kind": problem.kind, "message": problem.message} for problem in ranked]
    return {"status": status, "message": message, "problems": named} | facts


def _facts(health: Health, now: datetime) -> dict[str, Any]:
    night, fed_at = health.night, health.fed_at
    return {
        "store": health.store.location.text,
        "night": night.number if night else None,
        "finished_at": night.finished_at if night else None,
        "fed_at": fed_at.isoformat() if fed_at else None,
        "fed_hours_ago": round((now - fed_at) / timedelta(hours=1), 2) if fed_at else None,
        "served_night": health.served_night,
        "suspects": len(health.suspects),
        "drifting": list(health.drifting),
        "quarantined": len(health.ledger.quarantined),
        "partitions": len(health.ledger.entries),
        "rows": health.ledger.rows,
        "test_error": night.test_error if night else None,
        "test_mse": night.test_mse if night else None,
        "skill": skill_of_night(night) if night else None,
    }


def _failures(job: Job, health: Health) -> Iterator[Problem]:
    """Yield the last failure, if it is newer than the last commit, or if the last night has learned but failed then."""
    try:
        failure = last_failure(job)
    except (OSError, StoreError) as error:
        yield Problem(FAILED, f"the reports of failures cannot be read: {_one_line(error)}")
        return
    finished = health.finished_at
    if failure and (finished is None or datetime.fromisoformat(failure["finished_at"]) >= finished):
        yield Problem(FAILED, f"the run of {failure['finished_at']} failed: {_one_line(failure.get('failure', ''))}")
    elif health.failure:
        yield Problem(FAILED, f"the last night has learned, but failed then: {_one_line(health.failure)}")


def _problems(health: Health, max_age: timedelta | None, now: datetime) -> Iterator[Problem]:
    night, fed_at = health.night, health.fed_at
    if night is None:
        yield Problem(MODEL, "there is no model of this name in the store yet")
        return
    if max_age is not None and fed_at is not None and now - fed_at > max_age:
        yield Problem(
            FEED, f"no new partition for {_show(now - fed_at)} (--max-age {_show(max_age)}): is the feed broken?"
        )
    if health.is_held_back:
        served = health.served_night
        yield Problem(
            GUARD, f"the guard holds the model of night {night.number} back; that of night {served} is served"
        )
    if health.suspects:
        names, more = health.suspects[:_NAMED], len(health.suspects) - _NAMED
        shown = ", ".join(names) + (f" and {more} more" if more > 0 else "")
        yield Problem(DRIFT, f"drift in night {night.number}: {shown} unlike the partitions before")
    yield from (Problem(QUALITY, message) for message in _shortcomings(health, night))


def _shortcomings(health: Health, night: Night) -> Iterator[str]:
    """Yield what stays wrong with the last night's model until somebody acts, and what helps."""
    verdict, no_better_in = health.verdict, night.no_better_in or ()
    if verdict is not None:
        where = f" in {', '.join(no_better_in[:_NAMED])}" if night.test_mse_of or night.progressive_mse_of else ""
        yield (
            f"the model of night {night.number} is {verdict}{where}: give it columns that say something about the "
            "target, or compare settings by `ridgestream select`"
        )
    for short in Shortfall.all_of(health.run.get("evaluation") or {}, night.coverage, night.rows):
        yield (
            f"of the {short.measured_on} of night {night.number} {100 * short.coverage:.1f} % lie in their "
            f"{100 * short.level:g} % intervals: look at what has moved, or begin a new model (--new-model)"
        )


def _summary(health: Health, now: datetime) -> str:
    night, finished_at = health.night, health.finished_at
    if night is None or finished_at is None:
        return "there is no model yet"
    test = night.test_error if night.test_error is not None else night.test_mse
    parts = [f"night {night.number} finished {_show(now - finished_at)} ago", f"{night.rows_seen:,} rows seen"]
    parts += [] if test is None else [f"{'test error' if night.test_error is not None else 'test mse'} {test:.4g}"]
    in_quarantine = len(health.ledger.quarantined)
    skill = skill_of_night(night)
    parts += [] if skill is None else [f"skill {skill:.3g}"]
    return ", ".join([*parts, *([f"{in_quarantine} in quarantine"] if in_quarantine else [])])


def _show(age: timedelta) -> str:
    """Return an age in minutes, hours or days, whichever gives a short number."""
    minutes = max(age, timedelta()) / timedelta(minutes=1)
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.0f} h" if minutes < 72 * 60 else f"{minutes / 1440:.0f} d"


def _one_line(text: object) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= _MAX_REASON_CHARACTERS else f"{line[:_MAX_REASON_CHARACTERS]}…"
