"""Tables on standard output; on a narrow terminal, the most important columns are shown and the others are named."""

import sys
from collections.abc import Collection, Sequence
from typing import Any

_WIDTH = 400
"""The width of tables that go to a file or a pipe: nothing is cut."""

_GAP = 2
"""Cells between two columns, and at the edges together."""


def open_console() -> Any:  # noqa: ANN401
    """Return a rich console as wide as the terminal; for a file or a pipe, so wide that nothing is cut.

    Texts are printed as they are: names from files and stores may contain what rich takes for markup or an emoji.
    """
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH
    return Console(width=width, markup=False, emoji=False, highlight=False)


def bare_table(**named: Any) -> Any:  # noqa: ANN401
    """Return a rich table whose only line is below its head; keyword arguments go to rich."""
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), **named)


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
    """Return a rich table of the columns that fit into `width` cells, in their order, for a console of `open_console`.

    `first` names the most important columns, the most important one first. Columns of `right` are aligned to the right.
    A text longer than half of the width is folded.
    """
    shown = _fitting(columns, rows, width, first)
    omitted = [name for name in columns if name not in shown]
    notes = [caption] if caption else []
    if omitted:
        notes.append(f"no room for: {', '.join(omitted)}")
    table = bare_table(title=title, title_justify="left", caption="; ".join(notes) or None, caption_justify="left")
    indices = [i for i, name in enumerate(columns) if name in shown]
    for i in indices:
        table.add_column(columns[i], justify="right" if columns[i] in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(row[i] for i in indices))
    return table


def _fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, first: Sequence[str]) -> set[str]:
    from rich.cells import cell_len

    shown: set[str] = set()
    free = width - _GAP
    for name in [*first, *(name for name in columns if name not in first)]:
        column = columns.index(name)
        needed = min(max(map(cell_len, [name, *(row[column] for row in rows)])), width // 2) + _GAP
        if needed <= free or not shown:
            shown.add(name)
            free -= needed
    return shown
