"""The location of a store: a local folder, or the URL of an object store."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ridgestream.stores.errors.assertions import WITHOUT_ASSERTIONS, asserts
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.files.object_storage import StorageSettings
from ridgestream.stores.files.paths import FileLocation, ObjectPath, object_errors, parse_location
from ridgestream.stores.requests.time_limit import TimeLimit

if TYPE_CHECKING:
    import icechunk


@dataclass(frozen=True)
class StoreLocation:
    """The location of a store; constructing one accesses nothing."""

    text: str
    """An absolute local path, or a URL."""
    settings: StorageSettings = field(default=StorageSettings(), repr=False)
    """How to connect to the object store."""

    @classmethod
    def parse(cls, text: str, base: Path, settings: StorageSettings | None = None) -> Self:
        """Parse a URL, or a path relative to the folder `base`.

        Raises StoreError for an unknown scheme, and for credentials in a URL.
        """
        settings = settings or StorageSettings()
        return cls(str(parse_location(text, base, "the store", settings)), settings)

    @property
    def folder(self) -> Path | None:
        """The local folder, None for an object store."""
        return None if "://" in self.text else Path(self.text)

    def beside(self, ending: str) -> FileLocation | None:
        """Return the sibling location whose name has this ending appended; None if the store is a whole bucket."""
        if self.folder is not None:
            return Path(f"{self.text}{ending}")
        return ObjectPath(f"{self.text}{ending}", self.settings) if self.prefix.parsed.key else None

    @property
    def prefix(self) -> ObjectPath:
        """The store's prefix in the object store."""
        return ObjectPath(self.text, self.settings)

    @property
    def limit(self) -> TimeLimit:
        """The time limit of requests to it."""
        return TimeLimit(None if self.folder else self.settings.request_seconds, f"the store {self.text}")

    def check_reachable(self) -> None:
        """Raise StoreError if an S3 bucket does not exist, ServerSilent if its server does not respond within seconds.

        Icechunk itself would retry for half a minute and then not give the reason. A server that denies access to
        buckets is not reported here: it may still allow requests for objects.
        """
        if self.folder is not None or not self.prefix.parsed.is_s3:
            return
        from pyarrow.fs import FileType

        prefix, bucket = self.prefix, self.prefix.parsed.bucket
        try:
            with object_errors(prefix, "opened"):
                info = prefix.files.get_file_info(bucket)
        except StoreError as error:
            if "access is denied" in str(error):
                return
            raise type(error)(f"the store {error}") from error
        if info.type == FileType.NotFound:
            raise StoreError(f"the store {self.text}: there is no bucket {bucket!r}; make it, or correct the name")

    def storage(self) -> "icechunk.Storage":
        """Return Icechunk's storage; credentials for object stores come from the environment of each process.

        Icechunk's own log is silenced: what matters of it is raised, and it would go to standard output.
        """
        import icechunk

        if not asserts():
            raise StoreError(f"the store {self.text} is not opened: {WITHOUT_ASSERTIONS}")
        icechunk.set_logs_filter("off")
        if self.folder is not None:
            return icechunk.local_filesystem_storage(str(self.folder))
        url, anonymous = self.prefix.parsed, self.settings.anonymous
        if url.is_s3:
            endpoint = self.settings.endpoint
            return icechunk.s3_storage(
                bucket=url.bucket,
                prefix=url.key,
                region=self.settings.region_of(f"the store {self.text}"),
                endpoint_url=endpoint,
                allow_http=bool(endpoint and endpoint.startswith("http://")),
                force_path_style=bool(endpoint),
                anonymous=anonymous or None,
                from_env=not anonymous or None,
            )
        if url.is_azure:
            account = url.account_of(self.settings, f"the store {self.text}")
            return icechunk.azure_storage(account=account, container=url.bucket, prefix=url.key, from_env=True)
        return icechunk.gcs_storage(
            bucket=url.bucket, prefix=url.key, anonymous=anonymous or None, from_env=not anonymous or None
        )
