"""A commented job file drafted from a look at the data: what it says runs as it is, once there is a target."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.drafts.look import Column, Look, look_at
from ridgestream.jobs.drafts.schema import SCHEMA_URL
from ridgestream.stores.errors.close_names import closest_name
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.files.paths import parse_location

_NAMED = 10
"""Columns that a line names."""


@dataclass(frozen=True)
class Target:
    """The column to predict."""

    column: Column
    """The column."""
    why: str
    """Why it is this one; empty if the user says so."""


def run_init(data: str, target: str | None, job: Path, *, guesses_target: bool) -> dict[str, Any]:
    """Write a job file for this data, and return what it says.

    Raises JobFileError if there is a file of that name already, PartitionError if the data cannot be used.
    """
    look = look_at(parse_location(data, Path.cwd(), "the data"))
    chosen = _target(look, target, guesses=guesses_target)
    text = draft(look, _shown_from(data, job), chosen)
    try:
        with job.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise JobFileError(f"there is a file {job} already: give the job another name by --output") from error
    except OSError as error:
        raise JobFileError(f"the job {job} cannot be written: {error.strerror}") from error
    named = chosen.column.name if chosen else "to be filled in: source.target"
    return {"job": str(job), "partitions": look.partitions, "rows": look.rows, "target": named}


def _target(look: Look, name: str | None, *, guesses: bool) -> Target | None:
    guess, why = (name, "") if name is not None else look.guess_target() if guesses else (None, "")
    column = next((column for column in look.columns if column.name == guess), None)
    if guess is not None and column is None:
        alike = closest_name(guess, (column.name for column in look.columns))
        meant = f", did you mean {alike!r}?" if alike else ";"
        raise PartitionError(f"the data has no column {guess!r}{meant} its columns are {_listed(look.columns)}")
    return Target(column, why) if column else None


def _shown_from(data: str, job: Path) -> str:
    """Return the data's location as the job file names it: relative to its folder where it lies below."""
    if "://" in data:
        return data
    folder, path = job.absolute().parent, Path(os.path.normpath(Path(data).expanduser().absolute()))
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


def draft(look: Look, path: str, target: Target | None) -> str:
    """Return the job file for data at a path, or with a line to fill in if there is no target."""
    return "\n".join(_lines(look, path, target)) + "\n"


def _lines(look: Look, path: str, target: Target | None) -> Iterator[str]:
    features = [column for column in look.columns if target is None or column.name != target.column.name]
    yield f"#:schema {SCHEMA_URL}"
    yield f"# Drafted from a look at {look.seen:,} of {look.rows:,} rows in {look.partitions:,} partitions."
    yield "# `ridgestream plan` says what a run would take, `ridgestream run` ingests, learns, evaluates and commits."
    yield ""
    yield f"store = {_text(_store_name(path))}  # a folder, or the URL of an object store, such as s3://bucket/name"
    yield ""
    yield "[source]"
    yield f"path = {_text(path)}"
    yield from _target_lines(look, target)
    yield from _ignored(features)
    yield from _missing(features, target)
    yield "# The columns of the first partition:"
    yield from (f"#   {_described(column, target)}" for column in look.columns)
    yield from _REST


_REST = (
    "",
    "[model]",
    "# What is left out is chosen at the first training: the metric, the kernel's width, the penalty, the size.",
    "# max_basis = 500  # the number of basis vectors: more are slower, and have a smaller error",
    "# experts = 300  # a dictionary in each of so many cells of space: for many rows",
    "",
    "# [evaluate]",
    '# path = "held-out"  # rows that are not learned, with the target: each night is judged by them',
    "",
    "# [predict]",
    '# path = "new"',
    '# output = "predictions"',
)


def _store_name(path: str) -> str:
    name = PurePosixPath(path.rstrip("/")).name
    return f"{name.removesuffix('.parquet') or 'store'}.icechunk"


def _target_lines(look: Look, target: Target | None) -> Iterator[str]:
    if target is None:
        yield f"# target =  # fill in the column to predict: {_listed(look.columns)}"
        return
    column, why = target.column, f"  # guessed {target.why}" if target.why else ""
    yield f"target = {_text(column.name)}{why}"
    if column.holds_classes:
        yield f'classes = "all"  # {column.distinct} classes so far, each learned against the rest'
    elif column.may_hold_classes:
        yield f'# classes = "all"  # if its {column.distinct} different numbers are classes'


def _ignored(features: list[Column]) -> Iterator[str]:
    ignored = [column for column in features if column.reason]
    if ignored:
        yield f"ignore = [{', '.join(_text(column.name) for column in ignored)}]"


def _missing(features: list[Column], target: Target | None) -> Iterator[str]:
    lacking = [column for column in features if column.missing and not column.reason]
    if target is not None and target.column.missing:
        yield f'missing = "drop"  # rows that lack a value: the target lacks {target.column.missing:,}'
    elif lacking:
        yield f'missing = "impute"  # missing values are filled: {_listed(lacking)}; "drop" leaves such rows out'


def _described(column: Column, target: Target | None) -> str:
    parts = [column.type, "the target" if target and column.name == target.column.name else column.kind]
    parts += [] if column.distinct is None else [f"{column.distinct:,} values"]
    parts += [f"{column.missing:,} missing"] * bool(column.missing)
    parts += [f"ignored: {column.reason}"] * bool(column.reason)
    return f"{_text(column.name)}: {', '.join(part for part in parts if part)}"


def _listed(columns: "tuple[Column, ...] | list[Column]") -> str:
    return ", ".join(_text(column.name) for column in columns[:_NAMED]) + ", …" * (len(columns) > _NAMED)


def _text(text: str) -> str:
    """Return a text as TOML has it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
