"""The command warm compiles the learner into the cache ahead; a run that compiles says so, and learns after it."""

import json
from pathlib import Path

import pytest
from support.jobs.jobs import COMMAND, Workplace, clean_environment, run_command, run_prepared, run_program
from support.jobs.recording import Notes

from ridgestream.pipeline.base import events
from ridgestream.pipeline.training.online.stream import cache_path, compile_learner, compile_learner_as_step

SLOW = """
import ridgestream.pipeline.training.online.stream as online_stream
def compile_learner(begin):
    begin()
online_stream.compile_learner = compile_learner
"""
"""Compiles, as far as anyone can see."""


def test_a_learner_in_the_cache_is_not_compiled_again() -> None:
    compile_learner(lambda: None)
    compile_learner(lambda: pytest.fail("compiled again"))
    assert Path(cache_path() or "").is_dir()


@pytest.mark.thorough
def test_a_run_says_that_it_compiles_before_the_first_row_is_learned(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    lines = [json.loads(line) for line in run_prepared(SLOW, "run", work.job(), "--log", "json").err.splitlines()]
    lines = [line for line in lines if line["event"] != "progress"]  # slow machines have time for it
    names = [line["event"] for line in lines]
    compiling = names.index("train.compiling")
    assert "compiling the learner" in lines[compiling]["message"]
    assert names[compiling : compiling + 3] == ["train.compiling", "compile", "train"]
    assert "train.compiling" not in run_command("run", work.job(), "--new-model").err


def test_nothing_is_said_where_nothing_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    compile_learner(lambda: None)
    notes = Notes()
    compile_learner_as_step(notes)
    assert notes.events == []
    assert events.TRAIN_COMPILING.code == "train.compiling"
    assert capsys.readouterr().err == ""


@pytest.mark.thorough
def test_warm_finds_what_is_in_the_cache() -> None:
    run_command("warm")
    result = run_command("warm", "--json").result
    assert result["compiled"] is False
    assert result["bytes"] > 10_000
    assert Path(result["cache"]).is_dir()


@pytest.mark.thorough
def test_warm_compiles_into_an_empty_cache_for_the_run_that_follows(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    environment = clean_environment(NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    done = run_program([COMMAND, "warm", "--json"], environment=environment)
    assert (done.code, done.result["compiled"]) == (0, True)
    assert "train.compiling" in done.err
    assert Path(done.result["cache"]).is_relative_to(tmp_path / "cache")
    night = run_program([COMMAND, "run", str(work.job())], environment=environment)
    assert (night.code, "compil" in night.err) == (0, False)
