"""The section `[cluster_options]` of a job file: how a cluster is used."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from ridgestream.jobs.config.section import Count, Section, Text

CLUSTER_SECONDS = 30.0
"""How long to wait for a scheduler and workers, by default."""
FILE = "file:"
"""The prefix of a scheduler's file, given instead of an address."""


class ClusterOptions(Section):
    """How a cluster is used."""

    threads: Count = 1
    """Threads that BLAS, and numba, may use in each worker process."""
    retries: Annotated[int, Field(ge=0)] = 3
    """How often a task is retried after a transient error of reading or writing."""
    lost_workers: Annotated[int, Field(ge=0)] = 3
    """How many workers may be lost while running one task before it fails."""
    tls_ca: Text | None = None
    """The file of the certificate authority, PEM."""
    tls_cert: Text | None = None
    """The file of this job's certificate, PEM."""
    tls_key: Text | None = None
    """The file of the certificate's private key, PEM."""

    @property
    def tls_files(self) -> dict[str, str]:
        """Each file that is given, by its key."""
        files = {key: getattr(self, key) for key in ("tls_ca", "tls_cert", "tls_key")}
        return {key: path for key, path in files.items() if path is not None}

    def at(self, base: Path) -> Self:
        """Return the options with the files' paths taken from the folder `base`."""
        return self.model_copy(update={k: str(base / Path(p).expanduser()) for k, p in self.tls_files.items()})

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if self.tls_files and len(self.tls_files) < 3:
            raise ValueError("tls_ca, tls_cert and tls_key go together")
        return self
