"""OROLS on the paper's digits, from a folder that is not bundled: RIDGESTREAM_DATA names it.

The widths are the benchmark's GAMMAS, which were taken with the test errors known: this holds the method to what it has
reached, and says nothing of choosing a width.
"""

import os
from pathlib import Path

import pytest
from benchmarks.orols_error import GAMMAS, error_percent, fit, read_digits

from ridgestream.pipeline.batch.orols.orols import OROLSSettings

FOLDER = os.environ.get("RIDGESTREAM_DATA")


@pytest.mark.slow
@pytest.mark.skipif(
    FOLDER is None,
    reason="set RIDGESTREAM_DATA to a folder with pendigits.parquet and optdigits.parquet, which are not bundled",
)
@pytest.mark.parametrize(("name", "paper"), [("pendigits", 1.66), ("optdigits", 1.11)])
def test_the_error_is_no_larger_than_the_papers(name: str, paper: float) -> None:
    assert FOLDER is not None
    task = read_digits(Path(FOLDER), name)
    fitted = fit(task, GAMMAS[name], OROLSSettings(max_basis=len(task.X)))
    assert error_percent(fitted, task) <= paper
