"""The job file: which source wins, and that everything wrong is said at once, each with its key."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from support.jobs.jobs import Workplace, clean_environment

from ridgestream.jobs.config.job_file import Job, read_job
from ridgestream.jobs.config.reference import list_keys
from ridgestream.jobs.config.requests import is_job_file, memory_limit_bytes, store_location
from ridgestream.jobs.config.values import JobFileError, parse_bytes, parse_flags


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    return Workplace(tmp_path)


def read(work: Workplace, *assignments: str, **changes: Any) -> Job:
    return read_job(
        work.job({key.replace("__", "."): value for key, value in changes.items()}), parse_flags([*assignments])
    )


def complaints(work: Workplace, *assignments: str, **changes: Any) -> dict[str, str]:
    """What is said of each key, from the message's lines."""
    with pytest.raises(JobFileError, match="cannot be used:") as caught:
        read(work, *assignments, **changes)
    first, *lines = str(caught.value).splitlines()
    assert "job.toml" in first
    return dict(line.strip().split(": ", 1) for line in lines)


def test_flags_go_over_the_environment_over_the_file_over_defaults(
    work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def values(*assignments: str) -> tuple[object, ...]:
        m = read(work, *assignments, model__max_basis=3, model__novelty_threshold=3.0, model__regularization=3.0).model
        return m.max_basis, m.novelty_threshold, m.regularization, m.usefulness_threshold

    assert values() == (3, 3.0, 3.0, "auto")
    monkeypatch.setenv("RIDGESTREAM_MODEL__MAX_BASIS", "2")
    monkeypatch.setenv("RIDGESTREAM_MODEL__NOVELTY_THRESHOLD", "2")
    assert values() == (2, 2.0, 3.0, "auto")
    assert values("model.max_basis=1") == (1, 2.0, 3.0, "auto")


@pytest.mark.parametrize("wrong", [[[]], {"a": 1}, -1, "", float("nan")], ids=str)
def test_a_wrong_value_of_any_key_is_refused_in_plain_words(work: Workplace, wrong: Any) -> None:
    flags: dict[str, Any] = {}
    for entry in list_keys():
        section = flags
        for parent in entry.key.split(".")[:-1]:
            section = section.setdefault(parent, {})
        section[entry.key.split(".")[-1]] = wrong
    with pytest.raises(JobFileError, match="cannot be used:") as caught:
        read_job(work.job(), flags)
    lines = dict(line.strip().split(": ", 1) for line in str(caught.value).splitlines()[1:])
    assert lines["model.regularization"].startswith(
        'must be a number > 0 or "auto" or a list of one or more, each a number > 0'
    )
    assert lines["model.max_basis"].startswith('must be a whole number ≥ 1 or "unlimited"')
    assert not re.search(r"Input|should|valid|parse|instance|Tuple|Model", str(caught.value))


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("STORE", "elsewhere", lambda job: job.store == "elsewhere"),
        ("CLUSTER", "local:2", lambda job: job.cluster == "local:2"),
        ("MEMORY_LIMIT", "2GB", lambda job: job.memory_limit == 2 * 10**9),
        ("MEMORY_LIMIT", "4000", lambda job: job.memory_limit == 4000),
        ("SOURCE__POSITIVE", "3", lambda job: job.source.positive == 3 and type(job.source.positive) is int),
        ("SOURCE__POSITIVE", "true", lambda job: job.source.positive is True),
        ("SOURCE__POSITIVE", '"3"', lambda job: job.source.positive == "3"),
        ("SOURCE__POSITIVE", "Spruce", lambda job: job.source.positive == "Spruce"),
        ("SOURCE__IGNORE", '["a", "b"]', lambda job: job.source.ignore == ("a", "b")),
        ("MODEL__KERNEL__GAMMA", "0.25", lambda job: job.model.kernel.gamma == 0.25),
        ("MODEL__SCALING_ROWS", "all", lambda job: job.model.scaling_rows == "all"),
        ("MODEL__SCALING_ROWS", "7", lambda job: job.model.scaling_rows == 7),
        ("EVALUATE__PATH", "x", lambda job: job.evaluate.path == "x"),
    ],
)
def test_any_key_can_come_from_the_environment(
    work: Workplace, monkeypatch: pytest.MonkeyPatch, name: str, value: str, found: Any
) -> None:
    monkeypatch.setenv(f"RIDGESTREAM_{name}", value)
    assert found(read(work))


def test_a_label_keeps_its_type_from_file_and_flag(work: Workplace) -> None:
    for value in (2, 2.5, "2", "Spruce", True, False):
        from_file = read(work, source__positive=value).source.positive
        assert (type(from_file), from_file) == (type(value), value)
    flags = {"2": 2, "2.5": 2.5, '"2"': "2", "Spruce": "Spruce", "true": True, "Lodgepole pine": "Lodgepole pine"}
    for text, label in flags.items():
        from_flag = read(work, f"source.positive={text}").source.positive
        assert (type(from_flag), from_flag) == (type(label), label)


def test_every_error_is_reported_at_once_with_its_key(work: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGESTREAM_MODEL__NOVELTY_THRESHOLD", "-1")
    monkeypatch.setenv("RIDGESTREAM_EVALUATE__PTH", "x")
    said = complaints(
        work,
        "model.max_basis=0",
        "nonsense=1",
        source__target=None,
        model__kernel__width=3,
        model__regularization=0,
        memory_limit="lots",
    )
    assert said.keys() == {
        "model.max_basis",
        "model.novelty_threshold",
        "model.regularization",
        "model.kernel.width",
        "evaluate.pth",
        "source.target",
        "memory_limit",
        "nonsense",
    }
    assert said["source.target"] == "is missing"
    assert said["nonsense"] == said["model.kernel.width"] == "there is no such key"
    assert said["evaluate.pth"] == "there is no such key; did you mean evaluate.path?"
    assert "'-1'" in said["model.novelty_threshold"]
    assert "'lots'" in said["memory_limit"]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("modle", "model"),
        ("model.max_bases", "model.max_basis"),
        ("model.kernel.gama", "model.kernel.gamma"),
        ("max_basis", "model.max_basis"),
        ("source.experts", "model.experts"),
        ("model.patience", "model.ols.patience or model.orols.patience"),
    ],
)
def test_an_unknown_key_has_the_key_that_may_be_meant(work: Workplace, key: str, meant: str) -> None:
    with pytest.raises(JobFileError, match=rf"{re.escape(key)}: there is no such key; did you mean {meant}\?"):
        read_job(work.job({key: 1}), {})


@pytest.mark.parametrize("key", ["stoer", "source.taget", "model.kernel.sigma", "evaluate.pathh", "predict.x"])
def test_an_unknown_key_is_refused_wherever_it_comes_from(
    work: Workplace, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    whole = {"predict.path": "rows", "predict.output": "out"}
    path = work.job({**whole, key: 1})
    with pytest.raises(JobFileError, match=rf"  {re.escape(key)}: there is no such key"):
        read_job(path, {})
    path = work.job(whole)
    with pytest.raises(JobFileError, match=rf"  {re.escape(key)}: there is no such key"):
        read_job(path, parse_flags([f"{key}=1"]))
    monkeypatch.setenv("RIDGESTREAM_" + key.upper().replace(".", "__"), "1")
    with pytest.raises(JobFileError, match=rf"  {re.escape(key)}: there is no such key"):
        read_job(path, {})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.regularization", float("inf")),
        ("model.regularization", float("nan")),
        ("model.regularization", 0),
        ("model.novelty_threshold", -1e-9),
        ("model.usefulness_threshold", float("inf")),
        ("model.max_basis", 2.5),
        ("model.scaling_rows", "some"),
        ("model.scaling_rows", 0),
        ("model.name", "a/b"),
        ("model.name", "''"),
        ("model.name", "a" * 65),
        ("model.method", "batch"),
        ("model.kernel.gamma", 0),
        ("model.kernel.name", "sigmoid"),
        ("model.kernel.degree", 2),
        ("source.features", "a"),
        ("memory_limit", -3),
        ("memory_limit", 0),
        ("memory_limit", "0GB"),
        ("memory_limit", "3 gigs"),
        ("cluster", "locl"),
        ("cluster", "local:0"),
        ("cluster", "local:many"),
        ("cluster", ""),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_key(work: Workplace, key: str, value: Any) -> None:
    assert complaints(work, f"{key}={value}").keys() == {"model.kernel" if key == "model.kernel.degree" else key}


@pytest.mark.parametrize("cluster", ["none", "local", "local:1", "local:12", "tcp://10.0.0.1:8786", "scheduler:8786"])
def test_clusters_that_may_be(work: Workplace, cluster: str) -> None:
    assert read(work, cluster=cluster).cluster == cluster


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"store = ", "cannot be read: Invalid value"),
        (b"store = 'a'\nstore = 'b'", "cannot be read: Cannot overwrite a value"),
        (b"[source\n", "cannot be read: Expected ']'"),
        (b"store = '\xff\xfe'", "cannot be read: 'utf-8' codec can't decode"),
        (b"", "store: is missing"),
    ],
)
def test_a_file_that_is_no_toml_is_refused_by_name(work: Workplace, content: bytes, expected: str) -> None:
    path = work.folder / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(JobFileError, match=re.escape(expected)) as caught:
        read_job(path, {})
    assert "broken.toml" in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused_by_name(work: Workplace) -> None:
    for path in (work.folder / "none.toml", work.folder):
        with pytest.raises(JobFileError, match=f"there is no job file {re.escape(str(path))}"):
            read_job(path, {})


def test_an_inaccessible_job_file_is_reported(work: Workplace) -> None:
    path = work.folder / f"{'x' * 300}.toml"
    assert not is_job_file(str(path))
    with pytest.raises(JobFileError, match=r"the job .*xxx\.toml cannot be read: File name too long"):
        read_job(path, {})


def test_paths_are_relative_to_the_job_file(work: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    job = read(work, store="stores/a", source__path="../rows", evaluate__path="/data/test")
    assert store_location(job).text == str(work.folder / "stores" / "a")
    assert job.path(job.source.path) == work.folder.parent / "rows"
    assert job.evaluate is not None
    assert job.path(job.evaluate.path) == Path("/data/test")


def test_a_job_file_named_relative_to_the_working_folder(work: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    work.job()
    monkeypatch.chdir(work.folder)
    job = read_job(Path("job.toml"), {})
    monkeypatch.chdir("/")
    assert store_location(job).text == str(work.store)


def test_home_is_understood_in_every_path(work: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    job = read(work, store="~/store", source__path="~/rows")
    assert store_location(job).text == "/home/someone/store"
    assert job.path(job.source.path) == Path("/home/someone/rows")


def test_urls_of_stores_are_left_as_they_are(work: Workplace) -> None:
    assert store_location(read(work, store="s3://bucket/a/b")).text == "s3://bucket/a/b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500", 500),
        ("500B", 500),
        ("4kB", 4000),
        ("500MB", 500 * 10**6),
        ("1.5 GB", 1_500_000_000),
        (" 2TB ", 2 * 10**12),
        ("1MiB", 2**20),
        ("4 GiB", 2**32),
        ("1TiB", 2**40),
    ],
)
def test_sizes_of_memory(work: Workplace, text: str, expected: int) -> None:
    assert parse_bytes(text) == expected
    assert memory_limit_bytes(read(work, memory_limit=text)) == expected


@pytest.mark.parametrize("text", ["", "GB", "4 gb", "4KB", "-4GB", "1e9", "4 GB RAM", "4GBs"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match=r"a size is a number with one of B, kB, .*, such as 4GB$"):
        parse_bytes(text)


def test_a_number_of_bytes_is_taken_as_it_is_and_none_means_what_is_free(work: Workplace) -> None:
    assert memory_limit_bytes(read(work, memory_limit=123456)) == 123456
    assert memory_limit_bytes(read(work)) > 10**6


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        ([], {}),
        (["a=1"], {"a": 1}),
        (["a=1", "a=2"], {"a": 2}),
        (["a.b=1", "a.c=x"], {"a": {"b": 1, "c": "x"}}),
        (["a='1'"], {"a": "1"}),
        (["a="], {"a": None}),
        (["a=b=c"], {"a": "b=c"}),
        (["a=1e-3"], {"a": 1e-3}),
        (["a=[1, 2]"], {"a": [1, 2]}),
        (['a={b = "c"}', "a.d=1"], {"a": {"b": "c", "d": 1}}),
        (["a=/data/x y"], {"a": "/data/x y"}),
        (["a=1\nb = 2"], {"a": "1\nb = 2"}),
    ],
)
def test_set_takes_toml_or_text(assignments: list[str], expected: dict[str, Any]) -> None:
    assert parse_flags(assignments) == expected


@pytest.mark.parametrize("assignment", ["a", "=1", "", "a b=1", ".a=1", "a.=1", "a..b=1", "--a=1"])
def test_set_refuses_what_is_no_assignment(assignment: str) -> None:
    with pytest.raises(JobFileError, match=r"--set takes KEY=VALUE, such as model\.max_basis=100; '.*' is not"):
        parse_flags([assignment])


def test_set_refuses_keys_below_a_value() -> None:
    with pytest.raises(JobFileError, match=r"model\.max_basis cannot be set: model is given a value, too"):
        parse_flags(["model=3", "model.max_basis=3"])


def test_set_merges_with_the_file_key_by_key(work: Workplace) -> None:
    job = read(work, 'model.kernel={name = "polynomial"}', "model.kernel.degree=4", model__kernel__gamma=0.5)
    assert job.model.kernel.model_dump() == {"name": "polynomial", "gamma": 0.5, "degree": 4, "coef0": None}
    assert job.model.max_basis == 20
