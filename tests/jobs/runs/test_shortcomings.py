"""What stays wrong with a model: told by the log, heads the report, and is not "ok" for status."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs.jobs import REGRESSION, Workplace, draw_regression, set_column
from support.jobs.recording import Notes

from ridgestream.jobs.cli.exit_codes import STATUS_CODES
from ridgestream.jobs.commands.evaluate import run_evaluate
from ridgestream.jobs.commands.status import run_status
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.runs.shortcomings import NO_BETTER, WITHIN_CHANCE, Shortfall, verdict_on
from ridgestream.pipeline.base.executor import InProcess

ONE: dict[str, Any] = {"skill": None, "skill_of": None, "progressive_skill": -0.1, "progressive_skill_of": None}
TWO: dict[str, Any] = {"skill": 0.4, "skill_of": {"price": 0.9, "rent": -0.1}}


@pytest.mark.parametrize(
    ("no_better_in", "skills", "verdict"),
    [
        ((), ONE, None),
        (("price",), ONE, NO_BETTER),
        (("price",), ONE | {"skill": 0.1}, WITHIN_CHANCE),
        (("price",), ONE | {"skill": 0.0}, NO_BETTER),
        (("rent",), TWO, NO_BETTER),
        (("rent",), TWO | {"skill_of": {"price": 0.9, "rent": 0.1}}, WITHIN_CHANCE),
    ],
)
def test_a_model_that_errs_less_than_a_constant_is_not_called_no_better(
    no_better_in: tuple[str, ...], skills: dict[str, Any], verdict: str | None
) -> None:
    assert verdict_on(no_better_in, skills) == verdict


@pytest.mark.parametrize(
    ("level", "coverage", "rows", "is_far"),
    [
        (0.9, 0.017, 400, True),
        (0.9, 0.69, 400, True),
        (0.9, 0.71, 10**6, False),
        (0.9, 0.69, 30, False),
        (0.9, 0.0, 10, True),
        (0.9, 0.0, 0, False),
        (0.99, 0.9, 400, True),
        (0.5, 0.3, 400, False),
        (0.5, 0.2, 400, True),
    ],
)
def test_a_coverage_is_low_if_it_is_far_below_its_level_and_beyond_chance(
    level: float, coverage: float, rows: int, is_far: bool
) -> None:
    assert Shortfall("new rows", level, coverage, rows).is_far == is_far


def test_intervals_that_cover_too_few_values_are_told_by_log_report_and_status(tmp_path: Path) -> None:
    work, noise = Workplace(tmp_path), 100.0 * np.random.default_rng(0).normal(size=200)
    work.put(0, draw_regression(0))
    held_out = draw_regression(1)
    work.put(0, set_column(held_out, "price", np.asarray(held_out["price"]) + noise), where="held-out")
    notes = Notes()
    result = work.run_here({**REGRESSION, "report": None}, report=notes)
    (said,) = notes.all("evaluate.coverage_low")
    assert (said["measured_on"], said["interval"], said["rows"]) == ("held-out rows", 0.9, 200)
    assert 0.0 < float(str(said["coverage"])) < 0.6
    words = json.loads(Path(result["report"]["json"]).read_text())["words"]
    assert (words["state"], words["headline"]) == ("look", "Intervals cover too few values")
    assert sum(sentence.startswith("Intervals cover too few values: ") for sentence in words["sentences"]) == 1
    job = read_job(work.job(REGRESSION), {})
    status = run_status(job, None)
    assert (status["status"], STATUS_CODES[status["status"]]) == ("quality", 17)
    assert status["message"].startswith("of the held-out rows of night 1 ")
    again = Notes()
    run_evaluate(job, InProcess(), again)
    assert again.all("evaluate.coverage_low") == [said]
