"""What the select command shows: a table of the best of each metric and size, a page with a picture, and options."""

from collections.abc import Sequence
from typing import Any

from ridgestream.jobs.report.page.html_page import template
from ridgestream.jobs.report.page.svg import Line, Plot, compact, plot_lines
from ridgestream.jobs.report.report_files import write_whole
from ridgestream.pipeline.training.model_grid import GridPoint
from ridgestream.stores.files.paths import FileLocation

PAGE = "select.html"
"""The name of the page, in the folder of reports."""

COLUMNS = ("metric", "size", "γ", "λ", "error", "±")


def _best_of_each(points: Sequence[GridPoint]) -> list[GridPoint]:
    """Return the best point of each metric and size, in their order."""
    best: dict[tuple[str, int], GridPoint] = {}
    for point in points:
        key = point.metric, point.max_basis
        if key not in best or point.error < best[key].error:
            best[key] = point
    return list(best.values())


def _cells_of(points: Sequence[GridPoint]) -> list[tuple[str, ...]]:
    """Return the cells of a table of points."""
    return [
        (
            point.metric,
            f"{point.max_basis:,}",
            "" if point.gamma is None else f"{point.gamma:.4g}",
            f"{point.regularization:.2g}",
            f"{point.error:.4g}",
            f"{point.standard_error:.2g}",
        )
        for point in points
    ]


def _plot(points: Sequence[GridPoint], criterion: str) -> Plot:
    best = _best_of_each(points)
    lines = [
        Line(form, [p.max_basis for p in best if p.metric == form], [p.error for p in best if p.metric == form], kind)
        for form, kind in zip(("standardized", "diagonal", "full"), "cba", strict=True)
    ]
    return plot_lines(
        "sizes",
        f"The {criterion} by size",
        "For each metric and number of vectors, the best γ and λ; on folds left out.",
        [line for line in lines if line.x],
        "vectors",
        compact,
        lambda value: f"{value:.3g}",
    )


def write_page(folder: FileLocation | None, facts: dict[str, Any], points: Sequence[GridPoint]) -> str | None:
    """Write the page where reports go, and return its place; None where there are none."""
    if folder is None:
        return None
    page = template("select.html.jinja").render(
        facts=facts, plots=[_plot(points, facts["criterion"])], columns=COLUMNS, rows=_cells_of(_best_of_each(points))
    )
    write_whole(folder / PAGE, page, "text/html; charset=utf-8")
    return str(folder / PAGE)


def show_selection(facts: dict[str, Any]) -> None:
    """Print the best of each metric and size as a table, and the options that set the best and the simplest."""
    from ridgestream.jobs.console.tables import fitted_table, open_console

    console, points = open_console(), [GridPoint(**point) for point in facts["points"]]
    title = f"model {facts['model']}: {facts['criterion']} on folds of the first {facts['rows']:,} rows"
    first = ("metric", "size", "error", "±")
    cells = _cells_of(_best_of_each(points))
    console.print(fitted_table(title, COLUMNS, cells, console.width, first=first, right=COLUMNS[1:]))
    for name, words in (("best", "least error"), ("simplest", "simplest within one standard error")):
        console.print(f"{words}: {facts[name]['error']:.4g}")
        console.print(f"  {facts[name]['set']}")
    if facts["page"]:
        console.print(f"page: {facts['page']}")
