"""The peak of resident memory (VmHWM) does not grow with the number of rows."""

import sys
from pathlib import Path
from typing import Any

import pytest
from support.data.many_rows import write_many_rows
from support.jobs.jobs import COMMAND, Workplace, run_program

JOB = {"source.target": "Cover_Type", "model.max_basis": 100, "model.kernel.gamma": 1 / 54, "evaluate.path": None}

PRINT_PEAK = f"""
import json, os, sys
from pathlib import Path
os._exit = sys.exit  # so that the finally block runs
sys.argv[0] = {COMMAND!r}
from ridgestream.jobs.cli.app import main
try:
    main()
finally:
    status = Path("/proc/self/status").read_text().split()
    print(int(status[status.index("VmHWM:") + 1]) * 1024, file=sys.stderr)
"""

SPREAD_BYTES = 50_000_000
"""What a peak may have on top of another: threads of the store, each with memory of its own, begin when there is work
for them. So much is ten bytes for each of 5,000,000 rows.
"""


def measure(folder: Path, rows: int) -> dict[str, dict[str, Any]]:
    """Return the reports of ingest, train and a refit on `rows` rows, each step in its own process."""
    folder.mkdir()
    work = Workplace(folder)
    write_many_rows(folder / "rows", rows)
    steps = {"ingest": ["ingest"], "train": ["train"], "refit": ["train", "--refit"]}
    reports = {name: run_program([COMMAND, *step, str(work.job(JOB)), "--json"]).result for name, step in steps.items()}
    assert reports["ingest"]["new_rows"] == reports["train"]["rows_seen"] == rows
    assert reports["refit"]["refitted"] is True
    for step, report in reports.items():
        print(f"{step} {rows:,} rows: peak {report['peak_rss_bytes'] / 1e6:.1f} MB")  # noqa: T201
    return reports


@pytest.mark.thorough
def test_the_reported_peak_is_that_of_the_process(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    outcome = run_program([sys.executable, "-c", PRINT_PEAK, "run", work.job(), "--json"])
    assert outcome.result["peak_rss_bytes"] == pytest.approx(int(outcome.err.splitlines()[-1]), rel=0.01)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "rows",
    [
        100_000,
        pytest.param(500_000, marks=pytest.mark.thorough),
        pytest.param(5_000_000, marks=pytest.mark.slow),
    ],
)
def test_the_peak_does_not_grow_with_the_number_of_rows(tmp_path: Path, rows: int) -> None:
    few, many = measure(tmp_path / "few", 50_000), measure(tmp_path / "many", rows)
    for step in ("train", "ingest", "refit"):
        assert many[step]["peak_rss_bytes"] < few[step]["peak_rss_bytes"] + SPREAD_BYTES, step
