"""The plots of a report: errors, dictionary and exchanges against rows, a batch method's choice, residuals."""

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

from ridgestream.jobs.report.summary_text import count, criterion_of, figure, percent
from ridgestream.jobs.report.svg import Line, Plot, compact, plot_bars, plot_lines


def plots_of(facts: dict[str, Any]) -> Iterator[Plot]:
    """Yield the plots of the report of a night, those that have something to show."""
    yield from _progressive(facts)
    yield from _held_out(facts)
    yield from _dictionary(facts)
    yield from _path(facts)
    for place, residuals in enumerate(facts["evaluation"].get("residuals", ())):
        if residuals["weights"]:
            yield _residuals(place, residuals)


def _progressive(facts: dict[str, Any]) -> Iterator[Plot]:
    """Yield the errors of this night's rows, each predicted before it was learned, and the held-out one beside them."""
    course, figures, shown = facts["course"], facts["figures"], _shown(facts)
    ends = list(accumulate(each["rows"] for each in facts["partitions"]))
    of_each = [each["progressive_error"] for each in facts["partitions"]]
    lines = [Line("of each partition", ends, of_each, "b", dots=True)] if len(ends) > 1 else []
    if course:
        lines.insert(0, Line("since the point before", course["rows"], course["error_between"], "c"))
        lines.append(Line("over all rows so far", course["rows"], course["running_error"], "a"))
    if not any(value is not None for line in lines for value in line.y):
        return
    test = figures["test_mse" if facts["task"] == "regression" else "test_error"]
    if test is not None and figures["new_rows"]:
        lines.append(Line("on held-out rows, after them", [figures["new_rows"]], [test], "d", dots=True))
    last = figures["progressive_error"]
    told = (
        f"The error on rows of this night before they were learned: {shown(last)} in all." if last is not None else ""
    )
    yield plot_lines("progressive", "Progressive error", told, lines, "rows of this night", compact, _axis(facts))


def _shown(facts: dict[str, Any]) -> Callable[[float], str]:
    return figure if facts["task"] == "regression" else percent


def _held_out(facts: dict[str, Any]) -> Iterator[Plot]:
    """Yield the errors of several nights on the held-out rows, and the progressive ones beside them."""
    nights = [night for night in facts["nights"] if not (night["event"] or "").startswith("rollback")]
    nights = sorted(nights, key=lambda night: night["rows_seen"])
    judged = [night["test_error"] for night in nights if night["test_error"] is not None]
    if len(nights) < 2 or not judged:
        return
    shown, xs = _shown(facts), [night["rows_seen"] for night in nights]
    yield plot_lines(
        "held-out",
        "Held-out error of all nights",
        f"From {shown(judged[0])} to {shown(judged[-1])} over {count(len(nights), 'night')}.",
        [
            Line("on held-out rows", xs, [night["test_error"] for night in nights], "a"),
            Line("progressive, of each night", xs, [night["progressive_error"] for night in nights], "b"),
        ],
        "rows learned",
        compact,
        _axis(facts),
    )


def _dictionary(facts: dict[str, Any]) -> Iterator[Plot]:
    course = facts["course"]
    if course:
        sizes, swaps = course["n_basis"], course["swaps"]
        yield plot_lines(
            "dictionary",
            "Dictionary size",
            f"{sizes[-1]:,} vectors all along."
            if sizes[0] == sizes[-1]
            else f"From {sizes[0]:,} to {sizes[-1]:,} vectors.",
            [Line("vectors", course["rows"], sizes, "a", steps=True)],
            "rows of this night",
            compact,
            compact,
            zero=True,
        )
        if swaps[-1]:
            yield plot_lines(
                "swaps",
                "Exchanges in the dictionary",
                f"{swaps[-1]:,} so far, those of earlier nights included.",
                [Line("exchanges", course["rows"], swaps, "a")],
                "rows of this night",
                compact,
                compact,
                zero=True,
            )
    elif len({night["n_basis"] for night in facts["nights"]}) > 1:
        nights = sorted(facts["nights"], key=lambda night: night["rows_seen"])
        yield plot_lines(
            "dictionary",
            "Dictionary size",
            "The size after each night.",
            [Line("vectors", [n["rows_seen"] for n in nights], [n["n_basis"] for n in nights], "a")],
            "rows learned",
            compact,
            compact,
            zero=True,
        )


def _path(facts: dict[str, Any]) -> Iterator[Plot]:
    """Yield the criterion of a batch method against the dictionary's size."""
    path = facts["path"]
    if not path or len(path["n_basis"]) < 2:
        return
    criterion, chosen = criterion_of(path), path["chosen"]
    yield plot_lines(
        "path",
        f"Choice: {criterion} against size",
        f"The least {criterion} at each size, among {count(path['models'], 'model')}; "
        f"the model has {count(chosen['n_basis'], 'vector')}.",
        [
            Line("the best of each size", path["n_basis"], path["value"], "a"),
            Line("chosen", [chosen["n_basis"]], [chosen["value"]], "b", dots=True),
        ],
        "vectors",
        compact,
        figure,
    )


def _residuals(place: int, found: dict[str, Any]) -> Plot:
    weights, width = found["weights"], found["width"]
    edges = [found["begin"] + i * width for i in range(len(weights) + 1)]
    total = sum(weights) + found["below"] + found["above"]
    beyond = found["below"] + found["above"]
    told = f"Predicted minus true {found['target']}, on held-out rows of weight {figure(total)}"
    told += f"; {percent(beyond / total)} lie beyond the bars." if beyond else "."
    title = f"Residuals of {found['target']}"
    return plot_bars(f"residuals-{place}", title, told, edges, weights, "predicted − true", compact)


def _axis(facts: dict[str, Any]) -> Any:  # noqa: ANN401
    return compact if facts["task"] == "regression" else lambda value: f"{100 * value:.3g} %"
