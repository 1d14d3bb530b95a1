"""Freezing the feature map of a new model: the first rows of the store decide how every later row is read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ridgestream.pipeline.errors import InputError
from ridgestream.pipeline.features import FeatureMap
from ridgestream.pipeline.moments import Moments, merge_moments
from ridgestream.stores.ledger import Ledger
from ridgestream.stores.segments import Segment

if TYPE_CHECKING:
    import zarr


def freeze_feature_map(root: "zarr.Group", ledger: Ledger, scaling_rows: int | None) -> FeatureMap:
    """Standardize by the first partitions that make up `scaling_rows` rows, or by all that are there if it is None.

    Every category of the ledger gets an indicator. Raises InputError if there is no row.
    """
    if ledger.schema is None or ledger.rows == 0:
        raise InputError("there is no row to standardize by: ingest a partition that has rows first")
    schema = ledger.schema
    facts = [Segment.open(root, order).facts() for order in _first_orders(ledger, scaling_rows)]
    n_numeric = len(schema.numeric)
    moments = merge_moments([Moments.from_array(f.moments) for f in facts], n_numeric + 1)
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
        Moments.from_array(array[:, n_numeric:]) if schema.positive is None else None,
        weights,
        ledger.categories,
    )


def _first_orders(ledger: Ledger, scaling_rows: int | None) -> Sequence[int]:
    orders, rows = [], 0
    for entry in ledger.entries:
        orders.append(entry.order)
        rows += entry.rows
        if scaling_rows is not None and rows >= scaling_rows:
            break
    return orders
