"""Where a store lies: a local folder, or a URL that Icechunk takes."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

from ridgestream.stores.errors import StoreError
from ridgestream.stores.secrets import WHERE_CREDENTIALS_GO, has_credentials, without_secrets

if TYPE_CHECKING:
    import icechunk

SCHEMES = ("s3", "gs", "gcs", "abfs", "az")
"""URL schemes of the object stores; `file` is a local folder."""


@dataclass(frozen=True)
class StoreLocation:
    """A place for a store, named but not yet looked at."""

    text: str
    """An absolute local path, or a URL."""

    @classmethod
    def parse(cls, text: str, base: Path) -> Self:
        """Take a URL as it is and a path relative to the folder `base`; raise StoreError for a scheme not known."""
        if "://" in text and has_credentials(text):
            raise StoreError(f"the store {without_secrets(text)!r} has credentials in its URL, {WHERE_CREDENTIALS_GO}")
        parts = urlsplit(text)
        if parts.scheme == "file":
            if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
                raise StoreError(
                    f"the store {text!r} must name an absolute path of this machine, as file:///data/store"
                )
            return cls(os.path.normpath(unquote(parts.path)))
        if "://" not in text:
            return cls(os.path.normpath(base / Path(text).expanduser()))
        if parts.scheme not in SCHEMES or not parts.netloc:
            raise StoreError(f"the store {text!r} must be a path, or a URL of {', '.join(SCHEMES)} with a bucket")
        return cls(text.rstrip("/"))

    @property
    def folder(self) -> Path | None:
        """The local folder, None for an object store."""
        return None if "://" in self.text else Path(self.text)

    @property
    def endpoint(self) -> str | None:
        """The URL of the S3-protocol server, from the environment; None for Amazon's own."""
        return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")

    @property
    def region(self) -> str | None:
        """The region of S3, from the environment; None for whatever else says it."""
        return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")

    def storage(self) -> "icechunk.Storage":
        """Return Icechunk's storage; credentials, region and endpoint of object stores come from the environment.

        Icechunk's warning that local commits are not safe is kept off standard output: the writer's lock makes them so.
        """
        import icechunk

        icechunk.set_logs_filter("error")
        if self.folder is not None:
            return icechunk.local_filesystem_storage(str(self.folder))
        parts = urlsplit(self.text)
        prefix = parts.path.strip("/")
        if parts.scheme == "s3":
            endpoint = self.endpoint
            return icechunk.s3_storage(
                bucket=parts.netloc,
                prefix=prefix,
                region=self.region,
                endpoint_url=endpoint,
                allow_http=bool(endpoint and endpoint.startswith("http://")),
                force_path_style=bool(endpoint),
                from_env=True,
            )
        if parts.scheme in ("gs", "gcs"):
            return icechunk.gcs_storage(bucket=parts.netloc, prefix=prefix, from_env=True)
        account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        if not account:
            raise StoreError(f"the store {self.text} needs the account's name in AZURE_STORAGE_ACCOUNT_NAME")
        return icechunk.azure_storage(account=account, container=parts.netloc, prefix=prefix, from_env=True)
