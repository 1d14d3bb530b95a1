"""A summary of a run in sentences, and numbers in readable form."""

from collections.abc import Iterator
from typing import Any

from ridgestream.jobs.report.cell_text import sentences_of_cells
from ridgestream.jobs.runs.shortcomings import NO_BETTER, Shortfall, verdict_on
from ridgestream.jobs.runs.trivial_errors import over_last_value
from ridgestream.stores.schema.class_labels import class_name

GOOD, LOOK, HELD, UNJUDGED, BACK, FAILED = "good", "look", "held", "unjudged", "back", "failed"

_VERDICTS = {
    GOOD: "All is well",
    LOOK: "Done, with something to look at",
    HELD: "Not served: the model got worse",
    UNJUDGED: "Learned, but not evaluated",
    BACK: "Taken back to an earlier night",
}

_ARRIVALS = (
    ("quarantined", "put into quarantine"),
    ("in_quarantine", "still in quarantine"),
    ("renamed", "renamed"),
    ("changed", "changed since they were ingested, which is ignored"),
    ("rebuilt", "changed and ingested again"),
    ("gone", "gone from the source; the rows stay"),
    ("same_rows", "with exactly the rows of another one, which count twice"),
    ("dropped", "with rows left out for a missing value"),
)
_TO_LOOK_AT = ("quarantined", "in_quarantine", "changed", "gone", "same_rows")


def summarize_night(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a night's report, its headline, and sentences."""
    state, shortcoming = _state(facts), _shortcoming(facts)
    if state in (GOOD, LOOK) and shortcoming:
        return {"state": LOOK, "headline": shortcoming, "sentences": [*_sentences(facts)]}
    return {"state": state, "headline": _VERDICTS[state], "sentences": [*_sentences(facts)]}


def _shortcoming(facts: dict[str, Any]) -> str | None:
    """Return what stays wrong with the model until somebody acts; None for a good one."""
    figures = facts["figures"]
    if verdict := verdict_on(figures["no_better_in"], figures):
        return f"{verdict[0].upper()}{verdict[1:]}{_named_targets(facts)}"
    if _shortfalls(facts):
        return "Intervals cover too few values"
    return "No better than the last value" if _is_below(over_last_value(figures)) else None


def _shortfalls(facts: dict[str, Any]) -> list[Shortfall]:
    return Shortfall.all_of(facts["evaluation"], facts["figures"]["coverage"], facts["figures"]["new_rows"])


def summarize_failure(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the report of a run that failed, its headline, and sentences."""
    sentences = [
        facts["failure"],
        _where_it_failed(facts["where"]),
        "What was committed before stands, and the same command continues from there.",
        *_arrivals(facts),
    ]
    return {"state": FAILED, "headline": "Failed: there is no new model", "sentences": sentences}


def _where_it_failed(where: dict[str, Any]) -> str:
    if not where:
        return "It was between two steps."
    total = where["of_rows"]
    rows = f"{where['rows']:,} of {count(total, 'row')}" if total else count(where["rows"], "row")
    return f"It was in the step {where['step']}, after {rows}."


def _state(facts: dict[str, Any]) -> str:
    if facts["event"].startswith("rollback"):
        return BACK
    if facts["failure"]:
        return UNJUDGED
    if facts["held"]:
        return HELD
    arrivals = any(facts["arrivals"].get(kind, {}).get("count") for kind in _TO_LOOK_AT)
    suspect = any(each["suspect"] for each in facts["partitions"])
    return LOOK if arrivals or suspect or facts["doubtful"] else GOOD


def _sentences(facts: dict[str, Any]) -> Iterator[str]:
    yield _what_it_did(facts)
    yield from _how_well(facts)
    yield from _how_certain(facts["evaluation"], facts["figures"]["coverage"])
    if _shortfalls(facts):
        yield (
            "Intervals cover too few values: rows are unlike those that the model has learned. Look at what has moved, "
            "or begin a new model (--new-model)."
        )
    yield from _refit_tried(facts["figures"])
    yield from _who_serves(facts)
    yield from _the_dictionary(facts)
    yield from sentences_of_cells(facts)
    yield from _the_metric(facts["card"].get("metric"))
    yield from _the_columns(facts["said"])
    yield from _suspects(facts)
    yield from _arrivals(facts)
    if not facts["recorded"] and not facts["event"].startswith("rollback"):
        yield (
            "How long the stages of this night took, how the errors went along its rows, and the versions of packages "
            "are unknown: an older release ran it."
        )


def _what_it_did(facts: dict[str, Any]) -> str:
    figures, event = facts["figures"], facts["event"]
    if event.startswith("rollback"):
        return f"The model was taken back to night {event.split()[-1]}: {count(figures['rows_seen'], 'row')} learned."
    seconds = duration(figures["train_seconds"])
    if event == "refit" or not figures["new_partitions"]:
        return f"Nothing new was learned; the coefficients were refitted in {seconds}."
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
        yield f"It could not be evaluated or refitted, and is stored as it is: {facts['failure']}"
    elif now is None:
        yield "There were no held-out rows to evaluate it on."
    else:
        against = _against(figures["trivial_error"], figures["skill"], facts["task"])
        yield f"On the held-out rows {_error(now, facts['task'])}{against}{_compared(now, facts)}."
    if never_found := facts["evaluation"].get("never_found"):
        is_weighted = "class_weight" in facts["card"]["parameters"]
        remedy = "" if is_weighted else '; source.class_weight = "balanced" gives rows of rare classes more weight'
        yield f"Never found: {', '.join(map(class_name, never_found))}{remedy}."
    if figures["progressive_error"] is not None:
        error = _error(figures["progressive_error"], facts["task"])
        against = _against(figures["progressive_trivial_error"], figures["progressive_skill"], facts["task"])
        yield f"On the new rows, each predicted before it was learned, {error}{against}."
    if figures["no_better_in"]:
        yield _no_better(facts)
    yield from _outside(facts["evaluation"])
    skill = over_last_value(figures)
    if skill is not None:
        judged = "no better" if skill <= 0 else f"better by {percent(skill)} of its error"
        yield f"Rows are ordered in time; the model is {judged} than the target of the row before."


def _is_below(skill: float | None) -> bool:
    return skill is not None and skill <= 0


def _how_certain(evaluation: dict[str, Any], coverage: float | None) -> Iterator[str]:
    """Yield what intervals and probabilities are worth on held-out rows, and the share of new rows that was covered."""
    if intervals := evaluation.get("intervals"):
        widths = [figure(each["mean_width"]) for each in intervals["of"].values()]
        yield (
            f"Of the held-out values {percent(intervals['coverage'])} lie in their {percent(intervals['level'])} "
            f"interval, which is {' and '.join(widths)} wide in the mean."
        )
    if coverage is not None:
        yield f"The model before covered {percent(coverage)} of the new values by its 90 % intervals."
    if probabilities := evaluation.get("probabilities"):
        yield (
            f"Probabilities on the held-out rows are off by {percent(probabilities['calibration_error'])} in the mean "
            f"(Brier score {figure(probabilities['brier'])}, log loss {figure(probabilities['log_loss'])})."
        )


def _refit_tried(figures: dict[str, Any]) -> Iterator[str]:
    gain = figures["refit_gain"]
    if gain is not None:
        verdict = "serves its coefficients" if figures["refitted"] else "does not serve its coefficients"
        change = f"{'lowers' if gain >= 0 else 'raises'} the squared error on rows left out by {percent(abs(gain))}"
        yield f"A refit {change}; the model {verdict}."


def _against(trivial_error: float | None, skill: float | None, task: str) -> str:
    """Return the error of the constant that fits the learned rows best, and the skill."""
    if trivial_error is None:
        return ""
    constant, shown = ("the mean", figure) if task == "regression" else ("the largest class alone", percent)
    name = "R²" if task == "regression" else "skill"
    return f" (with {constant} {shown(trivial_error)}" + ("" if skill is None else f": {name} {skill:.3f}") + ")"


def _no_better(facts: dict[str, Any]) -> str:
    constant = "the mean of the target" if facts["task"] == "regression" else "the largest class"
    reason = "do the columns say anything about the target?"
    if "class_weight" in facts["card"]["parameters"]:
        reason = "source.class_weight has it find rare classes at the price of others."
    where = _named_targets(facts)
    verdict = verdict_on(facts["figures"]["no_better_in"], facts["figures"])
    comparison = (
        "has no larger error" if verdict == NO_BETTER else "has a larger error, but by no more than chance explains"
    )
    return f"The model is {verdict}{where}: {constant} {comparison}; {reason}"


def _named_targets(facts: dict[str, Any]) -> str:
    """Return the names of the targets in which the model is no better than a constant, if there are several targets."""
    several = facts["figures"]["progressive_mse_of"] or facts["figures"]["test_mse_of"]
    return f" in {', '.join(facts['figures']['no_better_in'])}" if several else ""


def _error(error: float, task: str) -> str:
    if task == "regression":
        return f"the mean squared error is {figure(error)}"
    return f"{percent(error)} are misclassified"


def _compared(now: float, facts: dict[str, Any]) -> str:
    """Return how the error compares with that of the last night before that has one."""
    previous = next((n for n in reversed(facts["nights"][:-1]) if n["test_error"] is not None), None)
    if previous is None:
        return ""
    error, night = previous["test_error"], f"in night {previous['number']}"
    if now == error:
        return f", as {night}"
    change = "more" if now > error else "less"
    if facts["task"] == "regression":
        share = f"{100 * abs(now / error - 1):.1f} % " if error else ""
        return f", {share}{change} than {night} ({figure(error)})"
    return f", {100 * abs(now - error):.2f} points {change} than {night} ({percent(error)})"


def _who_serves(facts: dict[str, Any]) -> Iterator[str]:
    guard = facts["guard"]
    if facts["held"] and guard:
        shown = figure if facts["task"] == "regression" else percent
        yield (
            f"That is worse than the guard allows: the model served so far has {shown(guard['before'])} on the same "
            f"rows. What was learned is kept; the model of night {facts['served_night']} continues to be served."
        )
    elif facts["held"]:
        yield f"The model of night {facts['served_night']} continues to be served."
    elif guard:
        yield "The guard compared it with the model served so far, and lets it be served."


def _the_dictionary(facts: dict[str, Any]) -> Iterator[str]:
    max_basis, cells = facts["card"]["parameters"].get("max_basis"), facts["cells"].get("count")
    n_basis, swaps = facts["figures"]["n_basis"], facts["figures"]["swaps"]
    limit = f", of {max_basis:,} at most" if max_basis else ""
    if max_basis is not None and n_basis >= max_basis:
        limit = " and is full"
    if cells:
        limit = f" in {count(cells, 'cell')}, of {max_basis:,} at most in each"
    so_far = f", with {count(int(swaps), 'swap')} so far" if swaps else ""
    yield f"The dictionary has {count(n_basis, 'vector')}{limit}{so_far}."
    path = facts["path"]
    if path:
        yield (
            f"It was chosen among {count(path['models'], 'model')} by the {criterion_of(path)}"
            + (f", {figure(path['chosen']['value'])}." if path["chosen"]["value"] is not None else ".")
        )


def _the_metric(metric: dict[str, Any] | None) -> Iterator[str]:
    if metric:
        leading = ", ".join(f"{each['column']} ({percent(each['share'])})" for each in metric["importance"][:3])
        yield f"Distances depend most on {leading}: the metric was learned from the first rows."


_OF_COLUMNS = {
    "features.scale_fixed_later": "Numbers vary for the first time, and have got their scale: {columns}.",
    "features.scale_from_few_rows": "The scale of these columns rests on a few rows or on two values: {columns}.",
    "features.categories_rare": "Few rows have these categories, of which little is learned: {rows}.",
    "features.times_as_calendar": (
        "Time stamps are circles of the calendar: {columns}. No trend in time is followed, since tomorrow would lie "
        "outside what was learned."
    ),
}
"""What is said of columns, by the code of its event."""


def _the_columns(said: list[dict[str, Any]]) -> Iterator[str]:
    for event in said:
        if event["code"] in _OF_COLUMNS:
            yield _OF_COLUMNS[event["code"]].format(**event)


def _outside(evaluation: dict[str, Any]) -> Iterator[str]:
    """Say how many held-out rows lie outside the range of the rows learned, and in which columns."""
    rows = evaluation.get("rows_outside_range", 0)
    if rows:
        columns = [f"{name} ({n:,})" for name, n in [*evaluation["outside_range"].items()][:5]]
        of_rows, share = count(evaluation["rows"], "held-out row"), percent(rows / evaluation["rows"])
        yield f"{rows:,} of {of_rows} ({share}) lie outside the range of the rows learned: {', '.join(columns)}."


def _suspects(facts: dict[str, Any]) -> Iterator[str]:
    suspects = [each for each in facts["partitions"] if each["suspect"]]
    if suspects:
        named = "; ".join(f"{each['partition']}: {_why(each, facts['task'])}" for each in suspects[:5])
        more = f"; and {len(suspects) - 5} more" if len(suspects) > 5 else ""
        yield f"Look at {count(len(suspects), 'partition')} unlike those before; is a feed broken? {named}{more}."
    elif facts["partitions"]:
        yield "No new partition is unlike those before."
    settled = {column: each["partition"] for each in facts["partitions"] for column in each.get("settled", ())}
    if settled:
        shown = ", ".join(f"{column} (with {partition})" for column, partition in [*settled.items()][:5])
        yield f"What has drifted is the new normal, and is not reported again: {shown}."
    if drifting := facts["drifting"]:
        yield (
            f"Drifting since an earlier or this night: {', '.join(drifting[:5])}"
            f"{f' and {len(drifting) - 5} more' if len(drifting) > 5 else ''}; `ridgestream accept` makes it normal."
        )


def _why(partition: dict[str, Any], task: str) -> str:
    reasons = []
    if partition["began"]:
        reasons.append(f"{', '.join(partition['began'])} moved (PSI up to {figure(partition['largest_psi'])})")
    if partition["began_to_err"]:
        shown = figure if task == "regression" else percent
        error, limit = shown(partition["progressive_error"]), shown(partition["error_limit"])
        reasons.append(f"its error is {error}, where up to {limit} is usual")
    return ", ".join(reasons)


def _arrivals(facts: dict[str, Any]) -> Iterator[str]:
    for kind, description in _ARRIVALS:
        arrivals = facts["arrivals"].get(kind, {})
        if arrivals.get("count"):
            yield f"{count(arrivals['count'], 'partition')} {description}: {_first_names(arrivals)}."


def _first_names(arrivals: dict[str, Any]) -> str:
    names = [name_of(each) for each in arrivals["first"][:5]]
    more = arrivals["count"] - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def name_of(each: str | dict[str, Any]) -> str:
    """Return how a partition or a column is named in a list, with its old name, its rows or its values."""
    if isinstance(each, str):
        return each
    if "was" in each:
        return f"{each['was']} → {each['is']}"
    key, unit = ("partition", "row") if "partition" in each else ("column", "value")
    (detail,) = (value for name, value in each.items() if name != key)
    return f"{each[key]} ({count(detail, unit) if isinstance(detail, int) else detail})"


_CRITERIA = {
    "fold_error": "mean squared error on the folds left out",
    "leave_one_out": "mean squared error of rows left out one by one",
    "gcv": "GCV",
    "bic": "Bayesian information criterion",
    "mdl": "description length",
    "reconstruction_error": "reconstruction error",
}


def criterion_of(path: dict[str, Any]) -> str:
    """Return the name of the criterion by which a batch method chose."""
    return _CRITERIA[path["criterion"]]


def count(n: int, noun: str, plural: str = "s") -> str:
    """Return a number with its noun: 1 row, 500,000 rows."""
    return f"{n:,} {noun}{'' if n == 1 else plural}"


def percent(share: float) -> str:
    """Return a fraction as a percentage with two decimals."""
    return f"{100 * share:.2f} %"


def figure(value: float | None) -> str:
    """Return a number with four significant digits, or as a whole number if it is large."""
    return "–" if value is None else f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Return seconds as seconds, minutes or hours: 12.3 s, 4 min 5 s, 2 h 7 min."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
