"""The blocks for Airflow, Prefect and Dagster, run with stand-ins: what they ask of `ridgestream.run` is there."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.docs.pages import TOP, blocks_of
from support.jobs.jobs import Workplace

import ridgestream

BLOCKS = {block.reason: block for block in blocks_of(TOP / "docs" / "how-to" / "airflow-prefect-dagster.md")}


class Failed(Exception):
    def __init__(self, message: str, *, allow_retries: bool = True) -> None:
        super().__init__(message)
        self.allow_retries = allow_retries


def as_it_is(function: Callable[..., Any] | None = None, **_: object) -> Any:
    return function or as_it_is


DAGSTER = {
    "asset": as_it_is,
    "RetryPolicy": SimpleNamespace,
    "Failure": Failed,
    "MaterializeResult": SimpleNamespace,
    "MetadataValue": SimpleNamespace(path=str),
    "Definitions": SimpleNamespace,
    "materialize": lambda assets: [asset() for asset in assets],
}
MODULES: dict[str, dict[str, Any]] = {
    "airflow": {},
    "airflow.exceptions": {"AirflowFailException": Failed},
    "airflow.sdk": {"dag": as_it_is, "task": as_it_is},
    "prefect": {"flow": as_it_is, "task": as_it_is},
    "dagster": DAGSTER,
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> ridgestream.RunResult:
    return ridgestream.run(Workplace.new(tmp_path_factory.mktemp("jobs") / "work", range(1)).job())


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, parts in MODULES.items():
        module = ModuleType(name)
        vars(module).update(parts)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("scheduler", ["Airflow", "Prefect", "Dagster"])
def test_a_task_runs_the_job_and_fails_where_a_person_should_look(
    scheduler: str, result: ridgestream.RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, asked = BLOCKS[f"needs {scheduler}"].text, []

    def run(job: str | Path, *, wait_seconds: float) -> ridgestream.RunResult:
        asked.append((job, wait_seconds))
        return replace(result, outcome="held_back", message="worse than before") if len(asked) > 1 else result

    monkeypatch.setattr(ridgestream, "run", run)
    exec(code, {"__name__": "__main__"})  # noqa: S102
    assert asked == [("prices.toml", 600)]
    with pytest.raises((Failed, RuntimeError), match="worse than before"):
        exec(code, {"__name__": "__main__"})  # noqa: S102
