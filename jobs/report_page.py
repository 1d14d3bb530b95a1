"""A run report as one page: HTML with its style and pictures in it, no script, nothing loaded from anywhere.

The template escapes every value; a policy in the page forbids scripts and requests all the same.
"""

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ridgestream.jobs.plots import Line, Plot, compact, plot_bars, plot_lines
from ridgestream.jobs.report_words import count, duration, figure, name_of, percent, size
from ridgestream.stores.classes import class_name

if TYPE_CHECKING:
    import jinja2

ROWS = 200
"""Rows of a table of the page; the JSON has all."""


def render_page(facts: dict[str, Any]) -> str:
    """Return the page of a report; nothing is in it that is not in `facts`."""
    shown = figure if facts["task"] == "regression" else percent
    return _template().render(
        facts=facts,
        plots=list(_plots(facts)),
        partitions=_first_suspects(facts["partitions"]),
        confusion=_confusion(facts["evaluation"].get("confusion")),
        shown=shown,
        longest=max((stage["seconds"] for stage in facts["stages"]), default=0) or 1,
        parameters=_flat(facts["card"]["parameters"]),
    )


@cache
def _template() -> "jinja2.Template":
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters |= {
        "count": count,
        "duration": duration,
        "figure": figure,
        "name_of": name_of,
        "percent": percent,
        "size": size,
        "compact": compact,
    }
    return environment.from_string(files("ridgestream.jobs").joinpath("report.html.jinja").read_text("utf-8"))


def _first_suspects(partitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a table shows: all in their order, or, of too many, the suspects and then the last."""
    if len(partitions) <= ROWS:
        return partitions
    suspects = [each for each in partitions if each["suspect"]][:ROWS]
    others = [each for each in partitions if not each["suspect"]]
    return suspects + others[len(others) - (ROWS - len(suspects)) :]


def _confusion(confusion: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the matrix with each row's share of the largest, for its shade, and what was found of each class."""
    if confusion is None:
        return None
    rows = []
    for place, (label, weights) in enumerate(zip(confusion["classes"], confusion["weights"], strict=True)):
        total = sum(weights)
        cells = [(weight, weight / total if total else 0.0, column == place) for column, weight in enumerate(weights)]
        rows.append((class_name(label), cells, weights[place] / total if total else None))
    return {"names": [class_name(label) for label in confusion["classes"]], "rows": rows}


def _flat(parameters: dict[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in parameters.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            flat[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return flat


def _plots(facts: dict[str, Any]) -> Iterator[Plot]:
    yield from _progressive(facts)
    yield from _held_out(facts)
    yield from _dictionary(facts)
    yield from _path(facts)
    for place, residuals in enumerate(facts["evaluation"].get("residuals", ())):
        if residuals["weights"]:
            yield _residuals(place, residuals)


def _progressive(facts: dict[str, Any]) -> Iterator[Plot]:
    """Yield the errors of this night's rows, each predicted before it was learned."""
    course, regression = facts["course"], facts["task"] == "regression"
    ends = list(accumulate(each["rows"] for each in facts["partitions"]))
    lines = [
        Line("of each partition", ends, [each["progressive_error"] for each in facts["partitions"]], "b", dots=True)
    ]
    if course:
        lines.insert(0, Line("since the point before", course["rows"], course["error_between"], "c"))
        lines.append(Line("running, over all rows so far", course["rows"], course["running_error"], "a"))
    if not any(value is not None for line in lines for value in line.y):
        return
    shown = figure if regression else percent
    last = facts["figures"]["progressive_error"]
    told = f"Over the new rows it comes to {shown(last)}." if last is not None else ""
    if course and course["rows"][0] and facts["night"] and any("checkpoint" in s["message"] for s in facts["said"]):
        told += " The run went on from a checkpoint, so the curve begins there."
    yield plot_lines(
        "progressive",
        "Progressive error",
        f"The error on rows of this night before they were learned. {told}",
        lines,
        "rows of this night",
        compact,
        _axis(facts),
    )


def _held_out(facts: dict[str, Any]) -> Iterator[Plot]:
    """Yield the errors of all nights on the held-out rows, and the progressive ones beside them."""
    nights = [night for night in facts["nights"] if not (night["event"] or "").startswith("rollback")]
    nights = sorted(nights, key=lambda night: night["rows_seen"])
    if not any(night["test_error"] is not None for night in nights):
        return
    xs = [night["rows_seen"] for night in nights]
    first, last = (
        next(n["test_error"] for n in order if n["test_error"] is not None) for order in (nights, nights[::-1])
    )
    shown = figure if facts["task"] == "regression" else percent
    yield plot_lines(
        "held-out",
        "Held-out error of all nights",
        f"From {shown(first)} to {shown(last)} over {count(len(nights), 'night')}.",
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
            f"From {sizes[0]:,} to {sizes[-1]:,} vectors.",
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
                [Line("exchanges", course["rows"], swaps, "b")],
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
    criterion, chosen = path["criterion"].replace("_", " "), path["chosen"]
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
    told = f"Predicted minus true {found['target']}, on {compact(total)} held-out rows"
    told += f"; {beyond / total:.2%} lie beyond the bars." if beyond else "."
    title = f"Residuals of {found['target']}"
    return plot_bars(f"residuals-{place}", title, told, edges, weights, "predicted − true", compact)


def _axis(facts: dict[str, Any]) -> Any:  # noqa: ANN401
    return compact if facts["task"] == "regression" else lambda value: f"{100 * value:.3g} %"
