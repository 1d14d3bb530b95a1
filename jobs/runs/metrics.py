"""The metrics of a run as a file for Prometheus' textfile collector, written whole as the run ends, failed or not.

What must survive a failure, such as when a night was last committed, is read from the store, never from an older file.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgestream import __version__
from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import store_location
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.runs.health import Health, read_health
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.jobs.runs.recorder import Recorder
from ridgestream.jobs.runs.trivial_errors import night_skills
from ridgestream.stores.files.credentials import without_secrets
from ridgestream.stores.repository.garbage_collection import measure_bytes

if TYPE_CHECKING:
    from prometheus_client import Metric

SUFFIX = ".prom"
"""The collector reads no other files."""

OUTCOMES = ("done", "nothing_new", "held_back", "unreported", "stopped", "failed")

READERS = ("evaluate", "predict")
"""Commands that leave nothing in the store."""

MEANINGS = {
    "run_timestamp_seconds": "When the last run ended, whatever its outcome.",
    "run_duration_seconds": "How long the last run took.",
    "run_exit_code": "The exit code of the last run.",
    "run_success": "Whether the last run did all that was asked for, whether or not its output was read.",
    "run_new_rows": "Rows that the last run ingested or learned.",
    "run_new_partitions": "Partitions that the last run ingested or learned.",
    "run_peak_memory_bytes": "The largest resident memory of the last run's process.",
    "last_success_timestamp_seconds": "When a run last succeeded: this one, or the last commit of the store.",
    "store_readable": "Whether the store could be read after the last run.",
    "store_commit_timestamp_seconds": "When the store was last changed, by whatever command.",
    "store_rows": "Rows in the store.",
    "store_partitions": "Partitions in the store.",
    "store_quarantined_partitions": "Partitions in quarantine.",
    "store_bytes": "Size of a local store.",
    "model_night": "The number of the model's last night.",
    "model_night_timestamp_seconds": "When the model's last night was committed.",
    "model_fed_timestamp_seconds": "When the model last learned a new partition.",
    "model_served_night": "The number of the night whose model is served.",
    "model_held_back": "Whether the guard holds the last night's model back.",
    "model_rows": "Rows that the model has learned.",
    "model_partitions": "Partitions that the model has learned.",
    "model_basis_vectors": "The size of the model's dictionary.",
    "model_progressive_error": "The error of the last night's rows, each predicted before it was learned.",
    "model_test_error": "The share of held-out rows misclassified after the last night.",
    "model_test_mse": "The mean squared error on held-out rows after the last night.",
    "model_skill": "1 - that error / the error of a constant on the same rows; in regression, R2.",
    "model_suspect_partitions": "Partitions of the last night that are unlike those before them.",
    "run_outcome": "1 for the outcome of the last run, 0 for all others.",
    "run_stage_seconds": "How long a stage of the last run took.",
    "run_stage_rows": "Rows of a stage of the last run.",
    "info": "The release that ran.",
}
"""Each metric, and what it is; all are gauges."""


@dataclass(frozen=True)
class Sample:
    """A value of a metric."""

    name: str
    """A key of MEANINGS."""
    value: float
    """The value."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels besides those that every metric has: job, command, store and model."""


def check_file(path: Path) -> None:
    """Raise JobFileError if the file cannot be one that the collector reads."""
    if path.suffix != SUFFIX:
        raise JobFileError(f"--metrics {path}: the textfile collector reads only files that end in {SUFFIX}")
    if not path.absolute().parent.is_dir():
        raise JobFileError(f"--metrics {path}: there is no folder {path.absolute().parent}")


@dataclass
class RunMetrics:
    """Collects what one run of a command does, and writes it at the end."""

    command: str
    """The command: run, ingest, train, evaluate or predict."""
    job_name: str
    """The job, as it was named on the command line."""
    job: Job | None = None
    """The job, once it has been read."""
    recorder: Recorder | None = None
    """What records the run's stages, once it has begun."""
    result: dict[str, Any] = field(default_factory=dict)
    """What the command prints, if it came so far."""
    began: float = field(default_factory=time.monotonic)
    """When the run began (monotonic)."""

    def write(self, path: Path, code: int, ending: str | None, *, reads_store: bool) -> None:
        """Write the file whole, by renaming; raises OSError if that is not possible.

        `ending` is the outcome of a run that did not succeed. A store that cannot be read, or is not to be, is one of
        the metrics.
        """
        from prometheus_client import CollectorRegistry, write_to_textfile

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Families(self._labels, self._samples(code, ending, self._health() if reads_store else None)))
        write_to_textfile(str(path), registry)

    @property
    def _labels(self) -> dict[str, str]:
        store = store_location(self.job).text if self.job else ""
        model = self.job.model.name if self.job else ""
        labels = {"job": self.job_name, "command": self.command, "store": without_secrets(store), "model": model}
        return {name: text.encode(errors="backslashreplace").decode() for name, text in labels.items()}

    def _health(self) -> Health | None:
        with suppress(Exception):  # whatever is wrong with the store, the run has said it
            return read_health(self.job) if self.job else None
        return None

    def _samples(self, code: int, ending: str | None, health: Health | None) -> Iterator[Sample]:
        values = self._run_values(code, health, succeeded=ending is None)
        yield from (Sample(name, value) for name, value in values.items())
        if health is not None:
            yield from (Sample(name, value) for name, value in _store_values(health).items() if value is not None)
        outcome = ending or self._success
        yield from (Sample("run_outcome", float(each == outcome), {"outcome": each}) for each in OUTCOMES)
        yield Sample("info", 1.0, {"version": __version__})
        for stage, _, rows, seconds in self.recorder.steps if self.recorder else ():
            yield Sample("run_stage_seconds", seconds, {"stage": stage})
            yield Sample("run_stage_rows", rows, {"stage": stage})

    def _run_values(self, code: int, health: Health | None, *, succeeded: bool) -> dict[str, float]:
        now, succeeded_at = time.time(), self._succeeded_at(health)
        values = {
            "run_timestamp_seconds": now,
            "run_duration_seconds": time.monotonic() - self.began,
            "run_exit_code": code,
            "run_success": float(succeeded),
            "run_new_rows": self.result.get("new_rows", 0),
            "run_new_partitions": self.result.get("new_partitions", 0),
            "run_peak_memory_bytes": peak_rss_bytes(),
            "store_readable": float(health is not None),
        }
        if succeeded or succeeded_at is not None:
            values["last_success_timestamp_seconds"] = now if succeeded else succeeded_at or 0.0
        return values

    def _succeeded_at(self, health: Health | None) -> float | None:
        """Return when an earlier run of this command succeeded last, as far as it has left a commit."""
        if health is None or self.command in READERS:
            return None
        committed_at = health.committed_at if self.command == "ingest" else health.finished_at
        return committed_at.timestamp() if committed_at else None

    @property
    def _success(self) -> str:
        learned_nothing = self.command not in READERS and not self.result.get("new_partitions")
        return "nothing_new" if learned_nothing and not self.result.get("train_seconds") else "done"


def _store_values(health: Health) -> dict[str, float | None]:
    """Return what the store says; what it does not know is None."""
    ledger, record, night = health.ledger, health.record, health.night
    values: dict[str, float | None] = {
        "store_commit_timestamp_seconds": health.committed_at.timestamp(),
        "store_rows": ledger.rows,
        "store_partitions": len(ledger.entries),
        "store_quarantined_partitions": len(ledger.quarantined),
        "store_bytes": measure_bytes(health.store),
    }
    if record is None or night is None:
        return values
    return values | {
        "model_night": night.number,
        "model_night_timestamp_seconds": _seconds(health.finished_at),
        "model_fed_timestamp_seconds": _seconds(health.fed_at),
        "model_served_night": health.served_night,
        "model_held_back": float(health.is_held_back),
        "model_rows": night.rows_seen,
        "model_partitions": len(record.learned),
        "model_basis_vectors": night.n_basis,
        "model_progressive_error": night.progressive_error,
        "model_test_error": night.test_error,
        "model_test_mse": night.test_mse,
        "model_skill": night_skills(night)["skill"],
        "model_suspect_partitions": len(health.suspects),
    }


def _seconds(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None


class _Families:
    """The samples as Prometheus' client library takes them, a family for each metric."""

    def __init__(self, labels: Mapping[str, str], samples: Iterable[Sample]) -> None:
        self._labels, self._samples = labels, tuple(samples)

    def collect(self) -> "Iterable[Metric]":
        """Return the families."""
        from prometheus_client.core import GaugeMetricFamily

        families: dict[str, Any] = {}
        for sample in self._samples:
            if sample.name not in families:
                names = [*self._labels, *sample.labels]
                family = GaugeMetricFamily(f"ridgestream_{sample.name}", MEANINGS[sample.name], labels=names)
                families[sample.name] = family
            families[sample.name].add_metric([*self._labels.values(), *sample.labels.values()], sample.value)
        return families.values()
