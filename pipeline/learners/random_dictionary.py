"""A dictionary drawn at random: rows of positive weight, each as likely as any other, independent of each other."""

import numpy as np

from ridgestream.pipeline.errors import InputError
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.row_sets import RowSet
from ridgestream.pipeline.starting_dictionary import StartingDictionary

DRAWN = 4
"""Rows drawn at most, as a multiple of the rows wanted: some may weigh nothing or depend on others."""


def draw_rows(rows: RowSet, kernel: Kernel, n_basis: int, seed: int) -> StartingDictionary:
    """Return `n_basis` rows drawn without replacement, fewer where the rows drawn have no more; O(n_basis³).

    A row that depends on others, within rounding, is left out and the next one drawn in its place. The draw depends on
    the seed and the rows in their order alone. Raises InputError if no row can be drawn.
    """
    order = np.random.default_rng(seed).choice(rows.n_rows, min(rows.n_rows, DRAWN * n_basis), replace=False)
    found = StartingDictionary(np.empty((0, rows.n_features)), np.empty(0, dtype=np.int64))
    for wanted in np.split(order, range(n_basis, len(order), n_basis)):
        block = rows.take(wanted)
        present = slice(None) if block.weights is None else block.weights > 0
        features = np.concatenate([found.features, block.features[present]])
        places = np.concatenate([found.places, wanted[present]])
        if not len(places):
            continue
        found = StartingDictionary(features, places).independent(kernel)
        if len(found.places) >= n_basis:
            return StartingDictionary(found.features[:n_basis], found.places[:n_basis])
    if not len(found.places):
        raise InputError("no row could be drawn for the dictionary: all weigh nothing")
    return found
