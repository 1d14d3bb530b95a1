"""What happened in a run, in words for a person who reads it in the morning."""

from collections.abc import Iterator
from typing import Any

GOOD, LOOK, HELD, UNJUDGED, BACK, FAILED = "good", "look", "held", "unjudged", "back", "failed"

_VERDICTS = {
    GOOD: "All is well",
    LOOK: "Done, with something to look at",
    HELD: "Not served: the model got worse",
    UNJUDGED: "Learned, but not judged",
    BACK: "Taken back to an earlier night",
}

_ARRIVALS = (
    ("quarantined", "put into quarantine"),
    ("in_quarantine", "still in quarantine"),
    ("renamed", "followed to another name"),
    ("changed", "changed since, which is ignored"),
    ("rebuilt", "changed and taken in anew"),
    ("gone", "gone from the source; the rows stay"),
    ("same_rows", "with exactly the rows of another one, which count twice"),
    ("dropped", "with rows left out for a missing value"),
)
_TO_LOOK_AT = ("quarantined", "in_quarantine", "changed", "gone", "same_rows")


def tell_in_words(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a report, its headline, and sentences."""
    state = _state(facts)
    return {"state": state, "headline": _VERDICTS[state], "sentences": [*_sentences(facts)]}


def tell_of_failure(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the report of a run that failed, its headline, and sentences."""
    where, of = facts["where"], ""
    if where:
        of = (
            f" of {count(where['of_rows'], 'row')}"
            if where["of_rows"]
            else f" {'row' if where['rows'] == 1 else 'rows'}"
        )
    told = [
        facts["failure"],
        f"It was in the step {where['step']}, after {where['rows']:,}{of}." if where else "It was between two steps.",
        "What was committed before stands, and the same command goes on from there.",
        *_arrived(facts),
    ]
    return {"state": FAILED, "headline": "Failed: there is no new model", "sentences": told}


def _state(facts: dict[str, Any]) -> str:
    if facts["event"].startswith("rollback"):
        return BACK
    if facts["failure"]:
        return UNJUDGED
    if facts["held"]:
        return HELD
    looked = any(facts["arrivals"].get(kind, {}).get("count") for kind in _TO_LOOK_AT)
    suspect = any(each["suspect"] for each in facts["partitions"])
    return LOOK if looked or facts["doubtful"] or suspect else GOOD


def _sentences(facts: dict[str, Any]) -> Iterator[str]:
    yield _what_it_did(facts)
    yield from _how_well(facts)
    yield from _who_serves(facts)
    yield from _the_dictionary(facts)
    yield from _suspects(facts)
    yield from _arrived(facts)
    if not facts["recorded"] and not facts["event"].startswith("rollback"):
        yield (
            "The store does not tell of this night how long its stages took, how the learner went along the rows, or "
            "with which versions: an older release made it."
        )


def _what_it_did(facts: dict[str, Any]) -> str:
    figures, event = facts["figures"], facts["event"]
    if event.startswith("rollback"):
        return f"The model was taken back to night {event.split()[-1]}: {count(figures['rows_seen'], 'row')} learned."
    seconds = duration(figures["train_seconds"])
    if event == "refit" or not figures["new_partitions"]:
        return f"Nothing new was learned; the coefficients were fitted anew in {seconds}."
    refitted = ", and fitted its coefficients to all rows," if figures["refitted"] else ""
    return (
        f"The model learned {count(figures['new_rows'], 'row')} of {count(figures['new_partitions'], 'new partition')}"
        f"{refitted} in {seconds}. It has now learned {count(figures['rows_seen'], 'row')} of "
        f"{count(figures['partitions_consumed'], 'partition')}."
    )


def _how_well(facts: dict[str, Any]) -> Iterator[str]:
    figures = facts["figures"]
    now = figures["test_error"] if figures["test_error"] is not None else figures["test_mse"]
    if facts["failure"]:
        yield f"It could not be judged, or not be refitted, and is kept as it is: {facts['failure']}"
    elif now is None:
        yield "There were no held-out rows to judge it on."
    else:
        yield f"On the held-out rows {_error(now, facts['task'])}{_compared(now, facts)}."
    if figures["progressive_error"] is not None:
        error = _error(figures["progressive_error"], facts["task"])
        yield f"On the new rows, each predicted before it was learned, {error}."


def _error(error: float, task: str) -> str:
    if task == "regression":
        return f"the mean squared error is {figure(error)}"
    return f"{percent(error)} are misclassified"


def _compared(now: float, facts: dict[str, Any]) -> str:
    """Return how the error compares with that of the night before."""
    before = next((n for n in reversed(facts["nights"][:-1]) if n["test_error"] is not None), None)
    if before is None:
        return ""
    was, regression = before["test_error"], facts["task"] == "regression"
    shown = figure(was) if regression else percent(was)
    if now == was:
        return f", as in night {before['number']}"
    change = "more" if now > was else "less"
    if not regression:
        return f", {100 * abs(now - was):.2f} points {change} than in night {before['number']} ({shown})"
    share = f"{100 * abs(now / was - 1):.1f} % " if was else ""
    return f", {share}{change} than in night {before['number']} ({shown})"


def _who_serves(facts: dict[str, Any]) -> Iterator[str]:
    guard = facts["guard"]
    if facts["held"] and guard:
        shown = figure if facts["task"] == "regression" else percent
        yield (
            f"That is worse than the guard allows: the model served so far has {shown(guard['before'])} on the same "
            f"rows. What was learned is kept; the model of night {facts['served_night']} goes on being served."
        )
    elif facts["held"]:
        yield f"The model of night {facts['served_night']} goes on being served."
    elif guard:
        yield "The guard compared it with the model served so far, and lets it be served."


def _the_dictionary(facts: dict[str, Any]) -> Iterator[str]:
    figures, most = facts["figures"], facts["card"]["parameters"].get("max_basis")
    n_basis = figures["n_basis"]
    full = " and is full" if most is not None and n_basis >= most else f", of {most:,} at most" if most else ""
    swaps = figures["swaps"]
    told = f", with {count(int(swaps), 'exchange')} so far" if swaps else ""
    yield f"The dictionary has {count(n_basis, 'vector')}{full}{told}."
    path = facts["path"]
    if path:
        yield (
            f"It was chosen among {count(path['models'], 'model')} by the {criterion_of(path)}"
            + (f", {figure(path['chosen']['value'])}." if path["chosen"]["value"] is not None else ".")
        )


def _suspects(facts: dict[str, Any]) -> Iterator[str]:
    suspects = [each for each in facts["partitions"] if each["suspect"]]
    if suspects:
        named = "; ".join(f"{each['partition']}: {_why(each, facts['task'])}" for each in suspects[:5])
        more = f"; and {len(suspects) - 5} more" if len(suspects) > 5 else ""
        yield f"Look at {count(len(suspects), 'partition')} unlike those before; is a feed broken? {named}{more}."
    elif facts["partitions"]:
        yield "No new partition is unlike the training rows."


def _why(each: dict[str, Any], task: str) -> str:
    reasons = [f"{', '.join(each['moved'])} moved (PSI up to {figure(each['largest_psi'])})"] if each["moved"] else []
    if each["erred"]:
        shown = figure if task == "regression" else percent
        reasons.append(
            f"its error is {shown(each['progressive_error'])}, where up to {shown(each['error_limit'])} is usual"
        )
    return ", ".join(reasons)


def _arrived(facts: dict[str, Any]) -> Iterator[str]:
    for kind, said in _ARRIVALS:
        told = facts["arrivals"].get(kind, {})
        if told.get("count"):
            yield f"{count(told['count'], 'partition')} {said}: {_names(told)}."


def _names(told: dict[str, Any]) -> str:
    shown = [name_of(each) for each in told["first"][:5]]
    more = told["count"] - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def name_of(each: str | dict[str, Any]) -> str:
    """Return a partition, or a column, as it is named in a list of arrivals, with what belongs to it."""
    if isinstance(each, str):
        return each
    if "was" in each:
        return f"{each['was']} → {each['is']}"
    what, unit = ("partition", "row") if "partition" in each else ("column", "value")
    (detail,) = (value for key, value in each.items() if key != what)
    return f"{each[what]} ({count(detail, unit) if isinstance(detail, int) else detail})"


def criterion_of(path: dict[str, Any]) -> str:
    """Return what a batch method chose by, in words."""
    words: str = path["criterion"].replace("_", " ")
    return words.upper() if words == "gcv" else words


def count(n: int, what: str, plural: str = "s") -> str:
    """Return "1 row", "500,000 rows" and the like."""
    return f"{n:,} {what}{'' if n == 1 else plural}"


def percent(share: float) -> str:
    """Return a fraction as a percentage with two decimals."""
    return f"{100 * share:.2f} %"


def figure(value: float | None) -> str:
    """Return a number with four digits that count."""
    return "–" if value is None else f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Return seconds as a person says them."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def size(n: float) -> str:
    """Return bytes as a person says them."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= factor:
            return f"{n / factor:.1f} {unit}"
    return f"{n:.0f} B"
