"""Ingest: Parquet partitions that the store lacks become segments of it, each once, several to a commit.

Three steps: compare the source with the ledger and plan; carry the plan out in waves of partitions, one commit each;
report. A partition is read twice: first to check every value and to compute its content hash, moments and float width,
so that nothing is written of a partition that cannot be used; then to write it, chunk by chunk. Memory does not depend
on its size.
"""

from collections.abc import Sequence
from dataclasses import replace

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.policies import Policies
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.dataset.task_label import partition_needs
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.ingest.ingest_plan import IngestPlan, plan_ingest
from ridgestream.pipeline.ingest.ingest_report import IngestReport, report_ingest
from ridgestream.pipeline.ingest.partition_profile import content_of
from ridgestream.pipeline.ingest.source_diff import diff_source, read_contents
from ridgestream.pipeline.ingest.source_schema import find_schema
from ridgestream.pipeline.ingest.wave import WaveResult, WaveWriter
from ridgestream.stores.catalog.ledger import Ledger, read_ledger
from ridgestream.stores.parquet.partitions import PartitionFile
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.schema import SchemaRequest

TASKS_A_COMMIT = 16
"""Tasks whose partitions become visible together, each a large partition or several small ones; a killed ingest repeats
at most these.
"""

SMALL_FILE_BYTES = 2**18
"""Files up to this size may share a task."""

TASK_BYTES, TASK_FILES = 4 * 2**20, 256
"""Limits of the files that share a task: enough for a full pack of the store, and read within seconds."""

LEAST_TASKS = 8
"""Small files are divided into as many tasks at least, which workers share."""


def ingest(
    store: Store,
    files: tuple[PartitionFile, ...],
    request: SchemaRequest,
    executor: Executor,
    report: Reporter,
    feature_map: FeatureMap | None = None,
    policies: Policies | None = None,
) -> IngestReport:
    """Ingest the files that the ledger lacks, in their order; rows and ledger change by the same commits.

    `feature_map` is that of the model that will learn them: a category or class that it lacks, or a value too far out
    for it, is refused before the commit. `policies` (by default all errors) decide about files that have changed or
    cannot be used.

    Raises PartitionError for a file that cannot be used, or has other values than when it was ingested, StoreError if
    the request contradicts the store's schema. Earlier commits stand.
    """
    policies = policies or Policies()
    committed = read_ledger(store.root())
    schema = find_schema(committed, files, request, policies, store.location.text, report)
    diff = diff_source(committed, files)
    contents = read_contents(diff, schema, executor, content_of)
    plan = plan_ingest(replace(committed, schema=schema), files, diff, contents, policies)

    known = None if plan.rebuilt else feature_map  # a model that learned a rebuilt partition starts over with a new map
    writer = WaveWriter(store, schema, executor, report, known, policies, frozenset(plan.rebuilt))
    result = _carry_out(plan, committed, writer)
    return report_ingest(plan, result, files, frozenset(committed.quarantined))


def _carry_out(plan: IngestPlan, committed: Ledger, writer: WaveWriter) -> WaveResult:
    """Commit new names, then the files wave by wave; return the ledger after the last commit."""
    if plan.renamed:
        writer.commit_names(committed, plan.ledger)
        committed = plan.ledger
    result = WaveResult(plan.ledger, {})
    writer.executor.admit(partition_needs(plan.files))
    writer.report.begin(events.STEP_INGEST, None, partitions=len(plan.files))
    groups = group_files(plan.files)
    for start in range(0, len(groups), TASKS_A_COMMIT):
        wave = writer.ingest_wave(committed, result.ledger, groups[start : start + TASKS_A_COMMIT])
        committed, result = wave.ledger, result.then(wave)
    added = plan.added(result.ledger)
    dropped = sum(entry.dropped for entry in added)
    counts = {"partitions": len(added), "rows": sum(entry.rows for entry in added)}
    writer.report.end(**counts, **({"dropped": dropped} if dropped else {}))
    return result


def group_files(files: Sequence[PartitionFile]) -> list[tuple[PartitionFile, ...]]:
    """Return the files in groups, in order: each large one alone, small ones together.

    The groups depend on the number and the sizes of the files alone.
    """
    most = min(TASK_FILES, -(-len(files) // LEAST_TASKS))
    groups: list[list[PartitionFile]] = []
    size = TASK_BYTES + 1  # the first file begins a group
    for file in files:
        size += file.size_bytes
        if file.size_bytes > SMALL_FILE_BYTES or size > TASK_BYTES or len(groups[-1]) >= most:
            groups.append([])
            size = file.size_bytes if file.size_bytes <= SMALL_FILE_BYTES else TASK_BYTES + 1
        groups[-1].append(file)
    return [tuple(group) for group in groups]
