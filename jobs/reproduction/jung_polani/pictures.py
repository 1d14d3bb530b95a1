"""Pictures of Jung & Polani's tables."""

from typing import TYPE_CHECKING

from ridgestream.jobs.reproduction.study import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = {
    "OLS, GCV": ("OLS", "#8a8a8a", "s"),
    "KRLS": ("KRLS", "#c8641e", "o"),
    "online LS-SVM": ("online", "#1f5fa8", "^"),
}
"""The label, colour and marker of each method."""


def draw_against_vectors(
    tasks: "Sequence[str]", label: str, figure: "Figure", outcomes: dict[str, list[Outcome]]
) -> None:
    """Draw the error against the number of vectors, a panel a task, as in the paper's slides."""
    panels = figure.subplots(1, len(tasks), squeeze=False)[0]
    for axes, task in zip(panels, tasks, strict=True):
        for method, (name, colour, marker) in METHODS.items():
            curve = outcomes[f"{task}: {method}" if task else method][0].curve
            axes.loglog(curve["vectors"], curve["error"], marker=marker, color=colour, label=name, markersize=4)
        axes.set(xlabel="basis vectors", title=task)
        plain_ticks(axes)
    panels[0].set_ylabel(label)
    panels[0].legend()


def plain_ticks(axes: "Axes") -> None:
    """Label logarithmic axes at 1, 2, 5, 10, … by plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(lambda value, _: f"{value:.4g}")
        axis.set_minor_formatter(NullFormatter())
