"""The ledger: the partitions of a store, in order of arrival, and how to recognize them."""

from collections.abc import Collection, Sequence
from dataclasses import Field, asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self, cast, get_type_hints

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.errors.translation import read_errors, store_errors
from ridgestream.stores.files.paths import RECENT
from ridgestream.stores.parquet.partitions import PartitionFile
from ridgestream.stores.repository.store_format import LEDGER, check_listed, list_hashes, recall, remember
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.field_types import check_types, strictly_typed
from ridgestream.stores.schema.record_hash import hash_plain
from ridgestream.stores.schema.schema import Schema
from ridgestream.stores.segments.size_limits import MAX_ROWS, check_metadata
from ridgestream.stores.segments.text_array import read_lines, write_lines

if TYPE_CHECKING:
    import zarr

_LISTS = ("entries", "categories", "quarantined")
"""The parts of the ledger that grow with the store; in attributes up to format version 3."""

_FIELDS_OF_2 = ("name", "size_bytes", "modified_ns", "content_sha256", "rows")


@strictly_typed
@dataclass(frozen=True)
class LedgerEntry:
    """One ingested partition."""

    segment: int
    """The number of its segment, never reused; rows are learned in the order of the entries."""
    name: str
    """Its path relative to the source."""
    size_bytes: int
    """The file's size; with the time stamp, a quick check that avoids reading the file again."""
    modified_ns: int
    """The file's time stamp."""
    content_sha256: str
    """A hash of the decoded values of the store's columns: independent of the codec, different for different values."""
    rows: int
    """Number of rows."""
    dropped: int = 0
    """Number of rows of the file that were left out."""
    identity: str = ""
    """What distinguishes a file and a rewritten one of the same size and time, as in `Stamp`; empty if unknown."""

    @property
    def rows_of_file(self) -> int:
        """Number of rows in the file."""
        return self.rows + self.dropped

    def looks_like(self, file: PartitionFile) -> bool:
        """Return whether the file's size, time stamp and, where both are known, identity are those in the ledger.

        No file looks like an object that was ingested just after it was written.
        """
        if self.identity == RECENT:
            return False
        same_identity = not (self.identity and file.identity) or self.identity == file.identity
        return (self.size_bytes, self.modified_ns) == (file.size_bytes, file.modified_ns) and same_identity

    def at(self, file: PartitionFile) -> "LedgerEntry":
        """Return the entry for the same rows in this file."""
        return replace(
            self,
            name=file.name,
            size_bytes=file.size_bytes,
            modified_ns=file.modified_ns,
            identity=file.identity,
        )


@strictly_typed
@dataclass(frozen=True)
class Quarantined:
    """A rejected partition; no model learns it while it is in quarantine."""

    name: str
    """Its path relative to the source."""
    reason: str
    """Why it was rejected."""
    size_bytes: int
    """The file's size at that time; a file that has changed since is tried again, unless `by_hand`."""
    modified_ns: int
    """The file's time stamp at that time."""
    since: str
    """When it was rejected, ISO 8601 with the offset from UTC."""
    by_hand: bool = False
    """Whether a user put it in quarantine; then it stays until a user releases it."""
    entry: LedgerEntry | None = None
    """Its ledger entry, if it had been ingested before."""


@strictly_typed
@dataclass(frozen=True)
class Ledger:
    """The partitions of a store, and the schema and tables common to them."""

    schema: Schema | None = None
    """The role of each column; None before the first ingest."""
    entries: tuple[LedgerEntry, ...] = ()
    """The partitions, in the order of learning."""
    categories: tuple[tuple[str, ...], ...] = ()
    """For each categorical feature, all values, by first appearance in the order of the entries."""
    classes: tuple[Label, ...] = ()
    """In multi-class stores, all classes with a row of positive weight, in the same order."""
    quarantined: tuple[Quarantined, ...] = ()
    """The rejected partitions."""
    next_segment: int = 0
    """The lowest number not used by any segment so far."""

    @property
    def rows(self) -> int:
        """Total number of rows."""
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

        `tables` holds each entry's values of each categorical feature, `classes` each entry's classes.
        """
        known_values = self.categories or tuple(() for _ in self._schema().categorical)
        categories = [dict.fromkeys(values) for values in known_values]
        for partition in tables:
            for table, values in zip(categories, partition, strict=True):
                table.update(dict.fromkeys(values))
        labels = dict.fromkeys([*self.classes, *(label for partition in classes for label in partition)])
        return replace(
            self,
            entries=(*self.entries, *added),
            categories=tuple(tuple(table) for table in categories),
            classes=tuple(labels),
            next_segment=max([self.next_segment, *(entry.segment + 1 for entry in added)]),
        )

    def without(self, names: Collection[str]) -> Self:
        """Return the ledger without the entries of these names."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry.name not in names))

    def with_quarantined(self, rejected: Sequence[Quarantined], released: Collection[str] = ()) -> Self:
        """Return the ledger with these partitions added to the quarantine, and those with these names released."""
        leaving = {*released, *(each.name for each in rejected)}
        staying = tuple(each for each in self.quarantined if each.name not in leaving)
        return replace(self, quarantined=(*staying, *rejected))

    def _schema(self) -> Schema:
        if self.schema is None:
            raise StoreError("the ledger has no schema yet")
        return self.schema


_ENTRY_TYPES = get_type_hints(LedgerEntry)


def read_ledger(root: "zarr.Group") -> Ledger:
    """Return the ledger of a snapshot; an empty one if nothing has been ingested yet."""
    with read_errors("the store's ledger"):
        known = recall(root, LEDGER)
        if isinstance(known, Ledger):
            return known
        check_metadata(root.store, LEDGER, members=_LISTS)
        if LEDGER not in root:
            check_listed(root, LEDGER, None)
            return Ledger()
        group = cast("zarr.Group", root[LEDGER])
        plain = cast("dict[str, Any]", group.attrs.asdict())
        plain |= {name: read_lines(group, name) for name in _LISTS if name in group}
        digest = hash_plain(plain)
        check_listed(root, LEDGER, digest)
        ledger = from_plain(plain)
        remember(root, LEDGER, digest, ledger)
        return ledger


def from_plain(plain: dict[str, Any]) -> Ledger:
    """Return the ledger from its plain form, of this or an earlier format; raises ValueError or TypeError if damaged.

    Up to format version 2, segments were numbered by position, and fields had no names.
    """
    names, values = plain.get("fields", _FIELDS_OF_2), plain["entries"]
    categories = tuple(tuple(table) for table in plain["categories"])
    ledger = Ledger(
        schema=Schema.from_dict(plain["schema"]).with_names_of(categories),
        entries=_entries(names, values),
        categories=categories,
        classes=tuple(plain.get("classes", ())),
        quarantined=tuple(_quarantined(each) for each in plain.get("quarantined", ())),
        next_segment=plain.get("next_segment", len(values)),
    )
    check_types(replace(ledger, entries=()))
    _check_numbers(ledger)
    return ledger


def as_plain(ledger: Ledger) -> dict[str, Any]:
    """Return the ledger as plain JSON: its canonical form, of which `from_plain` is the inverse."""
    if ledger.schema is None:
        raise StoreError("a ledger without a schema cannot be written")
    names = [item.name for item in fields(LedgerEntry)]
    return {
        "schema": ledger.schema.as_dict(),
        "fields": names,
        "entries": [[getattr(entry, name) for name in names] for entry in ledger.entries],
        "categories": [list(c) for c in ledger.categories],
        "classes": list(ledger.classes),
        "quarantined": [asdict(each) for each in ledger.quarantined],
        "next_segment": ledger.next_segment,
    }


def _check_numbers(ledger: Ledger) -> None:
    """Raise ValueError for impossible numbers of rows, and for segments or names that are used twice."""
    segments, rows = ([getattr(entry, name) for entry in ledger.entries] for name in ("segment", "rows"))
    if segments and (min(segments) < 0 or min(rows) < 0 or max(rows) > MAX_ROWS):
        raise ValueError("a partition has a number of rows, or of a segment, that cannot be")
    if len({*segments}) < len(segments) or len(ledger.by_name()) < len(segments):
        raise ValueError("two partitions have the same name or segment")


def _entries(names: Sequence[str], plain: Sequence[Sequence[Any]]) -> tuple[LedgerEntry, ...]:
    """Return the entries with these values of the named fields; raises TypeError or ValueError if one is damaged."""
    columns = dict(zip(names, zip(*plain, strict=True), strict=True)) if plain else {}
    columns.setdefault("segment", tuple(range(len(plain))))
    if not columns.keys() <= _ENTRY_TYPES.keys():
        raise TypeError(f"an entry has no field {min(columns.keys() - _ENTRY_TYPES.keys())!r:.100}")
    return tuple(map(LedgerEntry, *(_column(item, columns.get(item.name), len(plain)) for item in fields(LedgerEntry))))


def _column(item: "Field[Any]", values: Sequence[Any] | None, length: int) -> Sequence[Any]:
    """Return the values of a field of all entries, checked together: a store may have many partitions."""
    if values is None:
        values = (item.default,) * length
    wrong = {*map(type, values)} - {_ENTRY_TYPES[item.name]}
    if wrong:
        raise TypeError(f"LedgerEntry.{item.name} cannot be {next(v for v in values if type(v) in wrong)!r:.100}")
    return values


def _quarantined(plain: dict[str, Any]) -> Quarantined:
    entry = plain.get("entry")
    return Quarantined(**{**plain, "entry": LedgerEntry(**entry) if entry else None})


def write_ledger(root: "zarr.Group", ledger: Ledger) -> None:
    """Write the ledger, replacing the current one, within a session.

    Its lists are text in chunks, of which only those from the first change on are written: adding a partition to n
    costs O(1) bytes, and a few for each chunk of the list of chunks.
    """
    plain = as_plain(ledger)
    digest = hash_plain(plain)
    remember(root, LEDGER, digest, from_plain(plain))
    lists = {name: plain.pop(name) for name in _LISTS}
    with store_errors("the store's ledger"):
        list_hashes(root, {LEDGER: digest})
        replaced = LEDGER not in root or _LISTS[0] not in cast("zarr.Group", root[LEDGER])
        group = root.create_group(LEDGER, overwrite=True) if replaced else cast("zarr.Group", root[LEDGER])
        group.attrs.put(plain)
        for name, items in lists.items():
            write_lines(group, name, items)
