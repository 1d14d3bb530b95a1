"""What a command prints when it is done: rounded for people, with all digits as JSON."""

import json

import pytest

from ridgestream.jobs.cli.results import print_result

RESULT = {"test_mse": 1727.0039469649898, "errors": [0.08477124925636617, 2], "rows": 1440, "refitted": True}


def test_people_read_six_digits_and_programs_all(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(RESULT, as_json=False)
    assert [line.split(None, 1)[1] for line in capsys.readouterr().out.splitlines()] == [
        "1727",
        "0.0847712, 2",
        "1,440",
        "yes",
    ]
    print_result(RESULT, as_json=True)
    assert json.loads(capsys.readouterr().out) == RESULT
