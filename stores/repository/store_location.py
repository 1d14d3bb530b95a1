"""Where a store lies: a local folder, or a URL that Icechunk takes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.files.object_storage import StorageSettings
from ridgestream.stores.files.paths import ObjectPath, Place, object_errors, place_of

if TYPE_CHECKING:
    import icechunk


@dataclass(frozen=True)
class StoreLocation:
    """A place for a store, named but not yet looked at."""

    text: str
    """An absolute local path, or a URL."""
    settings: StorageSettings = field(default=StorageSettings(), repr=False)
    """How an object store is asked."""

    @classmethod
    def parse(cls, text: str, base: Path, settings: StorageSettings | None = None) -> Self:
        """Take a URL as it is and a path relative to the folder `base`.

        Raises StoreError for a scheme not known, and for credentials in a URL.
        """
        settings = settings or StorageSettings()
        return cls(str(place_of(text, base, "the store", settings)), settings)

    @property
    def folder(self) -> Path | None:
        """The local folder, None for an object store."""
        return None if "://" in self.text else Path(self.text)

    def beside(self, ending: str) -> Place | None:
        """Return the place beside the store whose name has this ending, too; None where the store is a whole bucket."""
        if self.folder is not None:
            return Path(f"{self.text}{ending}")
        return ObjectPath(f"{self.text}{ending}", self.settings) if self.prefix.parsed.key else None

    @property
    def prefix(self) -> ObjectPath:
        """The prefix in an object store."""
        return ObjectPath(self.text, self.settings)

    def check_there(self) -> None:
        """Raise StoreError if a bucket of S3 is not there; ServerSilent if its server does not answer within seconds.

        Icechunk repeats its requests for half a minute, and does not say what was the matter. A server that keeps who
        it does not know from asking for buckets has the last word when it is asked for an object.
        """
        if self.folder is not None or not self.prefix.parsed.is_s3:
            return
        from pyarrow.fs import FileType

        prefix, bucket = self.prefix, self.prefix.parsed.bucket
        try:
            with object_errors(prefix, "opened"):
                found = prefix.files.get_file_info(bucket)
        except StoreError as error:
            if "access is denied" in str(error):
                return
            raise type(error)(f"the store {error}") from error
        if found.type == FileType.NotFound:
            raise StoreError(f"the store {self.text}: there is no bucket {bucket!r}; make it, or correct the name")

    def storage(self) -> "icechunk.Storage":
        """Return Icechunk's storage; credentials of object stores come from the environment of each process.

        Icechunk's warning that local commits are not safe is kept off standard output: the writer's lock makes them so.
        """
        import icechunk

        icechunk.set_logs_filter("error")
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
