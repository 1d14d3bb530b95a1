"""A run report as one HTML page, with its style and pictures inside; no script, nothing is loaded from elsewhere.

The template escapes every value; a policy in the page forbids scripts and requests all the same.
"""

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from ridgestream.jobs.console.confusion_table import class_facts
from ridgestream.jobs.report.cell_text import notable_cells
from ridgestream.jobs.report.page.charts import plots_of
from ridgestream.jobs.report.summary_text import count, duration, figure, name_of, percent
from ridgestream.pipeline.base.memory_plan import show_bytes
from ridgestream.stores.schema.class_labels import class_name

if TYPE_CHECKING:
    import jinja2

ROWS = 200
"""Rows of a table of the page; the JSON has all."""

_COLUMNS = 12
"""Columns of a metric that are named at most; the JSON has all."""

_OF_A_NIGHT = (
    "figures",
    "nights",
    "course",
    "path",
    "partitions",
    "evaluation",
    "numerics",
    "cells",
    "cell_trials",
    "card",
)

Pairs = list[tuple[str, Any]]


def render_page(facts: dict[str, Any]) -> str:
    """Return the page of a report, of a night or of a failed run; it shows nothing that is not in `facts`."""
    facts = {key: {} for key in _OF_A_NIGHT} | {"task": ""} | facts
    regression, figures = facts["task"] == "regression", facts["figures"]
    page = template("report.html.jinja").render(
        facts=facts,
        title=_title(facts),
        test=figures and figures["test_mse" if regression else "test_error"],
        skill_name="R²" if regression else "skill",
        plots=list(plots_of(facts)) if figures else [],
        partitions=_first_suspects(facts["partitions"] or []),
        confusion=_confusion(facts["evaluation"].get("confusion")),
        arrivals=_arrivals(facts["arrivals"]),
        cards=list(_cards(facts)),
        cells=notable_cells(facts["cells"]),
        shown=figure if regression else percent,
        longest=max((stage["seconds"] for stage in facts["stages"]), default=0) or 1,
    )
    return page.lstrip()


@cache
def template(name: str) -> "jinja2.Template":
    """Return a template of this folder; it escapes every value."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(
            lambda each: files("ridgestream.jobs.report.page").joinpath(each).read_text("utf-8")
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": _breakable,
        "count": count,
        "duration": duration,
        "figure": figure,
        "grouped": lambda number: f"{number:,.10g}",
        "moment": lambda iso: iso[:16].replace("T", " "),
        "percent": percent,
        "bytes": show_bytes,
        "spaced": lambda name: name.replace("_", " "),
    }
    return environment.get_template(name)


def _title(facts: dict[str, Any]) -> str:
    night = f"night {facts['night']}" if facts["night"] else "a run"
    return f"{night} that failed" if facts["event"] == "failed" else night


def _breakable(name: str) -> Markup:
    """Return a name with places to break the line after its underscores and dots."""
    return Markup(str(escape(name)).replace("_", "_<wbr>").replace(".", ".<wbr>"))  # noqa: S704 (escaped just there)


def _first_suspects(partitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the partitions that a table shows: all, or, of more than ROWS, the suspects and then the last ones."""
    if len(partitions) <= ROWS:
        return partitions
    suspects = [each for each in partitions if each["suspect"]][:ROWS]
    others = [each for each in partitions if not each["suspect"]]
    return suspects + others[len(others) - (ROWS - len(suspects)) :]


def _confusion(confusion: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the matrix with each cell's share of its row, for its shade, and the figures of each class."""
    if confusion is None:
        return None
    rows, classes = [], class_facts(confusion)
    for i, figures in enumerate(classes["by_class"]):
        total, weights = figures["support"], confusion["weights"][i]
        cells = [(weight, weight / total if total else 0.0, column == i) for column, weight in enumerate(weights)]
        rows.append((class_name(figures["class"]), cells, [figures["recall"], figures["precision"]]))
    predicted = [(f"predicted {class_name(label)}", "number") for label in confusion["classes"]]
    columns = [("true class", ""), *predicted, ("recall", "number"), ("precision", "number")]
    return classes | {"columns": columns, "rows": rows}


def _arrivals(arrivals: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return what was unusual in the ingest, by kind, with the first names in one text."""
    return [
        (kind, {"count": each["count"], "shown": len(each["first"]), "names": ", ".join(map(name_of, each["first"]))})
        for kind, each in arrivals.items()
        if each["count"]
    ]


def _cards(facts: dict[str, Any]) -> Iterator[tuple[str, Pairs]]:
    """Yield the tables of the model card with their titles; for a failed run, the tables that it has."""
    card = facts["card"]
    yield from _model_cards(facts) if card else [("Run", _run(facts))]
    environment = card or facts
    if environment["versions"]:
        yield "Versions", [*environment["versions"].items()]
        yield "Machine", [(name.replace("_", " "), value) for name, value in environment["machine"].items()]


def _model_cards(facts: dict[str, Any]) -> Iterator[tuple[str, Pairs]]:
    yield "Data", _data(facts)
    yield "Parameters", _parameters(facts["card"])
    if facts["card"].get("metric"):
        yield "What distances depend on", _metric(facts["card"]["metric"])
    if facts["guard"]:
        yield "Guard", _guard(facts)
    if facts["numerics"]:
        yield "Numerics", _numerics(facts["numerics"])


def _metric(metric: dict[str, Any]) -> Pairs:
    """Return the share of each important column, and the leading directions."""
    columns = [(each["column"], percent(each["share"])) for each in metric["importance"][:_COLUMNS]]
    directions = [
        (
            f"direction {number}, {percent(each['share'])}",
            ", ".join(f"{entry['weight']:+.2f} {entry['feature']}" for entry in each["features"]),
        )
        for number, each in enumerate(metric["directions"], start=1)
    ]
    return columns + directions


def _run(facts: dict[str, Any]) -> Pairs:
    return [("store", facts["store"]), ("error", facts["error"]), ("peak memory", show_bytes(facts["peak_rss_bytes"]))]


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
    """Return the parameters as the job gives them; first those in use that the model chose itself."""
    given = _flat(card["parameters"])
    used = _flat({"regularization": card["regularization"], "kernel": card["kernel"]})
    chosen = [(f"{key}, as used", value) for key, value in used.items() if value != given.get(key)]
    names = {"regularization": "regularization (λ per row)"}
    return [
        *chosen,
        *((names.get(key, key), value) for key, value in given.items()),
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
    verdict = f"held back; night {guard['served']} is served" if guard["served"] else "served"
    return [
        ("verdict", verdict),
        ("error now", shown(guard["now"])),
        ("error of the model served before", shown(guard["before"])),
        ("margin", f"{guard['margin']:.6g}{' of it' if facts['task'] == 'regression' else ''}"),
    ]


def _numerics(numerics: dict[str, Any]) -> Pairs:
    if "normal_condition" not in numerics:
        return [(name.replace("_", " "), figure(value)) for name, value in numerics.items()]
    jitter = f"at most {figure(numerics['largest_jitter'])}, at {count(int(numerics['jitter_count']), 'refresh', 'es')}"
    return [
        ("condition of P", figure(numerics["normal_condition"])),
        ("condition of K", figure(numerics["gram_condition"])),
        ("digits to trust, about", numerics["digits"]),
        ("rounding error at the last refresh", figure(numerics["rounding_error"])),
        ("largest rounding error", figure(numerics["largest_rounding_error"])),
        ("jitter", jitter if numerics["jitter_count"] else "none"),
        ("rows refused for the condition of P", figure(numerics.get("refused", 0))),
    ]
