"""What Python programs hear: one sentence for an event, and remedies by the names of their door."""

import ast
import logging
import warnings
from pathlib import Path

import pytest

from ridgestream import InputWarning
from ridgestream.jobs.api import run, stored_model
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.errors import InputError, errors_renamed
from ridgestream.pipeline.base.reporter import RenamingReporter, in_words, log_warning, warn_of_doubt, warn_program
from ridgestream.pipeline.estimators import notices

TOP = Path(__file__).parents[3]
OWN = ("notices.py", "stored_model.py", "run.py")
DOORS = {"run": run._NAMES, "predict": stored_model._NAMES, "estimators": notices.NAMES}


def test_an_event_is_a_sentence_with_its_facts() -> None:
    facts = {"rows": 3, "column": None, "mse": 0.5}
    assert in_words(events.STEP_TRAIN, facts, {}) == "train (rows=3, mse=0.5)"
    assert (
        in_words(events.TRAIN_SCALING_FIXED_EARLY, {}, {"--new-model": "new_model=True"}).count("(new_model=True)") == 1
    )


def test_each_door_gives_the_same_words_in_its_way(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ridgestream")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for warn in (log_warning, warn_of_doubt, warn_program):
            RenamingReporter({}, warn).warn(events.FEATURES_CATEGORIES_RARE, column="town")
        RenamingReporter({}, warn_of_doubt).warn(events.TRAIN_ROWS_REFUSED)
    words = in_words(events.FEATURES_CATEGORIES_RARE, {"column": "town"}, {})
    assert [(record.levelname, record.message) for record in caplog.records] == [("WARNING", words), ("INFO", words)]
    assert [str(each.message) for each in caught] == [words, events.TRAIN_ROWS_REFUSED.sentence]
    assert {each.category for each in caught} == {InputWarning}


def test_a_step_is_logged_as_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ridgestream")
    reporter = RenamingReporter({}, log_warning)
    reporter.begin(events.STEP_TRAIN, 10)
    reporter.end(rows_seen=10)
    assert caplog.messages == ["train (rows_seen=10)"]


def test_an_error_keeps_its_kind_and_has_the_names_of_the_door() -> None:
    words = r"^begin a new model with new_model=True, or correct the rows$"
    with pytest.raises(InputError, match=words), errors_renamed(run._NAMES):
        raise InputError("begin a new model with --new-model, or correct the rows")


@pytest.mark.parametrize("door", DOORS)
def test_what_a_door_renames_is_still_what_messages_say(door: str) -> None:
    files = [path for room in ("jobs", "pipeline", "stores") for path in (TOP / room).rglob("*.py")]
    nodes = [node for path in files if path.name not in OWN for node in ast.walk(ast.parse(path.read_text()))]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert [words for words in DOORS[door] if not any(words in text for text in texts)] == []
