"""Tables on a terminal: where not all columns have room, the most important ones are shown whole, the rest is named."""

from collections.abc import Collection, Sequence
from typing import Any

_GAP = 2
"""Cells between two columns, and at the edges together."""


def fitted_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    first: Sequence[str],
    right: Collection[str] = (),
    caption: str = "",
) -> Any:  # noqa: ANN401
    """Return a rich table of the columns that fit into `width` cells, in their order.

    `first` names the most important ones, the most important first; the others follow in their order. Columns of
    `right` are flush right. A text as long as half of the width is folded.
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    shown = _fitting(columns, rows, width, first)
    omitted = [name for name in columns if name not in shown]
    notes = [caption] if caption else []
    if omitted:
        notes.append(f"no room for: {', '.join(omitted)}")
    table = Table(
        title=escape(title),
        title_justify="left",
        caption="; ".join(notes) or None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    places = [place for place, name in enumerate(columns) if name in shown]
    for place in places:
        table.add_column(columns[place], justify="right" if columns[place] in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(row[place]) for place in places))
    return table


def _fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, first: Sequence[str]) -> set[str]:
    from rich.cells import cell_len

    shown: set[str] = set()
    left = width - _GAP
    for name in [*first, *(name for name in columns if name not in first)]:
        place = columns.index(name)
        needed = min(max(map(cell_len, [name, *(row[place] for row in rows)])), width // 2) + _GAP
        if needed <= left or not shown:
            shown.add(name)
            left -= needed
    return shown
