"""Object stores: how URLs name what is in them, and the settings with which they are asked.

Credentials are no part of the settings: each process takes its own from the usual environment (AWS_*,
GOOGLE_APPLICATION_CREDENTIALS, AZURE_*), so that none travels with a task or comes to lie in a store.
"""

import configparser
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.files.credentials import WHERE_CREDENTIALS_GO, has_credentials, without_secrets

if TYPE_CHECKING:
    import pyarrow.fs

SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "az")
"""URL schemes of the object stores; `file` is a local folder."""

CONNECT_SECONDS = 5.0
"""How long an S3-protocol server may take to accept a connection, at each of three attempts."""

_AZURE = ("abfs", "abfss", "az")
_LOCAL_REGION = "us-east-1"
"""What servers of one's own take for a region, when nobody has given them one."""


@dataclass(frozen=True)
class StorageSettings:
    """Where object stores are and how they are asked; what is None comes from the environment."""

    endpoint_url: str | None = None
    """The URL of the S3-protocol server; Amazon's own if neither this nor the environment says another."""
    region: str | None = None
    """The region of S3."""
    anonymous: bool = False
    """Whether to ask without credentials."""
    account: str | None = None
    """The account of Azure."""

    @property
    def endpoint(self) -> str | None:
        """The URL of the S3-protocol server, None for Amazon's own; raise StoreError for one that holds credentials."""
        url = self.endpoint_url or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
        if url is None:
            return None
        check_no_credentials(url, "the endpoint")
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise StoreError(f"the endpoint {url!r} must be a URL such as https://minio.example.org:9000")
        return url

    def region_of(self, place: str) -> str:
        """Return the region of S3 by settings, environment or profile; raise StoreError if nobody says it."""
        region = self.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        region = region or _profile_region() or (_LOCAL_REGION if self.endpoint else None)
        if region is None:
            raise StoreError(
                f"no region is known for {place}: set storage.region in the job file, or AWS_REGION, or for a server "
                "of your own storage.endpoint_url"
            )
        return region


@dataclass(frozen=True)
class ObjectUrl:
    """A URL of an object store, taken apart; a key is taken as it is written, whatever its characters."""

    scheme: str
    """One of SCHEMES."""
    bucket: str
    """The bucket, or Azure's container."""
    key: str
    """The object or the prefix in it, without slashes around it."""
    account: str | None = None
    """Azure's account, where the URL names it."""

    @classmethod
    def parse(cls, text: str, what: str) -> Self:
        """Take a URL apart; raise StoreError, which calls it `what`, for one that names no place in an object store."""
        check_no_credentials(text, what)
        scheme, _, rest = text.partition("://")
        bucket, _, key = rest.partition("/")
        account = None
        if scheme in _AZURE:
            bucket, _, host = bucket.partition("@")
            account = host.partition(".")[0] or None
        if scheme not in SCHEMES or not bucket:
            raise StoreError(f"{what} {text!r} must be a path, or a URL of {', '.join(SCHEMES)} with a bucket")
        if "//" in key.strip("/") or key.startswith("/"):
            raise StoreError(f"{what} {text!r} has an empty part, where two slashes follow each other: take one out")
        return cls(scheme, bucket, key.strip("/"), account)

    @property
    def path(self) -> str:
        """Bucket and key, as Arrow names an object."""
        return f"{self.bucket}/{self.key}" if self.key else self.bucket

    @property
    def is_s3(self) -> bool:
        """Whether it is of an S3-protocol server."""
        return self.scheme == "s3"

    @property
    def is_azure(self) -> bool:
        """Whether it is of Azure."""
        return self.scheme in _AZURE

    def shares_bucket(self, other: Self) -> bool:
        """Tell whether both are of one bucket, by whichever of the schemes of its service; unnamed accounts are one."""
        accounts = {url.account for url in (self, other) if url.account is not None}
        services = {(url.is_s3, url.is_azure, url.bucket) for url in (self, other)}
        return len(services) == 1 and len(accounts) <= 1

    def account_of(self, settings: StorageSettings, place: str) -> str:
        """Return Azure's account; raise StoreError if nobody says it."""
        account = self.account or settings.account or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        if not account:
            raise StoreError(
                f"{place} needs the account's name in AZURE_STORAGE_ACCOUNT_NAME, or storage.account in the job file"
            )
        return account


def check_no_credentials(text: str, what: str) -> None:
    """Raise StoreError, which does not repeat them, if a URL has credentials in it."""
    if "://" in text and has_credentials(text):
        raise StoreError(f"{what} {without_secrets(text)} has credentials in its URL, {WHERE_CREDENTIALS_GO}")


def file_system(url: ObjectUrl, settings: StorageSettings, place: str) -> "pyarrow.fs.FileSystem":
    """Return the object store as Arrow sees it; raise StoreError where a region or an account is not known.

    Arrow repeats what a server or a network fails to do now and then, three times for S3 and for a minute for GCS.
    """
    if url.is_s3:
        return _s3(settings.endpoint, settings.region_of(place), settings.anonymous)
    if url.is_azure:
        return _azure(url.account_of(settings, place))
    return _gcs(settings.anonymous)


@lru_cache(maxsize=8)
def _s3(endpoint: str | None, region: str, anonymous: bool) -> "pyarrow.fs.FileSystem":
    from pyarrow.fs import S3FileSystem

    parts = urlsplit(endpoint or "")
    return S3FileSystem(
        region=region,
        scheme=parts.scheme or "https",
        endpoint_override=parts.netloc + parts.path.rstrip("/") or None,
        anonymous=anonymous,
        connect_timeout=CONNECT_SECONDS,
        background_writes=False,  # in the background, all of a large file is copied at once
        allow_delayed_open=True,  # small files take one request, which cannot be left half done
    )


@lru_cache(maxsize=2)
def _gcs(anonymous: bool) -> "pyarrow.fs.FileSystem":
    from datetime import timedelta

    from pyarrow.fs import GcsFileSystem

    return GcsFileSystem(anonymous=anonymous, retry_time_limit=timedelta(minutes=1))


@lru_cache(maxsize=8)
def _azure(account: str) -> "pyarrow.fs.FileSystem":
    from pyarrow.fs import AzureFileSystem

    key, token = (os.environ.get(f"AZURE_STORAGE_{name}") for name in ("ACCOUNT_KEY", "SAS_TOKEN"))
    return AzureFileSystem(account, **({"account_key": key} if key else {"sas_token": token} if token else {}))


def _profile_region() -> str | None:
    """Return the region that the profile in AWS's own configuration file says."""
    file = Path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser()
    profile = os.environ.get("AWS_PROFILE") or "default"
    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read(file, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError, OSError):
        return None
    section = profile if profile == "default" else f"profile {profile}"
    return config.get(section, "region", fallback=None)
