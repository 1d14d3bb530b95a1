"""A run report as one page: HTML with its style and pictures in it, no script, nothing loaded from anywhere.

The template escapes every value; a policy in the page forbids scripts and requests all the same.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from ridgestream.jobs.plots import Line, Plot, compact, plot_bars, plot_lines
from ridgestream.jobs.report_words import count, criterion_of, duration, figure, name_of, percent, size
from ridgestream.stores.classes import class_name

if TYPE_CHECKING:
    import jinja2

ROWS = 200
"""Rows of a table of the page; the JSON has all."""

_OF_A_NIGHT = ("figures", "nights", "course", "path", "partitions", "evaluation", "numerics", "card")

Pairs = list[tuple[str, Any]]


def render_page(facts: dict[str, Any]) -> str:
    """Return the page of a report, of a night or of a run that failed; nothing is in it that is not in `facts`."""
    facts = {key: {} for key in _OF_A_NIGHT} | {"task": ""} | facts
    regression, figures = facts["task"] == "regression", facts["figures"]
    page = _template().render(
        facts=facts,
        title=_title(facts),
        test=figures and figures["test_mse" if regression else "test_error"],
        plots=list(_plots(facts)) if figures else [],
        partitions=_first_suspects(facts["partitions"] or []),
        confusion=_confusion(facts["evaluation"].get("confusion")),
        arrivals=_arrivals(facts["arrivals"]),
        cards=list(_cards(facts)),
        shown=figure if regression else percent,
        longest=max((stage["seconds"] for stage in facts["stages"]), default=0) or 1,
    )
    return page.lstrip()


@cache
def _template() -> "jinja2.Template":
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "breakable": _breakable,
        "count": count,
        "duration": duration,
        "figure": figure,
        "grouped": lambda number: f"{number:,.10g}",
        "moment": lambda iso: iso[:16].replace("T", " "),
        "percent": percent,
        "size": size,
        "spaced": lambda name: name.replace("_", " "),
    }
    return environment.from_string(files("ridgestream.jobs").joinpath("report.html.jinja").read_text("utf-8"))


def _title(facts: dict[str, Any]) -> str:
    night = f"night {facts['night']}" if facts["night"] else "a run"
    return f"{night} that failed" if facts["event"] == "failed" else night


def _breakable(name: str) -> Markup:
    """Return a name that may be broken behind its underscores and dots."""
    return Markup(str(escape(name)).replace("_", "_<wbr>").replace(".", ".<wbr>"))  # noqa: S704 (escaped just there)


def _first_suspects(partitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a table shows: all in their order, or, of too many, the suspects and then the last."""
    if len(partitions) <= ROWS:
        return partitions
    suspects = [each for each in partitions if each["suspect"]][:ROWS]
    others = [each for each in partitions if not each["suspect"]]
    return suspects + others[len(others) - (ROWS - len(suspects)) :]


def _confusion(confusion: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the matrix with each cell's share of its row, for its shade, and what was found of each class."""
    if confusion is None:
        return None
    rows = []
    for place, (label, weights) in enumerate(zip(confusion["classes"], confusion["weights"], strict=True)):
        total = sum(weights)
        cells = [(weight, weight / total if total else 0.0, column == place) for column, weight in enumerate(weights)]
        rows.append((class_name(label), cells, weights[place] / total if total else None))
    taken = [(f"taken for {class_name(label)}", "number") for label in confusion["classes"]]
    return {"columns": [("true class", ""), *taken, ("found", "number")], "rows": rows}


def _arrivals(arrivals: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return what was unlike the rest among what came in, by kind, with the first names in one text."""
    told = ((kind, each) for kind, each in arrivals.items() if each["count"])
    return [
        (kind, {"count": each["count"], "shown": len(each["first"]), "names": ", ".join(map(name_of, each["first"]))})
        for kind, each in told
    ]


def _cards(facts: dict[str, Any]) -> Iterator[tuple[str, Pairs]]:
    """Yield the tables of the model card by their titles; of a run that failed, what there is."""
    card = facts["card"]
    if card:
        yield "Data", _data(facts)
        yield "Parameters", _parameters(card)
        if facts["guard"]:
            yield "Guard", _guard(facts)
        if facts["numerics"]:
            yield "Numerics", _numerics(facts["numerics"])
    else:
        yield (
            "Run",
            [("store", facts["store"]), ("error", facts["error"]), ("peak memory", size(facts["peak_rss_bytes"]))],
        )
    about = card or facts
    if about["versions"]:
        machine = [(name.replace("_", " "), value) for name, value in about["machine"].items()]
        yield "Versions", [*about["versions"].items()]
        yield "Machine", machine


def _data(facts: dict[str, Any]) -> Pairs:
    card, figures = facts["card"], facts["figures"]
    kind = "each class against the rest" if card["classes"] else "one class against the rest"
    return [
        ("target", ", ".join(card["target"])),
        ("learned as", "regression" if facts["task"] == "regression" else kind),
        ("positive class", card["positive"]),
        ("classes", ", ".join(map(class_name, card["classes"] or ()))),
        ("row weights", card["weight_column"]),
        ("columns", f"{len(card['features'])}, encoded as {count(card['n_features'], 'feature')}"),
        ("standardized by", count(card["standardized_by"]["count"], "partition")),
        ("in the store", f"{count(card['rows_in_store'], 'row')} of {count(card['partitions_in_store'], 'partition')}"),
        ("learned", count(figures["partitions_consumed"], "partition")),
        ("excluded", count(figures["excluded_partitions"], "partition") if figures["excluded_partitions"] else None),
        ("store", facts["store"]),
        ("data snapshot", facts["data_snapshot"]),
        ("model snapshot", facts["snapshot"]),
        ("served", f"night {facts['served_night']}" if facts["served_night"] else None),
    ]


def _parameters(card: dict[str, Any]) -> Pairs:
    """Return what the model was asked to be; first what it was left to choose."""
    asked = _flat(card["parameters"])
    used = _flat({"regularization": card["regularization"], "kernel": card["kernel"]})
    chosen = [(f"{key}, as used", value) for key, value in used.items() if value != asked.get(key)]
    names = {"regularization": "regularization (λ per row)"}
    return [
        *chosen,
        *((names.get(key, key), value) for key, value in asked.items()),
        ("hash", card["parameters_hash"][:16]),
    ]


def _flat(parameters: dict[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in parameters.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            flat[f"{prefix}{key}"] = _plain(value)
    return flat


def _plain(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _guard(facts: dict[str, Any]) -> Pairs:
    guard, shown = facts["guard"], figure if facts["task"] == "regression" else percent
    did = f"held back; night {guard['served']} is served" if guard["served"] else "let it be served"
    return [
        ("what it did", did),
        ("error now", shown(guard["now"])),
        ("of the model served before", shown(guard["before"])),
        ("may rise by", f"{guard['margin']:.6g}{' of it' if facts['task'] == 'regression' else ''}"),
    ]


def _numerics(numerics: dict[str, Any]) -> Pairs:
    if "normal_condition" not in numerics:
        return [(name.replace("_", " "), figure(value)) for name, value in numerics.items()]
    jitter = f"at most {figure(numerics['largest_jitter'])}, at {count(int(numerics['jitter_count']), 'refresh', 'es')}"
    return [
        ("condition of P", figure(numerics["normal_condition"])),
        ("condition of K", figure(numerics["gram_condition"])),
        ("digits to trust, about", numerics["digits"]),
        ("drift at the last refresh", figure(numerics["drift"])),
        ("largest drift", figure(numerics["largest_drift"])),
        ("jitter", jitter if numerics["jitter_count"] else "none"),
    ]


def _plots(facts: dict[str, Any]) -> Iterator[Plot]:
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
