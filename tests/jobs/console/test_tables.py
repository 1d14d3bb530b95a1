"""Tables on narrow terminals: the most important columns are whole, and those that do not fit are named."""

import io
from collections.abc import Sequence

import pytest

from ridgestream.jobs.console.confusion_table import confusion_table
from ridgestream.jobs.console.tables import fitted_table, open_console

COLUMNS = ("night", "finished", "rows", "test", "snapshot")
ROWS = [("1", "2026-11-28 18:38", "500,000", "0.1963", "4MNRSHS3DACHMWS68YVG"), ("12", "", "7", "", "")]


def printed(what: object, width: int) -> list[str]:
    console = open_console()
    console.file, console.width = io.StringIO(), width
    console.print(what)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


def show(width: int, columns: tuple[str, ...] = COLUMNS, rows: Sequence[tuple[str, ...]] = ROWS) -> list[str]:
    table = fitted_table(
        "nights [1]",
        columns,
        rows,
        width,
        first=[name for name in ("night", "rows", "test") if name in columns],
        right=("rows",),
    )
    return printed(table, width)


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


def test_a_long_text_is_folded_and_other_columns_keep_their_width() -> None:
    lines = show(40, ("night", "rows"), [("x" * 70, "500,000")])
    assert sum(line.count("x") for line in lines) == 70
    assert any(line.endswith("500,000") for line in lines)


NAMES = ("[red]part[/red]", "a[/b]", "x:x:y", "c\\\\[d]")


@pytest.mark.parametrize("name", NAMES)
def test_what_looks_like_markup_or_an_emoji_is_text(name: str) -> None:
    assert show(60, ("night", "rows"), [(name, "1")])[-1].split() == [name, "1"]
    assert printed(f"excluded: {name}", 60) == [f"excluded: {name}"]


def test_classes_in_a_confusion_matrix_that_look_like_markup_are_text() -> None:
    weights = [[float(row == column) for column in range(len(NAMES))] for row in range(len(NAMES))]
    head, _, *rows = printed(confusion_table({"classes": NAMES, "weights": weights}), 100)
    assert head.split() == ["class", *NAMES]
    assert [row.split()[0] for row in rows] == list(NAMES)
