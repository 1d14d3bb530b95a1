"""Control characters in texts from elsewhere are escaped before they reach a terminal."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import ROWS, Workplace, draw_rows, run_command, set_column

from ridgestream.jobs.console.escaping import harmless, harmless_cells

STEERS = "\x1b[31mred\x1b]0;title\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, grün, 数\tand\nmore", "plain, grün, 数\tand\nmore"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\rb\x00\x7f\x9b", "a\\rb\\x00\\x7f\\x9b"),
        ("a\u2028b", "a\\u2028b"),
    ],
)
def test_control_characters_are_shown(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_cells_have_one_line_and_numbers_stay() -> None:
    plain = {"a\n": ["b\r\n", 1, None, {"c": ("\x1b", True)}]}
    assert harmless_cells(plain) == {"a\\n": ["b\\r\\n", 1, None, {"c": ["\\x1b", True]}]}


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put_all(range(2))
    return work


@pytest.mark.thorough
def test_control_characters_in_classes_and_reasons_are_escaped_on_the_terminal(work: Workplace) -> None:
    names = np.array(["plain", f"{STEERS}\nridgestream: all is well"])[np.arange(ROWS) % 2]
    for number in (0, 1):
        work.put(number, set_column(draw_rows(number), "label", pa.array(names)))
    job = work.job({"source.positive": None, "source.classes": "all", "evaluate.path": "rows"})
    run_command("quarantine", job, "part-01.parquet", "--reason", STEERS)
    shown = [run_command(*verb, job) for verb in (["run"], ["evaluate"], ["inspect"], ["history"])]
    shown.append(run_command("predict", job, work.folder / "rows", work.folder / "out"))
    assert "\\x1b[31m" in shown[2].out
    for done in shown:
        assert done.code == 0, done
        assert not {"\x1b", "\x07", "\r"} & set(done.out + done.err)
        assert not [line for line in (done.out + done.err).splitlines() if line.startswith("ridgestream: all is well")]


def test_an_error_repeats_no_control_character(work: Workplace) -> None:
    table = draw_rows(3)
    pq.write_table(table.rename_columns([f"x0{STEERS}", *table.column_names[1:]]), work.folder / "rows/part-03.parquet")
    done = run_command("run", work.job())
    assert done.code == 3
    assert "\\x1b[31m" in done.err
    assert "\x1b" not in done.err
