"""Freezing the feature map of a new model: the first rows of the store decide how every later row is read."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.sums.moments import Moments, merge_moments
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.schema.class_labels import MOST_CLASSES, Label
from ridgestream.stores.schema.column_types import BOOLEAN
from ridgestream.stores.segments.segments import Segment, SegmentFacts

if TYPE_CHECKING:
    import zarr


def freeze_feature_map(
    root: "zarr.Group", ledger: Ledger, scaling_rows: int | None, *, whole_ledger: bool = True
) -> FeatureMap:
    """Standardize by the first partitions that make up `scaling_rows` rows, or by all that are there if it is None.

    A row of weight zero is absent here, too. Every category of the ledger gets an indicator, or, unless `whole_ledger`,
    every one of these partitions; every class gets an output. Raises InputError if there is no row.
    """
    if ledger.schema is None or ledger.rows == 0:
        raise InputError("there is no row to standardize by: ingest a partition that has rows first")
    schema = ledger.schema
    facts = find_scaling(root, [entry.segment for entry in ledger.entries], scaling_rows).values()
    n_numeric = len(schema.numeric)
    moments = merge_moments([Moments.from_array(f.moments) for f in facts], n_numeric + len(schema.targets))
    weights: list[dict[str, float]] = [{} for _ in schema.categorical]
    for fact in facts:
        for sums, values, counts in zip(weights, fact.categories, fact.category_counts, strict=True):
            for value, count in zip(values, counts, strict=True):
                sums[value] = sums.get(value, 0.0) + count
    array = moments.as_array()
    return FeatureMap.freeze(
        [f.name for f in schema.numeric],
        [f.name for f in schema.categorical],
        Moments.from_array(array[:, :n_numeric]),
        None if schema.classifies else Moments.from_array(array[:, n_numeric:]),
        weights,
        ledger.categories if whole_ledger else [tuple(sums) for sums in weights],
        _classes(ledger),
        [f.name for f in schema.numeric if f.kind == BOOLEAN],
    )


def find_valueless(root: "zarr.Group", ledger: Ledger, scaling_rows: int | None) -> tuple[str, ...]:
    """Return the features of which the rows to standardize by have no value."""
    schema = ledger.schema
    if schema is None:
        return ()
    facts = find_scaling(root, [entry.segment for entry in ledger.entries], scaling_rows).values()
    counts = sum((f.moments[0, : len(schema.numeric)] for f in facts), np.zeros(len(schema.numeric)))
    absent = [f.name for f, count in zip(schema.numeric, counts, strict=True) if count == 0]
    named = [any(sum(f.category_counts[i]) > 0 for f in facts) for i in range(len(schema.categorical))]
    return (*absent, *(f.name for f, has_value in zip(schema.categorical, named, strict=True) if not has_value))


def _classes(ledger: Ledger) -> tuple[Label, ...]:
    """Return the classes that the job lists, or all of the ledger, sorted."""
    listed = ledger.schema.classes if ledger.schema else None
    if listed is None or isinstance(listed, tuple):
        return listed or ()
    if len(ledger.classes) > MOST_CLASSES:
        raise InputError(
            f"the partitions have {len(ledger.classes)} different classes, more than {MOST_CLASSES}; to regress on a "
            "quantity, make a store without source.classes"
        )
    return tuple(sorted(ledger.classes))


def has_rows(root: "zarr.Group", ledger: Ledger) -> bool:
    """Tell whether there is a row of positive weight to begin a model with."""
    return any(_weight(Segment.open(root, entry.segment).facts()) > 0 for entry in ledger.entries if entry.rows)


def find_scaling(root: "zarr.Group", segments: Iterable[int], scaling_rows: int | None) -> dict[int, SegmentFacts]:
    """Return the first of the segments that make up `scaling_rows` rows, or all if it is None, with their facts.

    A row counts as one, whatever its weight, and one of weight zero not at all.
    """
    facts: dict[int, SegmentFacts] = {}
    rows = 0
    for number in segments:
        segment = Segment.open(root, number)
        facts[number] = segment.facts()
        if scaling_rows is not None:
            rows += segment.rows_that_count()
            if rows >= scaling_rows:
                break
    return facts


def _weight(facts: SegmentFacts) -> float:
    """Return the sum of the segment's weights; the moments end with those of the target, which every row has."""
    return float(facts.moments[0, -1])
