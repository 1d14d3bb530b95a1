"""Only damage is reported as damage: neither what a library cannot do, nor what a process may not have."""

import re
from pathlib import Path

import icechunk
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.errors.translation import read_errors, store_errors

DAMAGE = [ValueError("bad checksum"), KeyError("shape"), TypeError("no list"), RuntimeError("Zstd: corrupt input")]
LIBRARY = [
    AssertionError("node_type"),
    AttributeError("'NoneType' object has no attribute 'codec'"),
    ImportError("cannot import name 'x'"),
    NotImplementedError("not yet"),
    RecursionError("maximum recursion depth exceeded"),
    EOFError("Ran out of input"),
    ZeroDivisionError("division by zero"),
]
EXHAUSTED = [
    MemoryError("Unable to allocate 4 GiB"),
    RuntimeError("can't start new thread"),
    OSError(12, "Cannot allocate memory"),
    type("PanicException", (BaseException,), {})("OS can't spawn worker thread: Resource temporarily unavailable"),
]


@pytest.mark.parametrize("error", DAMAGE, ids=repr)
def test_an_error_of_decoding_is_damage(error: Exception) -> None:
    with (
        pytest.raises(StoreError, match=r"the ledger holds damaged data: .*; restore it from a copy"),
        read_errors("the ledger"),
    ):
        raise error


ICECHUNK = [
    "I/O error",
    "Invalid Icechunk metadata file",
    "invalid magic numbers in file",
    "Icechunk cannot read file, invalid compression algorithm",
    "Icechunk cannot read this file type, expected Manifest got 130",
    "Icechunk cannot read from repository written with a more modern version",
    "manifest information cannot be found in snapshot for id `CRE2VMDJ7RBKJ8BQFAWG`",
]
"""What Icechunk says of its files after a bit was flipped."""


@pytest.mark.parametrize("words", ICECHUNK)
def test_icechunk_s_words_for_a_damaged_file_come_with_a_remedy(words: str) -> None:
    with (
        pytest.raises(StoreError, match=f"^the store cannot be read or written: {words}; .* restore it from a copy$"),
        store_errors("the store"),
    ):
        raise icechunk.IcechunkError(f"  x {words}\n  | \n  | context:\n  |    0: icechunk::asset_manager")


FOLDERS = st.lists(st.from_regex(r"[a-z](-?[a-z0-9_>]){0,40}( x)?", fullmatch=True), min_size=1, max_size=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FOLDERS)
def test_a_path_that_icechunk_has_wrapped_is_whole(tmp_path: Path, folders: list[str]) -> None:
    folder = tmp_path.joinpath(*folders, "store")
    storage = icechunk.local_filesystem_storage(str(folder))
    icechunk.Repository.open_or_create(storage)
    for snapshot in (folder / "snapshots").iterdir():
        if snapshot.is_file():
            snapshot.unlink()
            snapshot.mkdir()
    with (
        pytest.raises(StoreError, match=f"{re.escape(str(snapshot))} not found: is directory; is a file of it lost"),
        store_errors("the store"),
    ):
        next(icechunk.Repository.open(storage).ancestry(branch="main"))


@pytest.mark.parametrize("error", LIBRARY, ids=repr)
def test_a_failure_of_a_library_is_no_damage(error: Exception) -> None:
    with pytest.raises(StoreError, match=f"a library fails with {type(error).__name__}") as raised, read_errors("it"):
        raise error
    assert "damaged" not in str(raised.value)


@pytest.mark.parametrize("error", EXHAUSTED, ids=repr)
def test_a_process_without_memory_or_threads_says_nothing_of_the_store(error: BaseException) -> None:
    with pytest.raises(MemoryError) as raised, read_errors("the ledger"):
        raise error
    assert "damaged" not in str(raised.value)


def test_a_library_that_reads_no_sound_sample_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TypeError("unexpected keyword argument 'node_type'")

    monkeypatch.setattr(zarr, "open_group", fail)
    with (
        pytest.raises(StoreError, match="neither can a sound sample: TypeError: unexpected keyword") as raised,
        read_errors("it"),
    ):
        raise TypeError("unexpected keyword argument 'node_type'")
    assert "damaged" not in str(raised.value)
