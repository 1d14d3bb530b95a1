"""Fits the feature map of a new model to the first rows of the store, which standardize every later row, too."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.dataset.numeric_fit import HoursReader, fit_numeric
from ridgestream.pipeline.features.class_weights import ClassWeight, weigh_classes
from ridgestream.pipeline.features.columns import CategoricalColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.sums.moments import Moments, merge_moments
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.requests.activity import ACTIVITY
from ridgestream.stores.schema.class_labels import MAX_CLASSES, Label, class_name
from ridgestream.stores.schema.column_rules import OF_NEW_MODELS, PLAIN, ColumnRules
from ridgestream.stores.schema.schema import Schema
from ridgestream.stores.segments.segment_format import SegmentFacts
from ridgestream.stores.segments.segments import SegmentSource

REST = "rest"
"""The name of all classes but the positive one."""


def fit_feature_map(
    segments: SegmentSource,
    ledger: Ledger,
    scaling_rows: int | None,
    rules: ColumnRules = OF_NEW_MODELS,
    *,
    whole_ledger: bool = True,
    class_weight: ClassWeight | None = None,
) -> FeatureMap:
    """Standardize by the first partitions that make up `scaling_rows` rows, or by all partitions if it is None.

    Rows of weight zero do not count, nor do missing values in their column. A column without two different values has
    scale 1, which is open: see `NumericColumn.opened`. Every category of the ledger gets an indicator, or, unless
    `whole_ledger`, every category of these partitions; every class gets an output. `class_weight` weighs classes, by
    these partitions if it is balanced. No row is read, but where time stamps become circles. Raises InputError if
    there is no row, or a rule for a column that is no feature.
    """
    schema, rules = ledger.schema, rules.within(OF_NEW_MODELS)
    if schema is None or ledger.rows == 0:
        raise InputError("there is no row to standardize by: ingest a partition that has rows first")
    if error := rules.find_error(schema.features):
        raise InputError(error)
    scaling = find_scaling(segments, [entry.segment for entry in ledger.entries], scaling_rows)
    facts, n_numeric = list(scaling.values()), len(schema.numeric)
    moments = merge_moments([Moments.from_array(f.moments) for f in facts], n_numeric + len(schema.targets)).as_array()
    target_moments = Moments.from_array(moments[:, n_numeric:])
    target = _target_map(ledger, schema, target_moments)
    if class_weight is not None:
        weights = weigh_classes(class_weight, _class_rows(schema, target, facts, target_moments))
        target = replace(target, class_weights=weights)
    return FeatureMap(
        fit_numeric(schema, rules, Moments.from_array(moments[:, :n_numeric]), HoursReader(segments, scaling)),
        _categorical_columns(schema, rules, facts, ledger.categories if whole_ledger else None),
        target,
    )


def _class_rows(schema: Schema, target: TargetMap, facts: Sequence[SegmentFacts], moments: Moments) -> dict[str, float]:
    """Return the weight of the rows of each class by name; of ±1 targets those of REST and of the positive class."""
    if not target.classes:
        weight, mean = float(moments.count[0]), float(moments.mean[0])
        return {REST: weight * (1 - mean) / 2, class_name(schema.positive or ""): weight * (1 + mean) / 2}
    rows = dict.fromkeys(map(class_name, target.classes), 0.0)
    for fact in facts:
        for label, weight in zip(fact.classes, fact.class_counts, strict=True):
            if class_name(label) in rows:
                rows[class_name(label)] += weight
    return rows


def _categorical_columns(
    schema: Schema, rules: ColumnRules, facts: Sequence[SegmentFacts], tables: Sequence[Sequence[str]] | None
) -> tuple[CategoricalColumn, ...]:
    """Return the columns with the categories of `tables`, or those of the fitting rows if it is None."""
    columns = []
    for position, feature in enumerate(schema.categorical):
        weights = sum_categories(facts, position)
        categories = tuple(weights) if tables is None else tables[position]
        fit = CategoricalColumn.plain if rules.rule_of(feature) == PLAIN else CategoricalColumn.fit
        columns.append(fit(feature.name, categories, weights))
    return tuple(columns)


def sum_categories(facts: Sequence[SegmentFacts], position: int) -> dict[str, float]:
    """Return the weight of the rows of each category of a column, over all segments."""
    weights: dict[str, float] = {}
    for fact in facts:
        for category, weight in zip(fact.categories[position], fact.category_counts[position], strict=True):
            weights[category] = weights.get(category, 0.0) + weight
    return weights


def _target_map(ledger: Ledger, schema: Schema, moments: Moments) -> TargetMap:
    return TargetMap.of_classes(_classes(ledger)) if schema.classifies else TargetMap.fit(moments)


def _classes(ledger: Ledger) -> tuple[Label, ...]:
    """Return the classes that the job lists, or all of the ledger, sorted; none for ±1 targets."""
    listed = ledger.schema.classes if ledger.schema else None
    if listed is None or isinstance(listed, tuple):
        return listed or ()
    if len(ledger.classes) > MAX_CLASSES:
        raise InputError(
            f"the partitions have {len(ledger.classes)} different classes, more than {MAX_CLASSES}; to regress on a "
            "quantity, make a store without source.classes"
        )
    return tuple(sorted(ledger.classes))


def has_rows(segments: SegmentSource, ledger: Ledger) -> bool:
    """Return whether there is a row of positive weight, which a first training needs."""
    return any(_weight(segments[entry.segment].facts()) > 0 for entry in ledger.entries if entry.rows)


def find_scaling(
    segments: SegmentSource, numbers: Collection[int], scaling_rows: int | None
) -> dict[int, SegmentFacts]:
    """Return the facts of the first segments that make up `scaling_rows` rows, or of all if it is None, by segment.

    A row counts as one, whatever its weight, unless that is zero.
    """
    facts: dict[int, SegmentFacts] = {}
    rows = 0
    for number in ACTIVITY.counted(numbers, "the partitions that fix the standardization"):
        segment = segments[number]
        facts[number] = segment.facts()
        if scaling_rows is not None:
            rows += segment.count_weighted_rows()
            if rows >= scaling_rows:
                break
    return facts


def _weight(facts: SegmentFacts) -> float:
    """Return the sum of the segment's weights, from the moments of its last target, which every row has."""
    return float(facts.moments[0, -1])
