"""Blocks of rows prepared for summing."""

from dataclasses import dataclass

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers


@dataclass(frozen=True)
class RowBlock:
    """Rows to be summed."""

    features: Floats
    """Standardized, shape (rows, n_features)."""
    targets: Floats
    """Shape (rows, n_targets)."""
    weights: Floats | None
    """Shape (rows,); None if all weights are 1."""
    first: int = 0
    """The index of the first row in its row set; the others follow consecutively."""


def drop_absent(block: RowBlock) -> RowBlock:
    """Return the block without its rows of weight zero."""
    if block.weights is None or block.weights.all():
        return block
    return choose_rows(block, np.flatnonzero(block.weights))


def choose_rows(block: RowBlock, rows: Integers) -> RowBlock:
    """Return these rows of the block, by their positions in it."""
    weights = None if block.weights is None else block.weights[rows]
    return RowBlock(block.features[rows], block.targets[rows], weights, block.first)
