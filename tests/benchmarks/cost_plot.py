"""Draws the cost curves: microseconds per row against the dictionary's size and against the rows seen."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cost_curves import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEARNER, BOUND, GUIDE = "#1f5fa8", "#c8641e", "#8a8a8a"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "legend.frameon": False,
}


def plot_curves(curves: dict[str, Any], plan: Plan, path: Path) -> None:
    """Draw both curves into one PNG of 1,650 × 660 pixels."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        _against_basis(left, curves["against_basis"])
        left.set_title(
            f"against the dictionary (rows {plan.filling_rows + 1:,} to {plan.filling_rows + plan.timed_rows:,})"
        )
        _against_rows(right, curves["against_rows"])
        right.set_title(f"against the rows seen (m = {plan.max_basis})")
        figure.suptitle("Cost of a row for the online learner, on one thread", x=0.01, ha="left", fontweight="bold")
        figure.savefig(path, dpi=150)


def _against_basis(axes: "Axes", points: list[dict[str, Any]]) -> None:
    sizes = [point["n_basis"] for point in points]
    learner = [point["cpu_microseconds_per_row"] for point in points]
    bound = [point["lower_bound_cpu_microseconds_per_row"] for point in points]
    guide = [learner[-1] * (size / sizes[-1]) ** 2 for size in sizes]
    axes.loglog(sizes, guide, "--", color=GUIDE, linewidth=1.2, label="O(m²), through the last point")
    axes.loglog(sizes, learner, "o-", color=LEARNER, linewidth=1.8, markersize=5, label="online learner")
    axes.loglog(sizes, bound, "s-", color=BOUND, linewidth=1.4, markersize=4, label="lower bound: no selection")
    full = [point["max_basis"] for point in points if point["n_basis"] == point["max_basis"]]
    axes.set_xticks(full, [f"{size:,}" for size in full])
    axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.set(xlabel="basis vectors m", ylabel="CPU microseconds per row")
    axes.legend(loc="upper left")


def _against_rows(axes: "Axes", points: list[dict[str, Any]]) -> None:
    rows = [point["rows"] for point in points]
    cost = [point["cpu_microseconds_per_row"] for point in points]
    axes.semilogx(rows, cost, "o-", color=LEARNER, linewidth=1.8, markersize=5)
    axes.tick_params(axis="x", which="minor", labelbottom=False)
    axes.set_ylim(0, 1.25 * max(cost))
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    axes.set(xlabel="rows seen (each point: the mean since the one before)", ylabel="CPU microseconds per row")


def _short(count: float) -> str:
    for size, name in ((1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:g}{name}"
    return f"{count:g}"
