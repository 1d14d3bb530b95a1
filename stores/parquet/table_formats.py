"""Refuses folders of table formats, whose files are not their rows: a log says which files count, and old ones stay.

Listed as plain Parquet, such a folder would give deleted rows and old versions of rows along with the present ones.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from ridgestream.stores.errors.exceptions import PartitionError, ServerSilent, StoreError
from ridgestream.stores.files.paths import FileLocation, ObjectPath, list_objects, present_below
from ridgestream.stores.parquet.hidden_names import is_hidden_folder

_LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi", "_spark_metadata": "Spark streaming"}
"""The table format of a folder that contains a folder of this name."""

_FILES = {
    "metadata": (
        "Iceberg",
        re.compile(r"(?:v\d+|\d+-[\da-f-]{36})(?:\.gz)?\.metadata\.json(?:\.gz)?|version-hint\.text"),
    ),
    "snapshot": ("Paimon", re.compile(r"snapshot-\d+|LATEST|EARLIEST")),
}
"""The table format of a folder that contains a folder of this name with such a file."""

_EXPORTS = {
    "Delta": "spark.read.format('delta').load(TABLE).write.parquet(FOLDER), or deltalake's DeltaTable(TABLE)",
    "Hudi": "spark.read.format('hudi').load(TABLE).write.parquet(FOLDER)",
    "Spark streaming": "spark.read.parquet(TABLE).write.parquet(FOLDER), which reads the log",
    "Iceberg": "spark.read.format('iceberg').load(TABLE).write.parquet(FOLDER), or pyiceberg's table.scan()",
    "Paimon": "spark.read.format('paimon').load(TABLE).write.parquet(FOLDER)",
}


def check_no_table(source: FileLocation, names: Iterable[str]) -> None:
    """Raise PartitionError if one of the names below a source, folders with a final slash, belongs to a table's log."""
    for name in names:
        *folders, file = name.split("/")
        hidden = next((i for i, folder in enumerate(folders) if is_hidden_folder(folder)), len(folders))
        if hidden < len(folders) and folders[hidden] in _LOGS:
            _refuse(source, _LOGS[folders[hidden]], "/".join(folders[: hidden + 1]))
        kind, pattern = _FILES.get(folders[-1] if folders else "", ("", None))
        if pattern is not None and hidden == len(folders) and pattern.fullmatch(file):
            _refuse(source, kind, name)


def check_not_inside_table(source: FileLocation) -> None:
    """Raise PartitionError if a folder or prefix that contains the source is that of a table, as far as it can be read.

    Costs a few looks at each folder above.
    """
    for log in _logs_above_folder(source) if isinstance(source, Path) else _logs_above_prefix(source):
        _refuse(source, *log)


def _logs_above_folder(source: Path) -> Iterator[tuple[str, str]]:
    """Yield format and log of each table in whose folder the source lies."""
    for folder in Path(os.path.realpath(source)).parents:
        for log, kind in _LOGS.items():
            if os.path.isdir(folder / log):  # noqa: PTH112 (False where it may not be read)
                yield kind, str(folder / log)
        for log, (kind, pattern) in _FILES.items():
            if any(map(pattern.fullmatch, _names_in(folder / log))):
                yield kind, str(folder / log)


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 (names alone)
    except OSError:
        return []


def _logs_above_prefix(source: ObjectPath) -> Iterator[tuple[str, str]]:
    """Yield format and log of each table below whose prefix the source lies."""
    names = [*_LOGS, *_FILES]
    for folder in source.parents:
        try:
            present = present_below(folder, names)
            files = {log: [name for name, _, _ in list_objects(folder / log)] for log in present if log in _FILES}
        except ServerSilent:
            raise
        except StoreError:  # no access above the source
            return
        yield from ((_LOGS[log], str(folder / log)) for log in present if log in _LOGS)
        for log, listed in files.items():
            kind, pattern = _FILES[log]
            if any(map(pattern.fullmatch, listed)):
                yield kind, str(folder / log)


def _refuse(source: FileLocation, kind: str, log: str) -> NoReturn:
    raise PartitionError(
        f"the source {source} belongs to a table of {kind}, whose log is {log}: its files are not its rows, since "
        "replaced and deleted ones stay there; export the table into a folder of its own "
        f"({_EXPORTS[kind]}), and give that folder as the source"
    )
