"""Places of files: local paths, and URLs of object stores, which are looked at, opened and written alike.

A file of an object store appears when all of it has been sent. Arrow completes an upload that is only closed, also by
an exception or at the end of a process; so it is written to a temporary file first, and then sent by a single call.
"""

import glob
import mmap
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

from ridgestream.stores.errors.exceptions import ServerSilent, StoreError
from ridgestream.stores.files.object_storage import ObjectUrl, StorageSettings, file_system
from ridgestream.stores.files.read_ahead import AHEAD_BYTES, ReadAhead

if TYPE_CHECKING:
    import pyarrow.fs

_NO_ANSWER = r"NETWORK_CONNECTION|curlCode|UNAVAILABLE|Could not resolve|Failed to connect"
_SECOND = 10**9
_LONGEST = 300
_ABANDONED_SECONDS = 3600


@dataclass(frozen=True)
class ObjectPath:
    """An object, or a prefix of objects, in S3, GCS or Azure; of pathlib's ways it has `/` and `name`."""

    url: str
    """Its URL, without a slash at its end."""
    storage: StorageSettings = field(default=StorageSettings(), repr=False)
    """How it is asked for; goes with it to other processes."""

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Self:
        return type(self)(f"{self.url}/{name}", self.storage)

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    @property
    def parsed(self) -> ObjectUrl:
        """The URL, taken apart."""
        return ObjectUrl.parse(self.url, "the place")

    @property
    def path(self) -> str:
        """The path that Arrow gives it."""
        return self.parsed.path

    @property
    def files(self) -> "pyarrow.fs.FileSystem":
        """The object store as Arrow sees it."""
        return file_system(self.parsed, self.storage, self.url)


Place = Path | ObjectPath


@dataclass(frozen=True)
class Stamp:
    """What tells a file that was written anew without reading it."""

    size_bytes: int
    """Its size."""
    modified_ns: int
    """Its time stamp in nanoseconds; object stores give whole seconds."""


def place_of(text: str, base: Path, what: str, storage: StorageSettings | None = None) -> Place:
    """Return the place that a text names: a URL as it is, a path relative to the folder `base`.

    Raises StoreError, which calls it `what`, for a scheme that is not known and for credentials in a URL.
    """
    if text.startswith("file:"):
        return _local_url(text, what)
    if "://" not in text:
        return Path(os.path.normpath(base / Path(text).expanduser()))
    ObjectUrl.parse(text, what)
    return ObjectPath(text.rstrip("/"), storage or StorageSettings())


def same_place(one: Place, other: Place) -> bool:
    """Tell whether two places are the same file or folder."""
    if isinstance(one, Path) and isinstance(other, Path):
        return one.resolve() == other.resolve()
    if isinstance(one, Path) or isinstance(other, Path):
        return False
    return one.parsed.shares_bucket(other.parsed) and one.parsed.key == other.parsed.key


def find_objects(place: ObjectPath) -> list[tuple[str, ObjectPath, Stamp]]:
    """Return name, place and stamp of the object at the place, or of all those below it, by names relative to it.

    An empty list means that there is nothing. Raises StoreError where there is no such bucket, no access, or no answer.
    """
    from pyarrow.fs import FileSelector, FileType

    with object_errors(place, "listed"):
        itself = place.files.get_file_info(place.path)
        if itself.type == FileType.File:
            return [(place.name, place, _stamp(itself))]
        selector = FileSelector(place.path, recursive=True)
        try:
            found = place.files.get_file_info(selector)
        except FileNotFoundError:
            return []
    names = [(info.path.removeprefix(f"{place.path}/"), info) for info in found if info.type == FileType.File]
    return [(name, place / name, _stamp(info)) for name, info in names]


def stamp_of(place: Place) -> Stamp:
    """Return size and time stamp of a file as they are now; raise FileNotFoundError if there is none, else OSError."""
    from pyarrow.fs import FileType

    if isinstance(place, Path):
        status = place.stat()
        return Stamp(status.st_size, status.st_mtime_ns)
    with object_errors(place, "read"):
        info = place.files.get_file_info(place.path)
    if info.type != FileType.File:
        raise FileNotFoundError(2, "no such object", str(place))
    return _stamp(info)


def is_file(place: Place) -> bool:
    """Tell whether there is a file; raise OSError or StoreError where that cannot be seen."""
    try:
        stamp_of(place)
    except FileNotFoundError:
        return False
    return True


def open_file(place: Place, ahead_bytes: int = AHEAD_BYTES) -> Any:  # noqa: ANN401 (pyarrow has no types)
    """Return what Parquet is read from: the path, or a file of an object store, which is read ahead.

    Raises FileNotFoundError if there is no such object, StoreError where it cannot be had.
    """
    if isinstance(place, Path):
        return place
    with object_errors(place, "read"):
        file = place.files.open_input_file(place.path)
        return ReadAhead(file, lambda: object_errors(place, "read"), ahead_bytes)


@contextmanager
def write_whole(place: Place, kind: str = "application/octet-stream") -> Iterator[IO[bytes]]:
    """Yield a file to write to; it takes its name when the context ends without an exception, whole or not at all.

    An object is of the kind (a media type) that browsers are told.
    Raises OSError where it cannot be written, StoreError where an object store is in the way.
    """
    with _write_path(place) if isinstance(place, Path) else _write_object(place, kind) as sink:
        yield sink


@contextmanager
def object_errors(place: ObjectPath, done: str) -> Iterator[None]:
    """Turn what Arrow says of an object store into a StoreError with a remedy; FileNotFoundError stays."""
    import pyarrow as pa

    try:
        yield
    except (FileNotFoundError, StoreError):
        raise
    except (OSError, pa.ArrowException) as error:
        kind = ServerSilent if re.search(_NO_ANSWER, str(error)) else StoreError
        raise kind(f"{place} cannot be {done}: {_reason(str(error), place)}") from error


def _reason(text: str, place: ObjectPath) -> str:
    bucket = place.parsed.bucket
    plain = re.sub(r"\s*\(?Request ID: [^)]*\)?", "", text.partition("\n")[0])
    plain = plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]} …"
    if re.search(r"NO_SUCH_BUCKET|bucket does not exist|ContainerNotFound", text):
        return f"there is no bucket {bucket!r}; make it, or correct the name"
    if re.search(r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE|PERMISSION_DENIED|Auth\w+Fail|UNAUTH|code 40[13]", text):
        return (
            f"access is denied ({plain}); the credentials of this process come from its environment: do they reach the "
            f"bucket {bucket!r}? A public one is read with storage.anonymous = true"
        )
    if re.search(_NO_ANSWER, text):
        endpoint = (place.storage.endpoint if place.parsed.is_s3 else None) or "the service"
        return (
            f"{endpoint} cannot be reached ({plain}); check storage.endpoint_url or AWS_ENDPOINT_URL, and the network"
        )
    return plain


def _local_url(text: str, what: str) -> Path:
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        shown = "file://" + text.rpartition("@")[2] if "@" in parts.netloc else text
        raise StoreError(f"{what} {shown!r} must name an absolute path of this machine, as file:///data/rows")
    path = text.removeprefix(f"file://{parts.netloc}").removeprefix("file:")  # as it is written, with # and ?
    return Path(os.path.normpath(unquote(path)))


def _stamp(info: "pyarrow.fs.FileInfo") -> Stamp:
    """Return the stamp; of the parts of a second, listings of some servers know more than the objects themselves."""
    return Stamp(info.size, (info.mtime_ns or 0) // _SECOND * _SECOND)


@contextmanager
def _write_path(path: Path) -> Iterator[IO[bytes]]:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _forget_unfinished(path)
        with unfinished.open("wb") as sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        unfinished.replace(path)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _forget_unfinished(path: Path) -> None:
    """Delete what killed processes have left of the file; one that is at it still has written to it lately."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.unfinished"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                left.unlink()


@contextmanager
def _write_object(place: ObjectPath, kind: str) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as whole:
        yield whole
        whole.flush()
        _send(whole, place, kind)


def _send(whole: IO[bytes], place: ObjectPath, kind: str) -> None:
    """Send a file by one call, between whose parts no signal or exception comes."""
    import pyarrow as pa

    size = whole.seek(0, os.SEEK_END)
    content = pa.py_buffer(mmap.mmap(whole.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")
    with object_errors(place, "written"):
        stream = place.files.open_output_stream(place.path, metadata={"Content-Type": kind})
        stream.write(content)
        stream.close()
