"""The schema of a store: inferred from the first partition, then fixed."""

from dataclasses import replace

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.policies import ERROR, Policies
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.ingest.partition_profile import first_rows_precision
from ridgestream.pipeline.ingest.source_diff import usable_rows
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.errors.transient import is_transient
from ridgestream.stores.parquet.partitions import PartitionFile, count_rows, read_arrow_schema
from ridgestream.stores.schema.schema import DOUBLE, SINGLE, Schema, SchemaRequest, check_request, infer_schema


def find_schema(
    ledger: Ledger,
    files: tuple[PartitionFile, ...],
    request: SchemaRequest,
    policies: Policies,
    store: str,
    report: Reporter,
) -> Schema:
    """Return the ledger's schema, or infer it from the first file with rows if nothing was ingested before.

    `store` is the store's location, for messages. Raises StoreError if the request contradicts the ledger's schema,
    PartitionError if the file lacks a column of the request or cannot be read.
    """
    if ledger.schema is not None:
        check_request(ledger.schema, request, store)
        return ledger.schema
    rows_of = count_rows if policies.on_bad == ERROR else usable_rows
    first = next((file for file in files if rows_of(file)), files[0])  # without rows, types may be missing
    arrow = read_arrow_schema(first)
    schema = infer_schema(request, arrow, str(first.path))
    absent = [name for name in request.ignore if name not in arrow.names]
    if absent:
        report.warn(events.INGEST_IGNORED_COLUMNS_ABSENT, columns=", ".join(absent))
    return replace(schema, precision=_precision(first, schema, request, policies))


def _precision(first: PartitionFile, schema: Schema, request: SchemaRequest, policies: Policies) -> str:
    """Return how numbers will be stored; a first partition that cannot be used, as its ingest reports, has no say."""
    if request.precision == DOUBLE:
        return DOUBLE
    try:
        return first_rows_precision(first, schema, policies.missing)
    except PartitionError as error:
        if is_transient(error):
            raise
        return SINGLE
