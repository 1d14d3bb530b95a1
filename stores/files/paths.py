"""Locations of files: local paths and object store URLs, with the same functions to list, open and write both.

An object appears once it has been uploaded completely. Arrow completes an upload whenever its stream is closed, even by
an exception or at interpreter exit, so each file is written to a temporary file first and then uploaded by one call.
"""

import glob
import mmap
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

from ridgestream.stores.errors.exceptions import ServerSilent, StoreError
from ridgestream.stores.files.object_storage import ObjectUrl, StorageSettings, file_system
from ridgestream.stores.files.read_ahead import AHEAD_BYTES, ReadAhead
from ridgestream.stores.requests.activity import ACTIVITY

if TYPE_CHECKING:
    import pyarrow.fs

_NO_ANSWER = r"NETWORK_CONNECTION|curlCode|UNAVAILABLE|Could not resolve|Failed to connect"
_SECOND = 10**9
_RECENT_SECONDS = 10  # one, and the difference of the clocks of this machine and the server
_MAX_REASON_CHARACTERS = 300
_ABANDONED_SECONDS = 3600


@dataclass(frozen=True)
class ObjectPath:
    """An object, or a prefix of objects, in S3, GCS or Azure; supports `/` and `name` like pathlib."""

    url: str
    """Its URL, without a trailing slash."""
    storage: StorageSettings = field(default=StorageSettings(), repr=False)
    """How to connect to the object store; sent to other processes along with the URL."""

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Self:
        return type(self)(f"{self.url}/{name}", self.storage)

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]

    @property
    def parents(self) -> "tuple[Self, ...]":
        """The prefixes that contain it, from the nearest one to the whole bucket."""
        depth = len(self.parsed.key.split("/")) if self.parsed.key else 0
        return tuple(type(self)(self.url.rsplit("/", up)[0], self.storage) for up in range(1, depth + 1))

    @property
    def parsed(self) -> ObjectUrl:
        """The parsed URL."""
        return ObjectUrl.parse(self.url, "the location")

    @property
    def path(self) -> str:
        """The path by which Arrow addresses it."""
        return self.parsed.path

    @property
    def files(self) -> "pyarrow.fs.FileSystem":
        """The Arrow file system of the object store."""
        return file_system(self.parsed, self.storage, self.url)


FileLocation = Path | ObjectPath


RECENT = "recent"
"""The identity of an object that was written just before its stamp was taken, so that it may be written again, with
another content of its size, in the second that the stamp names: equal stamps say nothing."""


@dataclass(frozen=True)
class Stamp:
    """Size and modification time: shows without reading a file whether it was rewritten."""

    size_bytes: int
    """Size in bytes."""
    modified_ns: int
    """Modification time in nanoseconds; object stores give whole seconds."""
    identity: str = field(default="", compare=False)
    """For a local file, its inode and the time of its last change of any kind, which no program can set; for an object,
    empty, or RECENT.

    The first also changes where the contents do not, as by a link, a copy or `chmod`, so equal stamps may have
    different ones.
    """


def parse_location(text: str, base: Path, label: str, storage: StorageSettings | None = None) -> FileLocation:
    """Parse a location: a URL as it is, a relative path relative to the folder `base`.

    Raises StoreError, which calls the location `label`, for an unknown scheme and for credentials in a URL.
    """
    if text.startswith("file:"):
        return _parse_file_url(text, label)
    if "://" not in text:
        return Path(os.path.normpath(base / Path(text).expanduser()))
    ObjectUrl.parse(text, label)
    return ObjectPath(text.rstrip("/"), storage or StorageSettings())


def is_same_location(one: FileLocation, other: FileLocation) -> bool:
    """Return whether two locations are the same file or folder."""
    if isinstance(one, Path) and isinstance(other, Path):
        return one.resolve() == other.resolve()
    if isinstance(one, Path) or isinstance(other, Path):
        return False
    return one.parsed.shares_bucket(other.parsed) and one.parsed.key == other.parsed.key


def list_objects(location: ObjectPath) -> list[tuple[str, ObjectPath, Stamp]]:
    """Return relative name, location and stamp of the object at a location, or of all objects below it.

    The list is empty if there is no such object. Raises StoreError for a missing bucket, denied access or no response.
    """
    from pyarrow.fs import FileSelector, FileType

    with object_errors(location, "listed"):
        info = location.files.get_file_info(location.path)
        if info.type == FileType.File:
            return [(location.name, location, _stamp(info))]
        selector = FileSelector(location.path, recursive=True)
        try:
            infos = location.files.get_file_info(selector)
        except FileNotFoundError:
            return []
    names = [(info.path.removeprefix(f"{location.path}/"), info) for info in infos if info.type == FileType.File]
    return [(name, location / name, _stamp(info)) for name, info in names]


def present_below(location: ObjectPath, names: Sequence[str]) -> list[str]:
    """Return those of the names under which there is an object, or a prefix of objects, directly below a location.

    Raises StoreError if that cannot be determined.
    """
    from pyarrow.fs import FileType

    with object_errors(location, "listed"):
        infos = location.files.get_file_info([f"{location.path}/{name}" for name in names])
    return [name for name, info in zip(names, infos, strict=True) if info.type != FileType.NotFound]


def stamp_of(location: FileLocation) -> Stamp:
    """Return the current size and time stamp of a file; raises FileNotFoundError or another OSError."""
    from pyarrow.fs import FileType

    if isinstance(location, Path):
        return stamp_from(location.stat())
    with object_errors(location, "read"):
        info = location.files.get_file_info(location.path)
    if info.type != FileType.File:
        raise FileNotFoundError(2, "no such object", str(location))
    return _stamp(info)


def stamp_from(status: os.stat_result) -> Stamp:
    """Return the stamp of a local file with this status."""
    return Stamp(status.st_size, status.st_mtime_ns, f"{status.st_ino}-{status.st_ctime_ns}")


def is_file(location: FileLocation) -> bool:
    """Return whether a file exists; raises OSError or StoreError if that cannot be determined."""
    try:
        stamp_of(location)
    except FileNotFoundError:
        return False
    return True


def open_file(location: FileLocation, ahead_bytes: int = AHEAD_BYTES) -> Any:  # noqa: ANN401 (pyarrow has no types)
    """Return what a Parquet reader opens: a local path, or a file object with read-ahead for an object store.

    Raises FileNotFoundError if there is no such object, StoreError if it cannot be read.
    """
    if isinstance(location, Path):
        return location
    with object_errors(location, "read"):
        file = location.files.open_input_file(location.path)
        return ReadAhead(file, lambda: object_errors(location, "read"), ahead_bytes)


@contextmanager
def write_atomically(location: FileLocation, media_type: str = "application/octet-stream") -> Iterator[IO[bytes]]:
    """Yield a file to write to; it appears under its name when the context exits without an exception, or not at all.

    `media_type` is the content type of an object, for browsers.
    Raises OSError if a local file cannot be written, StoreError if an object cannot.
    """
    with _write_path(location) if isinstance(location, Path) else _write_object(location, media_type) as sink:
        yield sink


@contextmanager
def object_errors(location: ObjectPath, action: str) -> Iterator[None]:
    """Translate Arrow's errors of an object store into StoreError with a remedy; FileNotFoundError passes through."""
    import pyarrow as pa

    try:
        with ACTIVITY.under_way(f"{location} to be {action}"):
            yield
    except (FileNotFoundError, StoreError):
        raise
    except (OSError, pa.ArrowException) as error:
        kind = ServerSilent if re.search(_NO_ANSWER, str(error)) else StoreError
        raise kind(f"{location} cannot be {action}: {_reason(str(error), location)}") from error


def _reason(text: str, location: ObjectPath) -> str:
    bucket = location.parsed.bucket
    plain = re.sub(r"\s*\(?Request ID: [^)]*\)?", "", text.partition("\n")[0])
    plain = plain if len(plain) <= _MAX_REASON_CHARACTERS else f"{plain[:_MAX_REASON_CHARACTERS]} …"
    if re.search(r"NO_SUCH_BUCKET|bucket does not exist|ContainerNotFound", text):
        return f"there is no bucket {bucket!r}; make it, or correct the name"
    if re.search(r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE|PERMISSION_DENIED|Auth\w+Fail|UNAUTH|code 40[13]", text):
        return (
            f"access is denied ({plain}); the credentials of this process come from its environment: do they reach the "
            f"bucket {bucket!r}? A public one is read with storage.anonymous = true"
        )
    if re.search(_NO_ANSWER, text):
        endpoint = (location.storage.endpoint if location.parsed.is_s3 else None) or "the service"
        return (
            f"{endpoint} cannot be reached ({plain}); check storage.endpoint_url or AWS_ENDPOINT_URL, and the network"
        )
    return plain


def _parse_file_url(text: str, label: str) -> Path:
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        shown = "file://" + text.rpartition("@")[2] if "@" in parts.netloc else text
        raise StoreError(f"{label} {shown!r} must name an absolute path of this machine, as file:///data/rows")
    path = text.removeprefix(f"file://{parts.netloc}").removeprefix("file:")  # literally, including # and ?
    return Path(os.path.normpath(unquote(path)))


def _stamp(info: "pyarrow.fs.FileInfo") -> Stamp:
    """Return the stamp in whole seconds: some servers give fractions in listings that they omit for single objects."""
    modified = (info.mtime_ns or 0) // _SECOND * _SECOND
    return Stamp(info.size, modified, RECENT if time.time_ns() - modified < _RECENT_SECONDS * _SECOND else "")


@contextmanager
def _write_path(path: Path) -> Iterator[IO[bytes]]:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    if path.is_symlink():
        raise StoreError(
            f"{path} is a link to {path.readlink()}, and neither the link nor what it names is overwritten; delete the "
            "link, or choose another place"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _delete_abandoned(path)
        with unfinished.open("wb") as sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        unfinished.replace(path)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _delete_abandoned(path: Path) -> None:
    """Delete unfinished files of killed processes; a recently modified one may still be in use."""
    for unfinished in path.parent.glob(f".{glob.escape(path.name)}.*.unfinished"):
        with suppress(OSError):
            if time.time() - unfinished.stat().st_mtime > _ABANDONED_SECONDS:
                unfinished.unlink()


@contextmanager
def _write_object(location: ObjectPath, media_type: str) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        yield file
        file.flush()
        _upload(file, location, media_type)


def _upload(file: IO[bytes], location: ObjectPath, media_type: str) -> None:
    """Upload a file by one call that no signal or exception can interrupt halfway."""
    import pyarrow as pa

    size = file.seek(0, os.SEEK_END)
    content = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")
    with object_errors(location, "written"):
        stream = location.files.open_output_stream(location.path, metadata={"Content-Type": media_type})
        stream.write(content)
        stream.close()
