"""Tables on narrow terminals: what matters is whole, what has no room is named."""

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from ridgestream.jobs.tables import fitted_table

COLUMNS = ("night", "finished", "rows", "test", "snapshot")
ROWS = [("1", "2026-11-28 18:38", "500,000", "0.1963", "4MNRSHS3DACHMWS68YVG"), ("12", "", "7", "", "")]


def show(width: int, columns: tuple[str, ...] = COLUMNS, rows: Sequence[tuple[str, ...]] = ROWS) -> list[str]:
    out = io.StringIO()
    table = fitted_table(
        "nights [1]",
        columns,
        rows,
        width,
        first=[name for name in ("night", "rows", "test") if name in columns],
        right=("rows",),
    )
    Console(file=out, width=width).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (100, COLUMNS),
        (72, COLUMNS),
        (60, ("night", "finished", "rows", "test")),
        (40, ("night", "rows", "test")),
        (20, ("night", "rows")),
        (5, ("night",)),
    ],
)
def test_the_most_important_columns_that_fit_are_whole(width: int, shown: tuple[str, ...]) -> None:
    lines = show(width)
    text = " ".join(lines)
    if width >= 20:
        assert lines[0] == "nights [1]"
        assert lines[1].split() == list(shown)
        row = [ROWS[0][COLUMNS.index(name)] for name in shown]
        assert lines[3].split() == " ".join(row).split()
        assert ("no room for:" in text) == (len(shown) < len(COLUMNS))
    assert all(len(line) <= width for line in lines)


def test_a_long_text_is_folded_and_others_keep_their_room() -> None:
    lines = show(40, ("night", "rows"), [("x" * 70, "500,000")])
    assert sum(line.count("x") for line in lines) == 70
    assert any(line.endswith("500,000") for line in lines)


def test_what_looks_like_markup_is_text() -> None:
    assert any("[red]part[/red]" in line for line in show(60, ("night", "rows"), [("[red]part[/red]", "1")]))
