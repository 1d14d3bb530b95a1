"""Folds: each row of a store is assigned to one of several folds by its index and a seed alone.

Each run of n_folds consecutive rows assigns one row to each fold, in a pseudorandom order of its own. So folds have
equal sizes, no period in the data falls into a single fold, and a row's fold does not change when rows are appended.
"""

import numpy as np

from ridgestream.pipeline.base.array_checks import Integers

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def deal_folds(first: int, count: int, n_folds: int, seed: int) -> Integers:
    """Return the folds, 0 to n_folds − 1, of `count` rows from index `first` on, shape (count,)."""
    if n_folds == 1 or not count:
        return np.zeros(count, dtype=np.int64)
    runs = np.arange(first // n_folds, (first + count - 1) // n_folds + 1, dtype=np.uint64)
    positions = np.arange(n_folds, dtype=np.uint64)
    start = np.array([seed], dtype=np.uint64)
    keys = scramble(scramble(start)[:, np.newaxis] + runs[:, np.newaxis] * np.uint64(n_folds) + positions)
    orders = np.argsort(keys, axis=1, kind="stable").ravel()
    offset = first % n_folds
    return np.asarray(orders[offset : offset + count])


def scramble(
    numbers: np.ndarray[tuple[int, ...], np.dtype[np.uint64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    """Return the numbers mixed by the finalizer of SplitMix64 (Steele, Lea & Flood 2014)."""
    mixed = numbers + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
