"""Object stores: parsing their URLs, and the settings used to connect to them.

Credentials are not part of the settings: each process takes its own from the usual environment variables (AWS_*,
GOOGLE_APPLICATION_CREDENTIALS, AZURE_*), so none is sent with a task or written to a store.
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
from ridgestream.stores.requests.time_limit import REQUEST_SECONDS

if TYPE_CHECKING:
    import pyarrow.fs

SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "az")
"""URL schemes of object stores; `file` means a local folder."""

CONNECT_SECONDS = 5.0
"""Connection timeout of an S3-protocol server, for each of three attempts."""

_AZURE = ("abfs", "abfss", "az")
_LOCAL_REGION = "us-east-1"
"""The region that self-hosted servers assume when none is configured."""


@dataclass(frozen=True)
class StorageSettings:
    """How to connect to object stores; None means that the value comes from the environment."""

    endpoint_url: str | None = None
    """The URL of the S3-protocol server; Amazon's own if neither this nor the environment gives one."""
    region: str | None = None
    """The S3 region."""
    anonymous: bool = False
    """Whether to send requests without credentials."""
    account: str | None = None
    """The Azure storage account."""
    request_seconds: float = REQUEST_SECONDS
    """How long a request for a part of a store may take before it is repeated, and finally reported."""

    @property
    def endpoint(self) -> str | None:
        """The URL of the S3-protocol server, None for Amazon's own; raises StoreError if it contains credentials."""
        url = self.endpoint_url or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
        if url is None:
            return None
        check_no_credentials(url, "the endpoint (storage.endpoint_url or AWS_ENDPOINT_URL)")
        if not _is_web_address(url):
            raise StoreError(f"the endpoint {url!r} must be a URL such as https://minio.example.org:9000")
        return url

    def region_of(self, location: str) -> str:
        """Return the S3 region from settings, environment or profile; raises StoreError if none is configured."""
        region = self.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        region = region or _profile_region() or (_LOCAL_REGION if self.endpoint else None)
        if region is None:
            raise StoreError(
                f"no region is known for {location}: set storage.region in the job file, or AWS_REGION, or for a "
                "server of your own storage.endpoint_url"
            )
        return region


@dataclass(frozen=True)
class ObjectUrl:
    """A parsed object store URL; the key is taken literally, whatever characters it contains."""

    scheme: str
    """One of SCHEMES."""
    bucket: str
    """The bucket, or the Azure container."""
    key: str
    """The object or prefix inside the bucket, without leading or trailing slashes."""
    account: str | None = None
    """The Azure account, if the URL names it."""

    @classmethod
    def parse(cls, text: str, label: str) -> Self:
        """Parse a URL; raises StoreError, which calls it `label`, if it does not name an object store location."""
        check_no_credentials(text, label)
        scheme, _, rest = text.partition("://")
        bucket, _, key = rest.partition("/")
        account = None
        if scheme in _AZURE:
            bucket, _, host = bucket.partition("@")
            account = host.partition(".")[0] or None
        if scheme not in SCHEMES or not bucket:
            raise StoreError(f"{label} {text!r} must be a path, or a URL of {', '.join(SCHEMES)} with a bucket")
        if "//" in key.strip("/") or key.startswith("/"):
            raise StoreError(f"{label} {text!r} has an empty part, where two slashes follow each other: take one out")
        return cls(scheme, bucket, key.strip("/"), account)

    @property
    def path(self) -> str:
        """Bucket and key, as Arrow addresses an object."""
        return f"{self.bucket}/{self.key}" if self.key else self.bucket

    @property
    def is_s3(self) -> bool:
        """Whether the URL belongs to an S3-protocol server."""
        return self.scheme == "s3"

    @property
    def is_azure(self) -> bool:
        """Whether the URL belongs to Azure."""
        return self.scheme in _AZURE

    def shares_bucket(self, other: Self) -> bool:
        """Return whether both URLs are in one bucket of one service; a missing account matches any."""
        accounts = {url.account for url in (self, other) if url.account is not None}
        services = {(url.is_s3, url.is_azure, url.bucket) for url in (self, other)}
        return len(services) == 1 and len(accounts) <= 1

    def account_of(self, settings: StorageSettings, location: str) -> str:
        """Return the Azure account; raises StoreError if none is configured."""
        account = self.account or settings.account or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        if not account:
            raise StoreError(
                f"{location} needs the account's name in AZURE_STORAGE_ACCOUNT_NAME, or storage.account in the job file"
            )
        return account


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # brackets that do not close, or a port that is none
        return False


def check_no_credentials(text: str, label: str) -> None:
    """Raise StoreError if a URL contains credentials, without repeating them."""
    if "://" in text and has_credentials(text):
        raise StoreError(f"{label} {without_secrets(text)} has credentials in its URL, {WHERE_CREDENTIALS_GO}")


def file_system(url: ObjectUrl, settings: StorageSettings, location: str) -> "pyarrow.fs.FileSystem":
    """Return the Arrow file system of an object store; raises StoreError if a region or account is missing.

    Arrow retries failed requests: three times for S3, for up to a minute for GCS.
    """
    if url.is_s3:
        return _s3(settings.endpoint, settings.region_of(location), settings.anonymous)
    if url.is_azure:
        return _azure(url.account_of(settings, location))
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
        background_writes=False,  # background writes would copy a large file as a whole
        allow_delayed_open=True,  # small files are uploaded by one request, which cannot be left half done
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
    """Return the region of the active profile in AWS's configuration file."""
    file = Path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser()
    profile = os.environ.get("AWS_PROFILE") or "default"
    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read(file, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError, OSError):
        return None
    section = profile if profile == "default" else f"profile {profile}"
    return config.get(section, "region", fallback=None)
