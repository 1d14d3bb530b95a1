"""The plots of a report: errors, dictionary size and swaps against rows, a batch method's choice, residuals."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from ridgestream.jobs.report.page.svg import Line, Plot, Point, compact, plot_bars, plot_lines, plot_points
from ridgestream.jobs.report.summary_text import count, criterion_of, figure, percent

SHADES = 5
"""Colours of cells, by a fifth of their errors each."""


def plots_of(facts: dict[str, Any]) -> Iterator[Plot]:
    """Yield the plots of a night's report that have something to show."""
    yield from _progressive(facts)
    yield from _held_out(facts)
    yield from _dictionary(facts)
    yield from _path(facts)
    yield from _cells(facts["cells"])
    yield from _reliability(facts["evaluation"].get("probabilities"))
    for number, residuals in enumerate(facts["evaluation"].get("residuals", ())):
        if residuals["weights"]:
            yield _residuals(number, residuals)


def _progressive(facts: dict[str, Any]) -> Iterator[Plot]:
    """Yield the errors of this night's rows, predicted before they were learned, and the held-out error."""
    figures = facts["figures"]
    lines = _progressive_lines(facts)
    if not any(value is not None for line in lines for value in line.y):
        return
    test = figures["test_mse" if facts["task"] == "regression" else "test_error"]
    if test is not None and figures["new_rows"]:
        lines.append(Line("on held-out rows, after them", [figures["new_rows"]], [test], "d", dots=True))
    error, description = figures["progressive_error"], ""
    if error is not None:
        description = f"The error on rows of this night before they were learned: {_shown(facts)(error)} in all."
    title = "Progressive error"
    yield plot_lines("progressive", title, description, lines, "rows of this night", compact, _axis(facts))


def _progressive_lines(facts: dict[str, Any]) -> list[Line]:
    course, partitions = facts["course"], facts["partitions"]
    lines = []
    if course:
        lines.append(Line("since the point before", course["rows"], course["error_between"], "c"))
    if len(partitions) > 1:
        ends, errors = accumulate(p["rows"] for p in partitions), [p["progressive_error"] for p in partitions]
        lines.append(Line("of each partition", list(ends), errors, "b", dots=True))
    if course:
        lines.append(Line("over all rows so far", course["rows"], course["running_error"], "a"))
    return lines


def _shown(facts: dict[str, Any]) -> Callable[[float], str]:
    return figure if facts["task"] == "regression" else percent


def _held_out(facts: dict[str, Any]) -> Iterator[Plot]:
    """Yield the held-out errors of several nights, with their progressive errors."""
    nights = [night for night in facts["nights"] if not (night["event"] or "").startswith("rollback")]
    nights = sorted(nights, key=lambda night: night["rows_seen"])
    errors = [night["test_error"] for night in nights if night["test_error"] is not None]
    if len(nights) < 2 or not errors:
        return
    shown, xs = _shown(facts), [night["rows_seen"] for night in nights]
    yield plot_lines(
        "held-out",
        "Held-out error of all nights",
        f"From {shown(errors[0])} to {shown(errors[-1])} over {count(len(nights), 'night')}.",
        [
            Line("on held-out rows", xs, [night["test_error"] for night in nights], "a"),
            Line("progressive, of each night", xs, [night["progressive_error"] for night in nights], "b"),
        ],
        "rows learned",
        compact,
        _axis(facts),
    )


def _dictionary(facts: dict[str, Any]) -> Iterator[Plot]:
    """Yield the dictionary's size and its swaps along the rows of this night; without them, its size by night."""
    course = facts["course"]
    if course:
        rows, sizes, swaps = course["rows"], course["n_basis"], course["swaps"]
        change = f"From {sizes[0]:,} to {sizes[-1]:,} vectors."
        if sizes[0] == sizes[-1]:
            change = f"{sizes[-1]:,} vectors from the first row to the last."
        size = Line("vectors", rows, sizes, "a", steps=True)
        yield _plot_counts("dictionary", "Dictionary size", change, size, "rows of this night")
        if swaps[-1]:
            total = f"{swaps[-1]:,} so far, those of earlier nights included."
            line = Line("swaps", rows, swaps, "a")
            yield _plot_counts("swaps", "Swaps in the dictionary", total, line, "rows of this night")
    elif len({night["n_basis"] for night in facts["nights"]}) > 1:
        nights = sorted(facts["nights"], key=lambda night: night["rows_seen"])
        line = Line("vectors", [n["rows_seen"] for n in nights], [n["n_basis"] for n in nights], "a")
        yield _plot_counts("dictionary", "Dictionary size", "The size after each night.", line, "rows learned")


def _plot_counts(name: str, title: str, description: str, line: Line, x_label: str) -> Plot:
    return plot_lines(name, title, description, [line], x_label, compact, compact, zero=True)


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


def _cells(cells: dict[str, Any]) -> Iterator[Plot]:
    """Yield where the cells of local experts lie, with their rows and errors."""
    known = [each for each in cells.get("cells", ()) if each["error"] is not None]
    if not known:
        return
    limits, most = _fifths(sorted(each["error"] for each in known)), max(each["rows"] for each in known)
    points = [
        Point(each["x"], each["y"], each["rows"] / most, f"shade{bisect_left(limits, each['error'])}", _tip(each))
        for each in known
    ]
    shades = [(f"shade{limits.index(limit)}", f"up to {figure(limit)}") for limit in dict.fromkeys(limits)]
    first, second = (_direction(entries) for entries in cells["directions"])
    description = f"Cells by their errors, as large as their rows. Upwards: {second}."
    yield plot_points("cells", "Cells", description, points, first, shades)


def _fifths(errors: Sequence[float]) -> list[float]:
    """Return the largest of each fifth of the ascending errors."""
    return [errors[max(len(errors) * (i + 1) // SHADES - 1, 0)] for i in range(SHADES)]


def _tip(cell: dict[str, Any]) -> str:
    sizes = f"{count(cell['rows'], 'row')}, {count(cell['n_basis'], 'vector')}"
    return f"cell {cell['cell']}: {sizes}, error {figure(cell['error'])}"


def _direction(entries: Sequence[dict[str, Any]]) -> str:
    """Return the leading features of a direction."""
    return " ".join(f"{each['weight']:+.2f} {each['feature']}" for each in entries[:2])


def _reliability(probabilities: dict[str, Any] | None) -> Iterator[Plot]:
    """Yield how often a class comes true against its probability."""
    if not probabilities:
        return
    bins, description = probabilities["reliability"], percent(probabilities["calibration_error"])
    predicted = [each["probability"] for each in bins]
    yield plot_lines(
        "reliability",
        "Reliability of probabilities",
        f"Share of held-out rows of a class against its probability; off by {description} in the mean.",
        [
            Line("share of rows", predicted, [each["share"] for each in bins], "a"),
            Line("as the probability says", predicted, predicted, "d"),
        ],
        "probability",
        compact,
        compact,
    )


def _residuals(number: int, residuals: dict[str, Any]) -> Plot:
    weights, target = residuals["weights"], residuals["target"]
    edges = [residuals["begin"] + i * residuals["width"] for i in range(len(weights) + 1)]
    beyond = residuals["below"] + residuals["above"]
    total = sum(weights) + beyond
    description = f"Predicted minus true {target}, on held-out rows of weight {figure(total)}"
    description += f"; {percent(beyond / total)} lie beyond the bars." if beyond else "."
    title = f"Residuals of {target}"
    return plot_bars(f"residuals-{number}", title, description, edges, weights, "predicted − true", compact)


def _axis(facts: dict[str, Any]) -> Any:  # noqa: ANN401
    return compact if facts["task"] == "regression" else lambda value: f"{100 * value:.3g} %"
