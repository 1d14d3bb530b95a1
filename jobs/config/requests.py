"""What the stages take, from a job's settings: store, partitions, requests, limits."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgestream.jobs.config.cluster_options import FILE, ClusterOptions
from ridgestream.jobs.config.job_file import Job, make_job
from ridgestream.jobs.config.method_sections import AUTO, online_settings
from ridgestream.jobs.config.model_section import policy_settings
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.recipes.bundled import recipe_names
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.policies import Policies
from ridgestream.pipeline.base.reporter import Fact, Reporter, Silent
from ridgestream.pipeline.metric.settings import STANDARDIZED, MetricRequest, MetricSettings
from ridgestream.pipeline.models.learned_ranges import LearnedRanges, learned_ranges
from ridgestream.pipeline.models.model_record import LSTD
from ridgestream.pipeline.training.policy.request import POLICY_BASIS, PolicyRequest
from ridgestream.pipeline.training.request import (
    MAX_BASIS,
    REGULARIZATION,
    THRESHOLDS,
    BatchRequest,
    OnlineRequest,
    Request,
)
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.catalog.models import ModelRecord, list_models, require_model
from ridgestream.stores.catalog.snapshots import find_snapshot, served_record
from ridgestream.stores.errors.exceptions import ModelError, StoreError
from ridgestream.stores.errors.translation import prefix_errors
from ridgestream.stores.files.paths import FileLocation, is_same_location
from ridgestream.stores.parquet.lags import Lags
from ridgestream.stores.parquet.partitions import PartitionFile, count_rows, list_partitions, list_source, with_lags
from ridgestream.stores.parquet.source_walk import escape_path
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.schema.column_rules import ColumnRules
from ridgestream.stores.schema.column_types import TIMESTAMP
from ridgestream.stores.schema.schema import Schema, SchemaRequest
from ridgestream.stores.schema.transitions import TransitionRequest
from ridgestream.stores.segments.available_memory import available_bytes
from ridgestream.stores.segments.segments import Segments

if TYPE_CHECKING:
    import zarr


def store_location(job: Job) -> StoreLocation:
    """Return where the job's store is."""
    return StoreLocation.parse(job.store, job.base, job.storage.settings)


def report_folder(job: Job) -> FileLocation | None:
    """Return where reports go: where the job names a folder, or beside the store; None for no reports.

    Raises JobFileError or StoreError for an invalid URL.
    """
    if job.report is not None:
        return None if job.report == "none" else job.location(job.report)
    return store_location(job).beside("-reports")


def open_or_create_store(job: Job, wait_seconds: float) -> Store:
    """Open the job's store, or create it; waits at most `wait_seconds` for another writer's lock."""
    return Store.open_or_create(store_location(job), wait_seconds)


@dataclass(frozen=True)
class Served:
    """A model of the store, ready to predict."""

    record: ModelRecord
    """The model."""
    schema: Schema
    """The store's schema."""
    snapshot: str
    """The commit."""
    root: "zarr.Group"
    """The store's root at the commit."""
    is_held: bool = False
    """Whether the guard held it back; such a model is returned only by the number of its night."""

    def ranges(self) -> LearnedRanges:
        """Return the ranges of the rows that the model has learned."""
        return learned_ranges(Segments(self.root), self.record)

    def warn_if_held(self, report: Reporter) -> None:
        """Warn if the guard held the model back."""
        if self.is_held:
            report.warn(events.GUARD_SHOWING_HELD_MODEL)


def open_served(job: Job, name: str | None = None) -> Served:
    """Return the job's model as `serve` does; raises StoreError if there is no such store."""
    return serve(Store.open(store_location(job)), job.model.name, name)


def serve(store: Store, model: str, name: str | None = None) -> Served:
    """Return a model as it is served, or as a night (its number), a tag or a snapshot has it.

    Raises StoreError or ModelError if there is no such partition, model or night. Of a night's number, its own model
    is returned, even if it was held back.
    """
    with prefix_errors(store.location.text):
        snapshot = find_snapshot(store, model, name) if name else store.snapshot()
        root = store.root(snapshot)
        record, schema = require_model(root, model), read_ledger(root).schema
        own = bool(name and name.isdecimal())
        served = record if own else served_record(store, record)
    if schema is None:
        raise StoreError(f"the store {store.location.text} holds no partition yet")
    return Served(served, schema, snapshot, root, is_held=own and bool(record.serves))


def source_partitions(job: Job, report: Reporter | None = None) -> tuple[PartitionFile, ...]:
    """Return the partitions that the job's source holds now; reports the files that are passed over."""
    return listed_partitions(job, job.location(job.source.path), report or Silent())


def evaluation_partitions(job: Job, report: Reporter | None = None) -> tuple[PartitionFile, ...]:
    """Return the held-out partitions; raise JobFileError if the job names none."""
    if job.evaluate is None:
        raise JobFileError("the job has no [evaluate] section: it needs the path of held-out partitions")
    return listed_partitions(job, job.location(job.evaluate.path), report or Silent())


def listed_partitions(job: Job, source: FileLocation, report: Reporter) -> tuple[PartitionFile, ...]:
    """Return the partitions of a source; reports its other files, and warns of those that look like partitions.

    With lags, partitions that are not the job's follow those of the job's own source. The job's store and reports,
    which may lie in the source, are not reported.
    """
    listing = list_source(source)
    own = tuple(f"{place}/" for place in (store_location(job).beside(""), report_folder(job)) if place is not None)
    passed_over = [file for file in listing.passed_over if not str(file.location).startswith(own)]
    if passed_over:
        like_data = [file for file in passed_over if file.looks_like_data]
        facts: dict[str, Fact] = {"files": len(passed_over), "like_partitions": len(like_data)}
        facts |= {"first": escape_path((like_data or passed_over)[0].name), "source": escape_path(source)}
        (report.warn if like_data else report.say)(events.SOURCE_FILES_PASSED_OVER, **facts)
    own_source = job.location(job.source.path)
    is_other = job.source.lags is not None and not is_same_location(source, own_source)
    return with_lags(listing.partitions, _lags(job), list_source(own_source).partitions if is_other else ())


def _lags(job: Job) -> Lags | None:
    """Return which earlier values are columns; None for none."""
    return Lags(tuple(job.source.lags.items()), job.source.lag_key) if job.source.lags else None


def schema_request(job: Job) -> SchemaRequest:
    """Return how the job describes the columns."""
    s = job.source
    target = s.targets[0] if len(s.targets) == 1 else s.targets
    columns = s.features, s.ignore, s.categorical
    return SchemaRequest(
        target,
        s.positive,
        *columns,
        weight=s.weight,
        classes=s.classes,
        precision=s.precision,
        rules=column_rules(job),
        transitions=TransitionRequest(s.next, s.done) if s.next is not None else None,
    )


def column_rules(job: Job) -> ColumnRules:
    """Return what the job says of how columns become features."""
    s = job.source
    return ColumnRules(s.indicators, s.scaling, s.timestamps, s.columns)


def is_ordered(job: Job, schema: Schema | None) -> bool:
    """Return whether rows are ordered in time: as the job says, or else if a feature is a time stamp."""
    stamped = schema is not None and any(feature.kind == TIMESTAMP for feature in schema.features)
    return stamped if job.source.ordered is None else job.source.ordered


def policies(job: Job) -> Policies:
    """Return the job's policies for changed, bad and incomplete partitions."""
    s = job.source
    return Policies(s.on_changed, s.on_bad, s.missing, s.unseen_categories)


def model_request(job: Job) -> Request:
    """Return what the job asks the model to be; raise PartitionError if its dictionary is no Parquet file."""
    if job.model.method == LSTD:
        return _policy_request(job)
    return _online_request(job) if job.model.is_online else _batch_request(job)


def _online_request(job: Job) -> OnlineRequest:
    model = job.model
    values = model.values({setting.name for setting in online_settings()})
    return OnlineRequest(
        name=model.name,
        kernel=model.kernel.name,
        kernel_parameters=model.kernel.parameters()[0],
        scaling_rows=_scaling_rows(job),
        dictionary=job.location(model.dictionary) if model.dictionary else None,
        experts=model.fixed_experts,
        random_seed=model.values({"random_seed"})["random_seed"] if model.random_basis else None,
        unseen_categories=job.source.unseen_categories,
        rules=column_rules(job),
        metric=_metric_request(job),
        class_weight=job.source.class_weight,
        chooses=model.chooses,
        pilot_options=_pilot_options(job),
        **(values | {"max_basis": _fixed_basis(job) or values["max_basis"]}),
    )


def _batch_request(job: Job) -> BatchRequest:
    model = job.model
    settings = model.method_settings(model.method)
    uses_efvs = getattr(settings, "start", None) == "efvs"
    return BatchRequest(
        name=model.name,
        method=model.method,
        kernel=model.kernel.name,
        kernels=model.kernel.parameters(),
        settings=settings,
        others={"efvs": model.method_settings("efvs", only_selects=True)} if uses_efvs else {},
        scaling_rows=_scaling_rows(job),
        dictionary=job.location(model.dictionary) if model.dictionary else None,
        unseen_categories=job.source.unseen_categories,
        rules=column_rules(job),
        given_basis=_count_given(job),
        metric=_metric_request(job),
        class_weight=job.source.class_weight,
        chooses=model.chooses,
        pilot_options=_pilot_options(job),
    )


def _policy_request(job: Job) -> PolicyRequest:
    model = job.model
    values = model.values(THRESHOLDS | {REGULARIZATION, MAX_BASIS})
    if getattr(model, MAX_BASIS) == AUTO:
        values[MAX_BASIS] = POLICY_BASIS
    return PolicyRequest(
        name=model.name,
        kernel=model.kernel.name,
        kernel_parameters=model.kernel.parameters()[0],
        scaling_rows=_scaling_rows(job),
        settings=policy_settings(model),
        rules=column_rules(job),
        **values,
    )


def _metric_request(job: Job) -> MetricRequest | None:
    """Return the metric that the job asks the model to learn; None for that of the standardized columns."""
    model = job.model
    if model.metric == STANDARDIZED:
        return None
    return MetricRequest(model.metric, _pilot_options(job))


def _pilot_options(job: Job) -> MetricSettings:
    return MetricSettings(**job.model.metric_options.model_dump() if job.model.metric_options else {})


def _scaling_rows(job: Job) -> int | None:
    return None if job.model.scaling_rows == "all" else job.model.scaling_rows


def _fixed_basis(job: Job) -> int:
    """Return the size of a fixed dictionary, given or drawn; 0 where rows select it."""
    return _count_given(job) if job.model.dictionary is not None else job.model.random_basis or 0


def _count_given(job: Job) -> int:
    """Return how many rows the given dictionary has, by the footers of its files; 0 where none is given."""
    path = job.model.dictionary
    return sum(count_rows(file) for file in list_partitions(job.location(path))) if path is not None else 0


def cluster_of(job: Job) -> tuple[str, float, ClusterOptions]:
    """Return which cluster the job runs on, how long to wait for it, and its options, with absolute paths."""
    path = job.cluster.removeprefix(FILE)
    cluster = job.cluster if path == job.cluster else f"{FILE}{job.path(path)}"
    return cluster, job.cluster_seconds, job.cluster_options.at(job.base)


def memory_limit_bytes(job: Job) -> int:
    """Return the bytes of memory that this process may use."""
    return int(job.memory_limit) if job.memory_limit is not None else available_bytes()


def is_job_file(path: str) -> bool:
    """Return whether a path names a job file, or a bundled recipe, and not a store.

    A path that cannot be looked up is taken to be a store, and opening that reports the error.
    """
    with suppress(OSError):
        return Path(path).is_file() if path.endswith(".toml") else path in recipe_names() and not Path(path).exists()
    return False


def names_store(text: str) -> bool:
    """Return whether a text on the command line names a store, and no job: a URL or a folder."""
    return "://" in text or (Path(text).is_dir() and text not in recipe_names())


def job_of_store(location: str, flags: dict[str, Any]) -> Job:
    """Return the job that a store stands for where its model predicts: the only model, unless `flags` name one.

    The target is a placeholder, since the store knows its own. Raises StoreError or ModelError if there is no such
    store, or not one model.
    """
    flags = {**flags, "store": location}
    source = {"path": location, "target": "the store's"}
    job = make_job({"source": source}, flags, f"the store {location}, with these settings,")
    if "name" in job.model.model_fields_set:
        return job
    names = list_models(Store.open(store_location(job)).root())
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise ModelError(f"the store {location} has the models {found}: name one by --set model.name=NAME")
    return make_job({"source": source, "model": {"name": names[0]}}, flags, location)
