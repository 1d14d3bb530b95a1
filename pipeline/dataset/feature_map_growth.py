"""How the rows of a training are read: one feature map for all, or one that grows from partition to partition.

With the policy `extend`, a category that the model has not seen gets an indicator where it first appears: at the
beginning of its partition. So what is learned in several nights is what one run over the same partitions learns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.policies import ERROR, EXTEND
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.dataset.boolean_columns import knowing_booleans
from ridgestream.pipeline.dataset.feature_map_fit import find_valueless, freeze_feature_map
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.schema.schema import Schema
from ridgestream.stores.segments.segments import Segment, SegmentFacts

if TYPE_CHECKING:
    import zarr


@dataclass(frozen=True)
class Encodings:
    """The feature maps that partitions are read by."""

    first: FeatureMap
    """That of the model before them."""
    maps: tuple[FeatureMap, ...]
    """That of each partition, in their order."""

    @property
    def last(self) -> FeatureMap:
        """That of the model after them."""
        return self.maps[-1] if self.maps else self.first


def plan_encodings(
    root: "zarr.Group",
    ledger: Ledger,
    record: ModelRecord | None,
    entries: Sequence[LedgerEntry],
    scaling_rows: int | None,
    policy: str,
    report: Reporter,
) -> Encodings:
    """Return how the partitions of a training are read, by a map that is frozen now if the model is yet to begin.

    With the policy `error`, a new model's map has every category of the ledger; else those of the partitions that fix
    the standardization, and `extend` adds the others where they appear. Raises InputError naming the first partition
    with a class that the map lacks, or, with `error`, a category; no row is read.
    """
    if record is None:
        first = freeze_feature_map(root, ledger, scaling_rows, whole_ledger=policy == ERROR)
        _tell_valueless(find_valueless(root, ledger, scaling_rows), report)
    else:
        first = encoding_of(record, ledger.schema)
    maps, unseen = [first], _Unseen()
    for entry in entries:
        facts = Segment.open(root, entry.segment).facts()
        _check(entry, facts, first, policy)
        unseen.add(maps[-1], facts)
        maps.append(maps[-1].extended(facts.categories) if policy == EXTEND else first)
    unseen.tell(policy, report)
    return Encodings(first, tuple(maps[1:]))


def encoding_of(record: ModelRecord, schema: Schema | None) -> FeatureMap:
    """Return the feature map of a model; where an older release made it, with what it says not of booleans."""
    return knowing_booleans(FeatureMap.from_dict(record.encoding), schema)


def _check(entry: LedgerEntry, facts: SegmentFacts, feature_map: FeatureMap, policy: str) -> None:
    try:
        if policy == ERROR:
            feature_map.check_categories(facts.categories)
        feature_map.check_classes(facts.present_classes)
    except InputError as error:
        raise InputError(f"partition {entry.name}: {error}") from error


def _tell_valueless(names: Sequence[str], report: Reporter) -> None:
    if names:
        report.warn(events.FEATURES_COLUMNS_WITHOUT_VALUES, columns=", ".join(names))


class _Unseen:
    """The categories that had no indicator, by column, with the weight of their rows."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, float]] = {}

    def add(self, feature_map: FeatureMap, facts: SegmentFacts) -> None:
        known = zip(feature_map.categorical, feature_map.unseen(facts.categories), strict=True)
        tables = zip(known, facts.categories, facts.category_counts, strict=True)
        for (name, unseen), values, counts in tables:
            weights = dict(zip(values, counts, strict=True))
            found = self._found.setdefault(name, {})
            for value in unseen:
                found[value] = found.get(value, 0.0) + weights[value]

    def tell(self, policy: str, report: Reporter) -> None:
        event = events.FEATURES_NEW_CATEGORIES_IGNORED
        if policy == EXTEND:
            event = events.FEATURES_NEW_CATEGORIES_ADDED
        for name, found in self._found.items():
            if found:
                report.say(
                    event,
                    column=name,
                    categories=len(found),
                    weight=sum(found.values()),
                    first=next(iter(found)),
                )
