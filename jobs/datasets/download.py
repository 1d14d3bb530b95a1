"""Fetch the forest cover tables: download UCI's Covertype archive, check it, and put whole tables in place."""

import contextlib
import gzip
import hashlib
import http.client
import shutil
import ssl
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import filelock

from ridgestream.jobs.datasets import forest

FOREST_URL = "https://archive.ics.uci.edu/static/public/31/covertype.zip"
MEMBER = "covtype.data.gz"
TIMEOUT_SECONDS = 60.0
BLOCK_BYTES = 1 << 20
# The archive, covtype.data and the tables lie side by side until the tables are in place.
NEEDED_BYTES = 2 * forest.DATA_BYTES

Report = Callable[[str, int, int | None], None]


class FetchError(OSError):
    """The tables could not be fetched; the message says what was expected, what came, and what to do."""


class _TransientError(FetchError):
    """A download broke in a way that may pass, so it is worth another attempt."""


@dataclass(frozen=True)
class FetchReport:
    """What a fetch found and did."""

    destination: Path
    """The folder that now holds the eleven tables."""
    written: tuple[str, ...]
    """The tables that were missing or wrong and are new, as paths below the destination."""
    kept: tuple[str, ...]
    """The tables whose content was right already and that were not touched."""
    downloaded_bytes: int
    """Size of the downloaded archive; zero if nothing was missing."""


def fetch_forest(
    destination: Path, *, url: str = FOREST_URL, report: Report, retry_seconds: Sequence[float] = (1.0, 5.0, 15.0)
) -> FetchReport:
    """Make `destination` hold the ten training tables and the test table, and download only if one is missing.

    `url` names a zip archive with the member covtype.data.gz, or a bare gzip file; http, https and file addresses
    are read. `report` is called with a stage ("wait", "download", "unpack", "write"), how much of it is done (bytes,
    or tables for "write"), and the total if it is known. A download that breaks off is repeated after each of
    `retry_seconds`. Two fetches to one destination take turns by the lock file beside it, and the second finds the
    work done. A fetch that fails, or is killed, leaves each table as it was or whole, and can be run again.

    Raises FetchError if the archive cannot be had or is not the right one, or if the disk refuses. Costs a download of
    11 MB, about 100 MB of disk and 130 MB of memory on the way, 8 MB of disk in the end, and two seconds of work; a
    fraction of a second if all is there.
    """
    destination = destination.resolve()
    try:
        missing, downloaded_bytes = _fetch_missing(destination, url, report, retry_seconds)
    except FetchError:
        raise
    except OSError as error:
        raise FetchError(
            f"Expected to write the forest tables to {destination}, got {error!r}. "
            "Free or repair the disk, or choose another destination, and run again."
        ) from error
    written = tuple(partition.name for partition in missing)
    kept = tuple(partition.name for partition in forest.PARTITIONS if partition not in missing)
    return FetchReport(destination, written, kept, downloaded_bytes)


def _fetch_missing(
    destination: Path, url: str, report: Report, retry_seconds: Sequence[float]
) -> tuple[tuple[forest.Partition, ...], int]:
    staging = destination / ".fetch"
    # Looking first without the lock lets a finished destination be on a disk that is mounted to be read only.
    if not staging.exists() and not forest.missing_partitions(destination):
        return (), 0
    with _turn(destination, report), _fresh_folder(staging):
        missing = forest.missing_partitions(destination)
        if not missing:
            return (), 0
        _check_space(staging)
        archive, data = staging / "archive", staging / "covtype.data"
        downloaded_bytes = _download(url, archive, report, retry_seconds)
        _unpack(archive, data, report)
        _write_tables(data, missing, staging, report)
        forest.publish_partitions(missing, staging, destination)
        return missing, downloaded_bytes


@contextlib.contextmanager
def _turn(destination: Path, report: Report) -> Iterator[None]:
    destination.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(f"{destination}.lock")
    try:
        turn = lock.acquire(timeout=0)
    except filelock.Timeout:
        report("wait", 0, None)
        turn = lock.acquire()
    with turn:
        yield


@contextlib.contextmanager
def _fresh_folder(staging: Path) -> Iterator[None]:
    if staging.exists():  # left by a fetch that was killed
        shutil.rmtree(staging)
    staging.mkdir(parents=True)
    try:
        yield
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _check_space(folder: Path) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < NEEDED_BYTES:
        raise FetchError(
            f"Expected {NEEDED_BYTES:,} free bytes to unpack the archive in {folder.parent}, got {free_bytes:,}. "
            "Free some, or choose another destination, and run again."
        )


def _download(url: str, target: Path, report: Report, retry_seconds: Sequence[float]) -> int:
    if url.partition(":")[0].lower() not in {"http", "https", "file"}:
        raise _bad_download(url, "an address that is not http, https or file")
    for pause_seconds in retry_seconds:
        try:
            return _download_once(url, target, report)
        except _TransientError:
            time.sleep(pause_seconds)
    return _download_once(url, target, report)


def _download_once(url: str, target: Path, report: Report) -> int:
    done = 0
    with target.open("wb") as file, contextlib.closing(_read_blocks(url)) as blocks:
        for block, total in blocks:
            done += len(block)
            if done > forest.DATA_BYTES:
                raise _bad_download(url, f"more bytes than all its data unpacked ({forest.DATA_BYTES:,})")
            file.write(block)
            report("download", done, total)
    return done


def _read_blocks(url: str) -> Generator[tuple[bytes, int | None]]:
    """Yield blocks of the body with its declared size; here all errors are the network's, none the disk's."""
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "ridgestream"})  # noqa: S310 - scheme was checked
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 - scheme was checked
            declared = response.headers.get("Content-Length")
            total = int(declared) if declared is not None else None
            done = 0
            while block := response.read(BLOCK_BYTES):
                done += len(block)
                yield block, total
        if total is not None and done < total:
            raise ConnectionError(f"a body that ends after {done:,} of {total:,} bytes")
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        kind = _TransientError if _is_transient(error) else FetchError
        raise _bad_download(url, f"{type(error).__name__}: {error}", kind) from error


def _is_transient(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code >= 500 or error.code in {408, 425, 429}
    reason = getattr(error, "reason", error)
    lasting = (FileNotFoundError, IsADirectoryError, PermissionError, ssl.SSLCertVerificationError, ValueError)
    return not isinstance(reason, (*lasting, http.client.InvalidURL))


def _bad_download(url: str, came: str, kind: type[FetchError] = FetchError) -> FetchError:
    return kind(
        f"Expected the Covertype archive at {url}, got {came}. Check the address and the network and run again, or "
        f"download {FOREST_URL} by other means and give the file's own address (file:///...)."
    )


def _unpack(archive: Path, target: Path, report: Report) -> None:
    try:
        with _open_data(archive) as data, target.open("wb") as file:
            _copy_checked(data, file, report)
    except (zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise _bad_archive(f"a damaged archive ({type(error).__name__}: {error})") from error


@contextlib.contextmanager
def _open_data(archive: Path) -> Iterator[gzip.GzipFile]:
    with contextlib.ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(archive.open("rb"))
        magic = file.read(4)
        file.seek(0)
        if magic == b"PK\x03\x04":
            members = stack.enter_context(zipfile.ZipFile(file))
            file = stack.enter_context(members.open(_find_member(members)))
        elif not magic.startswith(b"\x1f\x8b"):
            raise _bad_archive(f"a file that is neither zip nor gzip and begins with {magic!r}")
        yield stack.enter_context(gzip.GzipFile(fileobj=file))


def _find_member(members: zipfile.ZipFile) -> zipfile.ZipInfo:
    found = [member for member in members.infolist() if member.filename.rpartition("/")[2] == MEMBER]
    if not found:
        raise _bad_archive(f"a zip file without it, whose members are {members.namelist()[:10]}")
    if found[0].file_size > forest.DATA_BYTES:
        raise _bad_archive(f"a member of {found[0].file_size:,} bytes, more than its data unpacked")
    return found[0]


def _copy_checked(data: gzip.GzipFile, file: IO[bytes], report: Report) -> None:
    digest, done = hashlib.sha256(), 0
    while block := data.read(BLOCK_BYTES):
        done += len(block)
        # Without this bound a small archive that inflates to terabytes would fill the disk before its checksum fails.
        if done > forest.DATA_BYTES:
            raise _bad_archive("more bytes than that")
        digest.update(block)
        file.write(block)
        report("unpack", done, forest.DATA_BYTES)
    if digest.hexdigest() != forest.DATA_SHA256:
        raise _bad_archive(f"{done:,} bytes with sha256 {digest.hexdigest()}")


def _bad_archive(came: str) -> FetchError:
    return FetchError(
        f"Expected {MEMBER} that unpacks to {forest.DATA_BYTES:,} bytes with sha256 {forest.DATA_SHA256}, got {came}. "
        f"Run again; if it stays so, the address serves another file: compare it with {FOREST_URL}."
    )


def _write_tables(data: Path, missing: Sequence[forest.Partition], staging: Path, report: Report) -> None:
    rows, order = forest.read_rows(data), forest.shuffled_order()
    for done, partition in enumerate(missing, start=1):
        forest.write_partition(rows, order, partition, staging / partition.name)
        if not forest.holds_partition(staging, partition):
            raise FetchError(
                f"Expected {partition.name} with content sha256 {partition.content_sha256}, got another table from the "
                "right data. Check the disk and run again, or install versions of NumPy and pyarrow known to work."
            )
        report("write", done, len(missing))
