"""A job that runs in this process, for schedulers: `run` returns what the night did, or raises why it failed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self

from ridgestream.jobs.cluster.dask_executor import open_executor
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.commands.train import Held
from ridgestream.jobs.config.job_file import Job, make_job, read_job
from ridgestream.jobs.config.requests import cluster_of
from ridgestream.jobs.config.values import JobFileError, nest_keys
from ridgestream.jobs.report.report_files import Concluded, recorded
from ridgestream.pipeline.base.errors import Names, errors_renamed
from ridgestream.pipeline.base.reporter import RenamingReporter, log_warning

Outcome = Literal["done", "nothing_new", "held_back", "unreported"]
"""How a run ends that raises no error: done; nothing to learn; its model held back by the guard; committed, but without
its report."""

_NAMES: Names = {"--new-model": "new_model=True", "use --wait SECONDS": "give wait_seconds"}


@dataclass(frozen=True)
class RunResult:
    """What a run did; it can be pickled, and `as_dict` is plain JSON."""

    outcome: Outcome
    """How it ended."""
    message: str
    """Why the model is held back or the report is missing; empty otherwise."""
    model: str | None
    """The model's name; None if there were no rows to learn."""
    snapshot: str
    """The commit of the store."""
    served_night: int
    """The night whose model is served; 0 if there is none."""
    new_partitions: int
    """Number of partitions learned."""
    new_rows: int
    """Their number of rows."""
    rows_seen: int
    """Number of rows learned so far."""
    n_basis: int
    """The size of the dictionary."""
    test_error: float | None
    """The share of held-out rows misclassified; None without any, and in regression."""
    test_mse: float | None
    """The mean squared error on held-out rows; None without any, and for classes."""
    progressive_error: float | None
    """The error on new rows, each predicted before it was learned."""
    suspects: tuple[str, ...]
    """Partitions that are unlike those before them."""
    report_page: str | None
    """The night's report as a page; None if none was written."""
    report_json: str | None
    """The same as JSON."""
    seconds: float
    """How long it took."""
    facts: Mapping[str, Any] = field(repr=False)
    """All that the command prints with `--json`."""

    @classmethod
    def of(cls, facts: Mapping[str, Any], outcome: Outcome, message: str = "") -> Self:
        """Return the result with these facts."""
        report = facts.get("report") or {}
        known: dict[str, Any] = {item.name: facts.get(item.name) for item in fields(cls)}
        known |= {"outcome": outcome, "message": message, "suspects": tuple(facts["suspects"]), "facts": dict(facts)}
        return cls(**(known | {"report_page": report.get("html"), "report_json": report.get("json")}))

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON, such as a scheduler passes from task to task."""
        return asdict(self) | {"suspects": list(self.suspects)}


def run(
    job: str | Path | Mapping[str, Any] | Job,
    *,
    changes: Mapping[str, Any] | None = None,
    wait_seconds: float = 0.0,
    new_model: bool = False,
) -> RunResult:
    """Run a job in this process, in any of its threads, as the command `run` does: ingest, learn, evaluate, commit.

    `job` is the path of a job file, the name of a recipe, or the settings themselves, nested as in a file, with paths
    relative to the working directory. `changes` are settings that go before those of the job, by keys such as
    "model.max_basis" or nested; None takes back what the job says. `wait_seconds` is how long to wait for another
    writer, and `new_model` begins a new model, which may have other parameters.

    Nothing of the process is changed: no signal handler, no log but the logger "ridgestream", which gets steps and
    events as INFO, and what a person should look at as WARNING. Raises JobFileError for a
    job that cannot be used, StoreLocked and other StoreErrors, PartitionError for rows, ModelError, InputError,
    NumericalBreakdown, MemoryError and ClusterError; what was committed before stands, and the same call continues.
    """
    with errors_renamed(_NAMES):
        return _run(_parse(job, changes or {}), wait_seconds, new_model=new_model)


def _run(job: Job, wait_seconds: float, *, new_model: bool) -> RunResult:
    reporter = RenamingReporter(_NAMES, log_warning)
    with recorded(job, reporter) as report, open_executor(*cluster_of(job), report) as executor:
        try:
            facts = run_job(job, executor, report, wait_seconds, new_model=new_model)
        except Concluded as ended:
            return RunResult.of(ended.result, "held_back" if isinstance(ended, Held) else "unreported", str(ended))
    learned = facts["new_partitions"] or facts["train_seconds"]
    return RunResult.of(facts, "done" if learned else "nothing_new")


def _parse(job: str | Path | Mapping[str, Any] | Job, changes: Mapping[str, Any]) -> Job:
    flags = nest_keys(changes.items())
    if isinstance(job, Mapping):
        return make_job(dict(job), flags, "the job")
    if isinstance(job, str | Path):
        return read_job(Path(job), flags)
    if not isinstance(job, Job):
        raise JobFileError(f"a job is the path of a file, the name of a recipe or a mapping of settings, not {job!r}")
    if changes:
        raise JobFileError("changes go with the path of a job file or its settings, not with a job that is parsed")
    return job
