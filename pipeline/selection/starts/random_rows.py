"""Random dictionaries: rows drawn without regard to their targets, the baseline of every selection.

A row that is linearly dependent on those drawn before would make K singular, and is replaced by another one.
"""

import numpy as np

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.selection.candidate_rounds import take_present
from ridgestream.pipeline.selection.independence import find_independent
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.sums.row_set import RowSet

DRAWN = 4
"""The largest number of rows drawn, as a multiple of n_basis: some may have weight zero or depend on others."""

ROUNDS = 8
"""The largest number of times that rows are read; after that, the data are taken to have no more independent rows."""


def draw_rows(rows: RowSet, kernel: Kernel, n_basis: int, seed: int) -> StartingDictionary:
    """Return `n_basis` rows of positive weight, drawn uniformly without replacement; O(n_basis³).

    There are fewer if the data have no more independent rows. The draw depends only on the seed and on the rows in
    their order. Raises InputError if n_basis is below one or no row can be drawn.
    """
    if n_basis < 1:
        raise InputError(f"n_basis must be at least 1, it is {n_basis}")
    order = np.random.default_rng(seed).choice(rows.n_rows, min(rows.n_rows, DRAWN * n_basis), replace=False)
    centre = np.zeros(rows.n_features)
    dictionary = StartingDictionary(np.empty((0, rows.n_features)), np.empty(0, dtype=np.int64))
    for _ in range(ROUNDS):
        missing = n_basis - len(dictionary.places)
        wanted, order = np.split(order, [min(n_basis, max(2 * missing, 16))])
        if not missing or not len(wanted):
            break
        drawn = take_present(rows, wanted)
        vectors = np.concatenate([dictionary.vectors, drawn.features])
        independent = find_independent(kernel, vectors, centre)[:n_basis]
        dictionary = StartingDictionary(
            vectors[independent], np.concatenate([dictionary.places, drawn.places])[independent]
        )
    if not len(dictionary.places):
        raise InputError(
            f"no row of {rows.n_rows} could be drawn for the dictionary: all that were drawn weigh nothing, or the "
            "kernel calls them nothing; give rows of positive weight, or another kernel"
        )
    return dictionary
