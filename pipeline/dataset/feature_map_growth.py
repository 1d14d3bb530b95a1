"""The feature map of each partition of a training: the same for all, or one that grows from partition to partition.

With the policy `extend`, a category that the model has not seen gets an indicator at the beginning of the partition
where it first appears. A numeric column that has had one value only gets its scale from the first partition in which it
varies: by any scale, it is zero in all rows before. So training in several nights gives the same model as one run over
the same partitions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, cast

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.policies import ERROR, EXTEND
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.dataset.boolean_columns import with_boolean_fill
from ridgestream.pipeline.dataset.feature_map_fit import REST, fit_feature_map
from ridgestream.pipeline.dataset.scale_report import OpenScales, report_fitted
from ridgestream.pipeline.features.class_weights import ClassWeight
from ridgestream.pipeline.features.compression import Compression
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.catalog.models import Arrays, ModelRecord
from ridgestream.stores.requests.activity import ACTIVITY
from ridgestream.stores.schema.class_labels import class_name
from ridgestream.stores.schema.column_rules import OF_NEW_MODELS, ColumnRules
from ridgestream.stores.schema.schema import Schema
from ridgestream.stores.segments.segment_format import SegmentFacts
from ridgestream.stores.segments.segments import SegmentSource

_NAMED = 12
"""Classes that are named at most."""

METRIC = "metric"
"""The array of a model's record with its learned metric R."""


@dataclass(frozen=True)
class Encodings:
    """The feature map of each partition of a training."""

    known: FeatureMap
    """The model's feature map before them, as a killed training knows it, whatever arrives meanwhile."""
    first: FeatureMap
    """The same map, with the scales that these partitions have opened."""
    maps: tuple[FeatureMap, ...]
    """The feature map of each partition, in their order."""

    def measured_by(self, metric: Metric) -> Self:
        """Return the maps with a metric learned for the first one."""
        maps = [replace(self.first, metric=metric)]
        for extended in self.maps:
            maps.append(extended.measured_as(maps[-1]))
        return type(self)(replace(self.known, metric=metric), maps[0], tuple(maps[1:]))

    def compressed_by(self, compressions: Mapping[int, Compression]) -> Self:
        """Return the maps with numeric columns compressed, by their position among those whose value is a feature."""
        maps = [each.compressed_by(compressions) for each in (self.known, self.first, *self.maps)]
        return type(self)(maps[0], maps[1], tuple(maps[2:]))

    @property
    def last(self) -> FeatureMap:
        """The model's feature map after them."""
        return self.maps[-1] if self.maps else self.first


def plan_encodings(
    segments: SegmentSource,
    ledger: Ledger,
    *,
    record: ModelRecord | None,
    entries: Sequence[LedgerEntry],
    scaling_rows: int | None,
    policy: str,
    report: Reporter,
    rules: ColumnRules = OF_NEW_MODELS,
    opens_scales: bool = True,
    class_weight: ClassWeight | None = None,
) -> Encodings:
    """Return the feature map of each of these partitions, which a training learns; a new model's map is fitted here.

    With the policy `error`, a new model's map has every category of the ledger; else those of the partitions that
    standardize it, and `extend` adds the others where they first appear. Unless it `opens_scales`, since rows that are
    none of the store's are in the dictionary, a column that has had one value remains as it is. Raises InputError
    naming the first partition with a class that the map lacks or, with `error`, a category.
    """
    if record is None:
        whole_ledger = policy == ERROR
        first = fit_feature_map(
            segments, ledger, scaling_rows, rules, whole_ledger=whole_ledger, class_weight=class_weight
        )
        _report_class_weights(ledger.schema, first.target, report)
        report_fitted(segments, ledger, scaling_rows, first, report)
    else:
        first = encoding_of(record, ledger.schema)
    maps, scales, unseen = [first], OpenScales(first), _UnseenCategories()
    for entry in ACTIVITY.counted(entries, "the categories of partitions"):
        facts = segments[entry.segment].facts()
        _check(entry, facts, first, policy)
        if opens_scales:
            scales.add(entry, facts)
        unseen.add(maps[-1], facts)
        maps.append(maps[-1].extended(facts.categories) if policy == EXTEND else first)
    scales.report(report)
    unseen.report(policy, report)
    return Encodings(first, *_with_numeric(maps, scales.feature_map))


def _with_numeric(maps: Sequence[FeatureMap], opened: FeatureMap) -> tuple[FeatureMap, tuple[FeatureMap, ...]]:
    """Return the first map, and the others, with the numeric columns of `opened`; equal maps remain one object."""
    if opened.numeric == maps[0].numeric:
        return maps[0], tuple(maps[1:])
    one_of = {id(each): replace(each, numeric=opened.numeric) for each in maps}
    first, *others = (one_of[id(each)] for each in maps)
    return first, tuple(others)


def encoding_of(record: ModelRecord, schema: Schema | None) -> FeatureMap:
    """Return the feature map of a model, with booleans filled as such whichever version wrote it."""
    return with_boolean_fill(feature_map_of(record), schema)


def feature_map_of(record: ModelRecord) -> FeatureMap:
    """Return the feature map of a model as its record has it; raises InputError for a damaged one."""
    return FeatureMap.from_dict(record.encoding, cast("Floats | None", record.arrays.get(METRIC)))


def with_feature_map(record: ModelRecord, feature_map: FeatureMap) -> ModelRecord:
    """Return the record with this feature map."""
    metric: Arrays = {METRIC: feature_map.metric.root} if feature_map.metric else {}
    return replace(record, encoding=feature_map.as_dict(), arrays=record.arrays | metric)


def _check(entry: LedgerEntry, facts: SegmentFacts, feature_map: FeatureMap, policy: str) -> None:
    try:
        if policy == ERROR:
            feature_map.check_categories(facts.categories)
        feature_map.target.check_classes(facts.present_classes)
    except InputError as error:
        raise InputError(f"partition {entry.name}: {error}") from error


def _report_class_weights(schema: Schema | None, target: TargetMap, report: Reporter) -> None:
    if target.class_weights:
        positive = class_name(schema.positive or "") if schema else ""
        names = [*map(class_name, target.classes)] or [REST, positive]
        weights = zip(names[:_NAMED], target.class_weights, strict=False)
        report.say(events.FEATURES_CLASS_WEIGHTS, weights=", ".join(f"{name} {w:.4g}" for name, w in weights))


class _UnseenCategories:
    """The categories that had no indicator, by column, with the weight of their rows."""

    def __init__(self) -> None:
        self._weights: dict[str, dict[str, float]] = {}

    def add(self, feature_map: FeatureMap, facts: SegmentFacts) -> None:
        """Add the categories of a partition for which its feature map has no indicator."""
        tables = zip(feature_map.categorical, facts.categories, facts.category_counts, strict=True)
        for column, categories, counts in tables:
            weights = dict(zip(categories, counts, strict=True))
            unseen = self._weights.setdefault(column.name, {})
            for category in column.unseen(categories):
                unseen[category] = unseen.get(category, 0.0) + weights[category]

    def report(self, policy: str, report: Reporter) -> None:
        """Report each column's unseen categories."""
        event = events.FEATURES_NEW_CATEGORIES_IGNORED
        if policy == EXTEND:
            event = events.FEATURES_NEW_CATEGORIES_ADDED
        for column, weights in self._weights.items():
            if weights:
                report.say(
                    event,
                    column=column,
                    categories=len(weights),
                    weight=sum(weights.values()),
                    first=next(iter(weights)),
                )
