"""The list of log events: codes are unique and well formed, and every event and step is used."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

import ridgestream
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.events import Event, Step

EVENTS = {name: value for name, value in vars(events).items() if isinstance(value, Event)}
STEPS = {name: value for name, value in vars(events).items() if isinstance(value, Step)}


def modules() -> Iterator[ast.Module]:
    for package in ("pipeline", "stores", "jobs"):
        for path in Path(str(files(f"{ridgestream.__name__}.{package}"))).rglob("*.py"):
            if path.name != "events.py":
                yield ast.parse(path.read_text("utf-8"))


@cache
def nodes() -> tuple[ast.AST, ...]:
    return tuple(node for module in modules() for node in ast.walk(module))


def test_codes_are_unique_and_named_by_subject_and_event() -> None:
    codes = [event.code for event in EVENTS.values()]
    assert len(set(codes)) == len(codes) > 50
    for name, event in EVENTS.items():
        assert re.fullmatch(r"[a-z]+\.[a-z]+(_[a-z]+)*", event.code)
        assert name == event.code.upper().replace(".", "_")


def test_codes_of_steps_are_unique_and_have_no_dot() -> None:
    codes = [step.code for step in STEPS.values()]
    assert len(set(codes)) == len(codes) > 20
    for name, step in STEPS.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", step.code)
        assert name == f"STEP_{step.code.upper()}"


def test_a_sentence_is_plain_text_without_values() -> None:
    for event in EVENTS.values():
        assert event.sentence
        assert not re.search(r"[{}\n]|\d|\.$", event.sentence), event


def test_every_event_and_step_is_used() -> None:
    used = {node.attr for node in nodes() if isinstance(node, ast.Attribute)}
    used |= {node.id for node in nodes() if isinstance(node, ast.Name)}
    assert {*EVENTS, *STEPS} - used == set()


def test_no_call_reports_free_text() -> None:
    calls = [node for node in nodes() if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    reports = [
        call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in ("say", "warn", "begin")
    ]
    assert len(reports) > 50
    for call in reports:
        assert not isinstance(call.args[0], ast.Constant | ast.JoinedStr), ast.unparse(call)
