"""The ledger: which partitions the store holds, in the order in which they came, and how to know them again."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self, cast

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.errors.translation import reading, store_errors
from ridgestream.stores.parquet.partitions import PartitionFile
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.schema import Schema
from ridgestream.stores.segments.field_types import check_types
from ridgestream.stores.segments.size_limits import MOST_ROWS, check_metadata

if TYPE_CHECKING:
    import zarr

_GROUP = "ledger"
_FIELDS_OF_2 = ("name", "size_bytes", "modified_ns", "content_sha256", "rows")


@dataclass(frozen=True)
class LedgerEntry:
    """One ingested partition."""

    segment: int
    """The number of its segment, never used again; rows are learned in the order of the entries."""
    name: str
    """Its path relative to the source."""
    size_bytes: int
    """The file's size: with the time stamp, a first look that saves reading a file again."""
    modified_ns: int
    """The file's time stamp."""
    content_sha256: str
    """A hash of the decoded values of the store's columns: the same for another codec, another for another value."""
    rows: int
    """Its rows."""
    dropped: int = 0
    """Rows of the file that were left out."""

    @property
    def rows_of_file(self) -> int:
        """The rows that the file had."""
        return self.rows + self.dropped

    def looks_like(self, file: PartitionFile) -> bool:
        """Tell whether size and time stamp are those of the ledger."""
        return (self.size_bytes, self.modified_ns) == (file.size_bytes, file.modified_ns)


@dataclass(frozen=True)
class Quarantined:
    """A partition that was rejected; no model learns it as long as it is here."""

    name: str
    """Its path relative to the source."""
    reason: str
    """Why."""
    size_bytes: int
    """The file's size then; a file that has changed since is tried again, unless it was put here by hand."""
    modified_ns: int
    """The file's time stamp then."""
    since: str
    """When, ISO 8601 with the offset from UTC."""
    by_hand: bool = False
    """Whether a user put it here, and it stays until a user takes it back."""
    entry: LedgerEntry | None = None
    """Its entry, if it had been taken in before."""


@dataclass(frozen=True)
class Ledger:
    """The partitions of a store and what they have in common."""

    schema: Schema | None = None
    """Which column is what; None before the first ingest."""
    entries: tuple[LedgerEntry, ...] = ()
    """In the order of learning."""
    categories: tuple[tuple[str, ...], ...] = ()
    """For each categorical feature, every value seen, by first appearance in the entries' order."""
    classes: tuple[Label, ...] = ()
    """Where each class is learned, every one of which a row counts, likewise."""
    quarantined: tuple[Quarantined, ...] = ()
    """The partitions that were rejected."""
    next_segment: int = 0
    """The lowest number that no segment has had."""

    @property
    def rows(self) -> int:
        """All rows."""
        return sum(entry.rows for entry in self.entries)

    def by_name(self) -> dict[str, LedgerEntry]:
        """Return the entries by partition name."""
        return {entry.name: entry for entry in self.entries}

    def with_entries(
        self,
        added: Sequence[LedgerEntry],
        tables: Sequence[Sequence[Sequence[str]]],
        classes: Sequence[Sequence[Label]] = (),
    ) -> Self:
        """Return the ledger with further entries.

        `tables` holds each one's values of each categorical feature, `classes` each one's classes.
        """
        categories = [
            dict.fromkeys(values) for values in self.categories or tuple(() for _ in self._schema().categorical)
        ]
        for partition in tables:
            for known, values in zip(categories, partition, strict=True):
                known.update(dict.fromkeys(values))
        labels = dict.fromkeys([*self.classes, *(label for partition in classes for label in partition)])
        return replace(
            self,
            entries=(*self.entries, *added),
            categories=tuple(tuple(known) for known in categories),
            classes=tuple(labels),
            next_segment=max([self.next_segment, *(entry.segment + 1 for entry in added)]),
        )

    def without(self, names: Collection[str]) -> Self:
        """Return the ledger without the entries of these names."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry.name not in names))

    def with_quarantined(self, rejected: Sequence[Quarantined], released: Collection[str] = ()) -> Self:
        """Return the ledger with these partitions in quarantine, and those of these names out of it."""
        leaving = {*released, *(each.name for each in rejected)}
        staying = tuple(each for each in self.quarantined if each.name not in leaving)
        return replace(self, quarantined=(*staying, *rejected))

    def _schema(self) -> Schema:
        if self.schema is None:
            raise StoreError("the ledger has no schema yet")
        return self.schema


def read_ledger(root: "zarr.Group") -> Ledger:
    """Return the ledger of a snapshot; an empty one if nothing was ingested yet."""
    with reading("the store's ledger"):
        check_metadata(root.store, _GROUP)
        if _GROUP not in root:
            return Ledger()
        plain = cast("dict[str, Any]", root[_GROUP].attrs.asdict())
        entries = tuple(_entries(plain))
        categories = tuple(tuple(values) for values in plain["categories"])
        quarantined = tuple(_quarantined(each) for each in plain.get("quarantined", ()))
        ledger = Ledger(
            Schema.from_dict(plain["schema"]),
            entries,
            categories,
            tuple(plain.get("classes", ())),
            quarantined,
            plain.get("next_segment", len(entries)),
        )
        check_types(ledger)
        _check_numbers(ledger)
        return ledger


def _check_numbers(ledger: Ledger) -> None:
    """Raise ValueError for rows that cannot be, and for segments that two partitions have."""
    segments = [entry.segment for entry in ledger.entries]
    if any(not 0 <= entry.rows <= MOST_ROWS or entry.segment < 0 for entry in ledger.entries):
        raise ValueError("a partition has a number of rows, or of a segment, that cannot be")
    if len({*segments}) < len(segments) or len(ledger.by_name()) < len(segments):
        raise ValueError("two partitions have the same name or segment")


def _entries(plain: dict[str, Any]) -> Iterator[LedgerEntry]:
    """Yield the entries; up to format version 2, segments had the numbers of the entries, and fields no names."""
    names = plain.get("fields", _FIELDS_OF_2)
    for position, values in enumerate(plain["entries"]):
        yield LedgerEntry(**{"segment": position, **dict(zip(names, values, strict=True))})


def _quarantined(plain: dict[str, Any]) -> Quarantined:
    entry = plain.get("entry")
    return Quarantined(**{**plain, "entry": LedgerEntry(**entry) if entry else None})


def write_ledger(root: "zarr.Group", ledger: Ledger) -> None:
    """Put the ledger in the place of the one that is there, as part of a session."""
    if ledger.schema is None:
        raise StoreError("a ledger without a schema cannot be written")
    names = [item.name for item in fields(LedgerEntry)]
    plain: dict[str, Any] = {
        "schema": ledger.schema.as_dict(),
        "fields": names,
        "entries": [[getattr(entry, name) for name in names] for entry in ledger.entries],
        "categories": [list(c) for c in ledger.categories],
        "classes": list(ledger.classes),
        "quarantined": [asdict(each) for each in ledger.quarantined],
        "next_segment": ledger.next_segment,
    }
    with store_errors("the store's ledger"):
        root.create_group(_GROUP, overwrite=True, attributes=cast("Any", plain))
