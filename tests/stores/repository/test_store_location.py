"""Parsing of store locations."""

from pathlib import Path

import pytest

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.store_location import StoreLocation

BASE = Path("/jobs/forest")


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("store", "/jobs/forest/store"),
        ("../store/", "/jobs/store"),
        ("/data/./store", "/data/store"),
        ("file:///data/store", "/data/store"),
        ("file://localhost/data/my%20store", "/data/my store"),
        ("with space", "/jobs/forest/with space"),
        ("night:2", "/jobs/forest/night:2"),
    ],
)
def test_local_locations_are_folders(text: str, folder: str) -> None:
    assert StoreLocation.parse(text, BASE).folder == Path(folder)


def test_the_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert StoreLocation.parse("~/store", BASE).folder == Path("/home/someone/store")


@pytest.mark.parametrize("text", ["s3://bucket/a/b/", "gs://bucket", "az://container/x"])
def test_urls_have_no_folder(text: str) -> None:
    location = StoreLocation.parse(text, BASE)
    assert location.folder is None
    assert location.text == text.rstrip("/")


@pytest.mark.parametrize("text", ["http://host/store", "s3:///no-bucket", "ftp://host/x"])
def test_urls_that_cannot_hold_a_store_are_refused(text: str) -> None:
    with pytest.raises(StoreError, match=rf"the store '{text}' must be a path, or a URL of s3, gs"):
        StoreLocation.parse(text, BASE)


@pytest.mark.parametrize("text", ["s3://bucket//store", "s3://bucket/a//b", "gs://bucket/a//b/"])
def test_urls_with_an_empty_part_are_refused(text: str) -> None:
    with pytest.raises(StoreError, match=rf"the store '{text}' has an empty part, where two slashes follow each other"):
        StoreLocation.parse(text, BASE)


@pytest.mark.parametrize("text", ["file://data/store", "file:store"])
def test_file_urls_of_another_machine_are_refused(text: str) -> None:
    with pytest.raises(StoreError, match=rf"the store '{text}' must name an absolute path of this machine"):
        StoreLocation.parse(text, BASE)


def test_azure_urls_without_an_account_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(StoreError, match="the store az://container needs the account's name in AZURE_STORAGE_ACCOUNT"):
        StoreLocation.parse("az://container", BASE).storage()
