"""Given dictionaries: rows of a Parquet file, or rows of the store drawn at random, as features of a new model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.arrays import Floats, Integers
from ridgestream.pipeline.errors import InputError
from ridgestream.pipeline.features import FeatureMap
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.learners.given_dictionary import find_independent
from ridgestream.pipeline.stream import stream_blocks
from ridgestream.stores.decoding import Decoder
from ridgestream.stores.ledger import LedgerEntry
from ridgestream.stores.partitions import list_partitions, read_arrow_schema, read_batches
from ridgestream.stores.schema import Schema

if TYPE_CHECKING:
    import zarr

DRAWN = 4
"""Rows drawn at most, as a multiple of the rows wanted: some may weigh nothing or depend on others."""

PASSES = 8
"""Passes over the store at most; what is still missing then is taken to be missing from the data."""


@dataclass(frozen=True)
class Dictionary:
    """Rows that are to be basis vectors."""

    features: Floats
    """Standardized, shape (n_basis, n_features)."""
    rows: Integers
    """Their row numbers in the stream, −1 for those that are not of it, shape (n_basis,)."""


def read_dictionary(path: Path, schema: Schema, feature_map: FeatureMap) -> Dictionary:
    """Return the rows of one Parquet file, or of a folder of them, with the feature columns of the store.

    Raises PartitionError for a file that cannot be used, InputError for a category that the model does not know.
    """
    parts = []
    for file in list_partitions(path):
        decoder = Decoder(schema, str(file.path), with_target=False)
        decoder.check(read_arrow_schema(file))
        for batch in read_batches(file, schema.columns(with_target=False)):
            rows = decoder.decode(batch)
            maps = _code_maps(feature_map, decoder)
            parts.append(feature_map.features(rows.numeric, rows.codes, maps))
    features = np.concatenate([np.empty((0, feature_map.n_features)), *parts])
    if not len(features):
        raise InputError(f"the dictionary {path} has no row")
    return Dictionary(features, np.full(len(features), -1))


def draw_dictionary(
    root: "zarr.Group",
    entries: Sequence[LedgerEntry],
    feature_map: FeatureMap,
    kernel: Kernel,
    n_basis: int,
    seed: int,
) -> Dictionary:
    """Draw `n_basis` rows of positive weight, each as likely as any other, without replacement.

    A row that depends on others drawn is left out and another drawn for it; where the data have no more, there are
    fewer. The draw depends on the seed and on the rows in their order alone. Raises InputError if no row can be drawn.
    """
    total, centre = sum(entry.rows for entry in entries), np.zeros(feature_map.n_features)
    order = np.random.default_rng(seed).choice(total, min(total, DRAWN * n_basis), replace=False)
    found = Dictionary(np.empty((0, feature_map.n_features)), np.empty(0, dtype=np.int64))
    for _ in range(PASSES):
        missing = n_basis - len(found.rows)
        wanted, order = np.split(order, [min(n_basis, max(2 * missing, 16))])
        if not missing or not len(wanted):
            break
        drawn = _rows_at(root, entries, feature_map, wanted)
        features = np.concatenate([found.features, drawn.features])
        kept = find_independent(kernel, features, centre)[:n_basis]
        found = Dictionary(features[kept], np.concatenate([found.rows, drawn.rows])[kept])
    if not len(found.rows):
        raise InputError(
            "no row could be drawn for the dictionary: all weigh nothing, or the kernel calls them nothing"
        )
    return found


def _rows_at(
    root: "zarr.Group", entries: Sequence[LedgerEntry], feature_map: FeatureMap, wanted: npt.NDArray[np.int64]
) -> Dictionary:
    """Return those of the wanted rows that have a positive weight, in the order in which they are wanted."""
    ends = np.cumsum([entry.rows for entry in entries])
    starts = {entry.order: int(end) - entry.rows for entry, end in zip(entries, ends, strict=True)}
    ascending = np.sort(wanted)
    hit = [e.order for e in entries if np.diff(np.searchsorted(ascending, [starts[e.order], starts[e.order] + e.rows]))]
    features, numbers = [np.empty((0, feature_map.n_features))], [np.empty(0, dtype=np.int64)]
    for block in stream_blocks(root, hit, feature_map):
        first = starts[block.where.order] + block.where.start
        low, high = np.searchsorted(ascending, [first, first + len(block.features)])
        chosen = ascending[low:high] - first
        if block.weights is not None:
            chosen = chosen[block.weights[chosen] > 0]
        features.append(block.features[chosen])
        numbers.append(chosen + first)
    places = {int(number): place for place, number in enumerate(np.concatenate(numbers))}
    kept = [int(number) for number in wanted if int(number) in places]
    return Dictionary(np.concatenate(features)[[places[n] for n in kept]], np.array(kept, dtype=np.int64))


def _code_maps(feature_map: FeatureMap, decoder: Decoder) -> list[npt.NDArray[np.int64]]:
    try:
        return feature_map.code_maps([list(table) for table in decoder.categories])
    except InputError as error:
        raise InputError(f"the dictionary {decoder.place}: {error}") from error
