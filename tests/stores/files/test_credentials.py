"""Credentials in URLs and secrets of the environment are hidden in everything that is written."""

from pathlib import Path

import pytest

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.files.credentials import has_credentials, hide_secrets, without_secrets
from ridgestream.stores.repository.store_location import StoreLocation


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("s3://AKIAEXAMPLE:wJalr/XUtn+FEMI@bucket/store", "s3://***@bucket/store"),
        (
            "cannot reach https://bob:hunter2@host:9000/x, and s3://b/y",
            "cannot reach https://***@host:9000/x, and s3://b/y",
        ),
        ("https://ghp_0123456789@host/x", "https://***@host/x"),
        ("abfs://container:key@account/x", "abfs://***@account/x"),
        ("https://host/x?sig=Zm9v%3D&sv=1", "https://host/x?sig=***&sv=1"),
        ("https://host/x?a=1&X-Amz-Signature=abc0", "https://host/x?a=1&X-Amz-Signature=***"),
        ("https://host/x?AWSSecretKey=abc0;b", "https://host/x?AWSSecretKey=***;b"),
    ],
)
def test_credentials_in_urls_are_hidden(text: str, hidden: str) -> None:
    assert without_secrets(text) == hidden
    assert without_secrets(hidden) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/store",
        "abfs://container@account.dfs.core.windows.net/store",
        "file:///data/a@b/store",
        "http://localhost:9000/x",
        "somebody@example.org wrote part-2.parquet?page=3",
    ],
)
def test_texts_without_secrets_are_unchanged(text: str) -> None:
    assert without_secrets(text) == text
    assert not has_credentials(text)


def test_secrets_of_the_environment_are_hidden_in_texts_and_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "wJalrXUtnFEMI-and-more")
    monkeypatch.setenv("DATABASE_PASSWORD", "short")
    monkeypatch.setenv("DISASTER_PLAN", "a plan for all of us")
    plain = {"reason": ["key wJalrXUtnFEMI", "sas wJalrXUtnFEMI-and-more.", 1.5], "wJalrXUtnFEMI": None, "n": "short"}
    hidden = {"reason": ["key ***", "sas ***.", 1.5], "***": None, "n": "short"}
    assert hide_secrets(plain) == hidden
    assert without_secrets("a plan for all of us") == "a plan for all of us"


SECRETS = {
    "API_TOKEN": ["ghp_0123456789abcdefABCDEF", "eyJhbGciOi.eyJzdWIiOiIx.SflKxwRJSMeKKF2QT4", "hvs.CAESIJ3zz9kq0aa"],
    "AWS_SECRET_ACCESS_KEY": ["wJalrXUtnFEMI/K7MDENG+bPxRfiCY", "secretsecret"],
    "DB_PASSWORD": ["correct horse battery", "sunshine"],
    "DEPLOY_PRIVATE_KEY": ["-----BEGIN KEY-----\nMIIEvQIBADANB"],
}
HARMLESS = {
    "API_TOKEN": ["part-1.parquet", "rows/part-01.parquet", "_key=a/part-1.parquet", "in.d/x.csv", "model.json"],
    "SECRET_NAME": ["production", "held-out", "forest rows", "20261129", "2026-11-29", "STANDARD", "Forest", "short"],
    "TOKEN_URL": ["https://host.example.org/forest"],
    "CREDENTIAL_PROVIDER": ["EcsContainer1"],
    "APP_TOKEN_FILE": ["/run/secrets/token1"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in SECRETS for value in SECRETS[name]])
def test_a_value_that_can_only_be_a_secret_is_hidden(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert without_secrets(f"it is {value}.") == "it is ***."


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in HARMLESS for value in HARMLESS[name]])
def test_names_of_files_words_and_dates_stay_legible_whatever_variable_holds_them(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert without_secrets(f"it is {value}.") == f"it is {value}."


def test_a_key_that_starts_like_a_path_is_hidden_and_the_path_of_a_key_file_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = tmp_path / "key.pem"
    key.touch()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "/JalrXUtnFEMI")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    monkeypatch.setenv("SERVER_PRIVATE_KEY", str(key))
    text = f"/nowhere/key.json and {key} are read, "
    assert without_secrets(f"{text}/JalrXUtnFEMI") == f"{text}***"


def test_messages_name_a_store_without_its_url_credentials() -> None:
    with pytest.raises(
        StoreError, match=r"s3://\*\*\*@bucket/store has credentials in its URL.* environment"
    ) as raised:
        StoreLocation.parse("s3://AKIAEXAMPLE:wJalr/XUtn@bucket/store", Path("/"))
    assert "wJalr" not in str(raised.value)
