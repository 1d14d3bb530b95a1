"""The events of a run in its report: with codes, and without for runs of release 0.1.0."""

import json
from pathlib import Path
from typing import Any

from support.jobs.jobs import Workplace, draw_rows, of_one_class

from ridgestream.jobs.report.run_facts import event_facts, is_doubtful
from ridgestream.pipeline.base.events import TRAIN_ONE_CLASS


def report_of(work: Workplace, changes: dict[str, Any]) -> dict[str, Any]:
    written = work.run_here({"report": None} | changes)["report"]
    facts: dict[str, Any] = json.loads(Path(written["json"]).read_text())
    return facts


def test_an_event_has_its_code_and_its_facts_and_may_cast_doubt_on_the_model(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put(0)
    work.put(0, draw_rows(1000), where="held-out")
    quiet = report_of(work, {"model.max_basis": 100, "model.scaling_rows": 1})
    assert (quiet["said"], quiet["doubtful"], quiet["words"]["state"]) == ([], False, "good")
    work.put(0, of_one_class(0))
    loud = report_of(work, {"store": "other", "model.scaling_rows": 1})
    facts = {"positive": 2, "classes": "2"}
    assert {"code": TRAIN_ONE_CLASS.code, "message": TRAIN_ONE_CLASS.sentence, **facts} in loud["said"]
    assert (loud["doubtful"], loud["words"]["state"]) == (True, "look")


def test_every_recorded_event_has_a_code_beside_its_sentence(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put(0, of_one_class(0))
    work.run_here({"evaluate.path": None})
    run = work.model().run
    assert len(run["said_codes"]) == len(run["said"])
    assert [message for message, _ in run["said"]][-1] == TRAIN_ONE_CLASS.sentence
    assert run["said_codes"][-1] == TRAIN_ONE_CLASS.code


def test_sentences_of_release_0_1_0_are_shown_without_a_code() -> None:
    run = {"said": [["P or K was singular within rounding", {"times": 2}], ["nothing new to learn", {}]]}
    assert event_facts(run) == [
        {"code": None, "message": "P or K was singular within rounding", "times": 2},
        {"code": None, "message": "nothing new to learn"},
    ]
    assert is_doubtful(run)
    assert not is_doubtful({"said": [["nothing new to learn", {}]]})
    assert not is_doubtful({})
