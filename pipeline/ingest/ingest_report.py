"""What an ingest did."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from ridgestream.pipeline.ingest.ingest_plan import IngestPlan
from ridgestream.pipeline.ingest.wave import WaveResult
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry, Quarantined
from ridgestream.stores.parquet.partitions import PartitionFile, read_arrow_schema


@dataclass(frozen=True)
class IngestReport:
    """What an ingest did."""

    added: tuple[LedgerEntry, ...]
    """The partitions that were ingested, rebuilt ones among them."""
    ignored_columns: tuple[str, ...]
    """Columns of the newest partition that the schema does not name; they are not read."""
    gone: tuple[str, ...]
    """Partitions of the ledger that the source no longer holds; their rows stay in the store."""
    duplicates: tuple[tuple[str, str], ...]
    """New partitions with exactly the values of an older one, each with that one's name."""
    renamed: tuple[tuple[str, str], ...]
    """Partitions with a new name: the old one, the new one."""
    changed: tuple[str, ...]
    """Partitions that hold other values than in the store, which is ignored."""
    rebuilt: tuple[str, ...]
    """Partitions that held other values and were ingested again."""
    new_quarantine: tuple[Quarantined, ...]
    """Partitions that were put into quarantine."""
    quarantined: tuple[Quarantined, ...]
    """Partitions that were in quarantine before and stay there."""
    missing_values: Mapping[str, int]
    """How many values each column of the new partitions lacks, of those that lack any."""


def report_ingest(
    plan: IngestPlan, result: WaveResult, files: Sequence[PartitionFile], quarantined_before: AbstractSet[Quarantined]
) -> IngestReport:
    """Return what the ingest did that carried out the plan; reads the footer of the newest partition."""
    added = plan.added(result.ledger)
    return IngestReport(
        added=added,
        ignored_columns=_ignored_columns(files, added, result.ledger),
        gone=plan.gone,
        duplicates=_find_duplicates(result.ledger, plan.ledger.next_segment),
        renamed=plan.renamed,
        changed=plan.changed,
        rebuilt=plan.rebuilt,
        new_quarantine=tuple(each for each in result.ledger.quarantined if each not in quarantined_before),
        quarantined=plan.quarantined,
        missing_values=result.missing,
    )


def _find_duplicates(ledger: Ledger, first_new: int) -> tuple[tuple[str, str], ...]:
    """Return each entry with rows, from the segment `first_new` on, that has the content of an older entry."""
    oldest: dict[str, str] = {}
    duplicates = []
    for entry in sorted(ledger.entries, key=lambda entry: entry.segment):  # one that was rebuilt keeps its place
        older = oldest.setdefault(entry.content_sha256, entry.name)
        if older != entry.name and entry.segment >= first_new and entry.rows_of_file:
            duplicates.append((entry.name, older))
    return tuple(duplicates)


def _ignored_columns(files: Sequence[PartitionFile], added: Sequence[LedgerEntry], ledger: Ledger) -> tuple[str, ...]:
    """Return the columns of the newest partition that the schema does not name; none if none is new."""
    names = {entry.name for entry in added}
    new = [file for file in files if file.name in names]
    return ledger.schema.unused_columns(read_arrow_schema(new[-1]).names) if new and ledger.schema else ()
