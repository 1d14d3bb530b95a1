"""Walks a source: the names of all files below a folder or prefix, partitions and others.

Links to folders are followed. Hidden folders hold no rows: the files of those that begin with an underscore are listed,
to be counted; those that begin with a dot are not entered, since a `.snapshot` may hold the source many times over.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.files.paths import FileLocation, ObjectPath, Stamp, list_objects, stamp_from
from ridgestream.stores.parquet.hidden_names import is_hidden, is_hidden_folder
from ridgestream.stores.parquet.table_formats import check_no_table, check_not_inside_table

_MARKERS = re.compile(r"_SUCCESS|_(?:common_)?metadata|_(?:started|committed)_\d+|.*\.crc|\.DS_Store|Thumbs\.db")
"""Names of files that writers and file managers leave beside data; they are not counted."""

_LIKE_DATA = re.compile(r"\.(?:parquet|parq|pq)$", re.IGNORECASE)

_RECOVERED = "lost+found"


@dataclass(frozen=True)
class ListedFile:
    """A file of a source; also a hidden folder, whose name ends with a slash."""

    name: str
    """Path relative to the source, with forward slashes."""
    location: FileLocation
    """Its location."""
    stamp: Stamp | None = None
    """Its stamp, if the listing had it."""

    @property
    def is_partition(self) -> bool:
        """Whether its name is that of a partition: it ends in .parquet, and no part of it is hidden."""
        *folders, name = self.name.split("/")
        return name.endswith(".parquet") and not is_hidden(name) and not any(map(is_hidden_folder, folders))

    @property
    def is_marker(self) -> bool:
        """Whether it is known to hold no rows; the files of a folder with an underscore are listed themselves."""
        *_, folder, last = ["", *self.name.split("/")]
        return bool(_MARKERS.fullmatch(last)) if last else folder.startswith("_")

    @property
    def looks_like_data(self) -> bool:
        """Whether its name is that of a Parquet file."""
        return bool(_LIKE_DATA.search(self.name))


def walk_source(source: FileLocation) -> list[ListedFile]:
    """Return all files below the folder or prefix, or the single file that it names, in no particular order.

    Raises PartitionError if there is nothing, for a folder that cannot be read, for a link that leads nowhere or back
    to a folder that contains it, and for a folder of a table format; StoreError if an object store cannot be read.
    """
    files = _walk_folder(source) if isinstance(source, Path) else _walk_prefix(source)
    if not (len(files) == 1 and files[0].location == source):
        check_no_table(source, (file.name for file in files))
        check_not_inside_table(source)
    return files


def escape_path(path: FileLocation | str) -> str:
    """Return a path as text that can be printed: bytes that are not UTF-8 are escaped."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _walk_prefix(source: ObjectPath) -> list[ListedFile]:
    objects = list_objects(source)
    if not objects:
        raise PartitionError(f"the source {source} does not exist: there is no object of that name or below it")
    return [ListedFile(*each) for each in objects]


def _walk_folder(source: Path) -> list[ListedFile]:
    try:
        is_file, is_there = source.is_file(), source.exists()
    except OSError as error:
        raise PartitionError(f"the source {escape_path(source)} cannot be read: {error.strerror}") from error
    if not is_there:
        raise PartitionError(f"the source {escape_path(source)} does not exist")
    return [ListedFile(source.name, source)] if is_file else list(_Walk(source).files(source, "", ()))


@dataclass(frozen=True)
class _Walk:
    """A walk through the folders of a source."""

    source: Path
    """The source, for messages."""

    def files(self, folder: Path, prefix: str, above: tuple[str, ...]) -> Iterator[ListedFile]:
        """Yield the files below a folder, whose names get the prefix; `above` are the folders it lies in, resolved."""
        resolved = os.path.realpath(folder)
        if resolved in above:
            self._refuse(folder, "is a link to a folder that contains it; remove the link")
        if folder.is_symlink():
            check_not_inside_table(folder)
        for entry in self._entries(folder):
            path, name = Path(entry.path), f"{prefix}{entry.name}"
            if not self._is_folder(entry):
                yield ListedFile(name, path, _stamp(entry))
            elif is_hidden_folder(entry.name):
                yield ListedFile(f"{name}/", path)
                yield from _hidden_files(path, name)
            elif entry.name != _RECOVERED:
                yield from self.files(path, f"{name}/", (*above, resolved))

    def _entries(self, folder: Path) -> "list[os.DirEntry[str]]":
        try:
            with os.scandir(folder) as entries:
                return list(entries)
        except OSError as error:
            self._refuse(folder, f"cannot be read: {error.strerror}; make it readable, or move it away")

    def _is_folder(self, entry: "os.DirEntry[str]") -> bool:
        """Return whether it is a folder; raises PartitionError for a link to nowhere that may have led to one."""
        if entry.is_symlink() and not os.path.exists(entry.path):  # noqa: PTH110 (False for a link to itself, too)
            if not Path(entry.name).suffix and not is_hidden(entry.name):
                self._refuse(Path(entry.path), "is a link that leads nowhere; put back what it led to, or remove it")
            return False
        return entry.is_dir()

    def _refuse(self, path: Path, reason: str) -> NoReturn:
        raise PartitionError(f"the source {escape_path(self.source)}: {escape_path(path)} {reason}")


def _stamp(entry: "os.DirEntry[str]") -> Stamp | None:
    """Return a file's stamp; None where there is no file, which is reported if it turns out to be a partition."""
    try:
        return stamp_from(entry.stat())
    except OSError:
        return None


def _hidden_files(folder: Path, prefix: str) -> Iterator[ListedFile]:
    """Yield the files of a folder that begins with an underscore, as far as they can be listed."""
    for path, _, names in os.walk(folder) if folder.name.startswith("_") else ():
        below = Path(path).relative_to(folder).as_posix()
        yield from (ListedFile(os.path.normpath(f"{prefix}/{below}/{name}"), Path(path, name)) for name in names)
