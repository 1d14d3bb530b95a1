"""Starts: dictionaries that are there before any target was looked at, to be fitted as they are or to go on from."""

from dataclasses import dataclass

from ridgestream.pipeline.arrays import Floats, Integers


@dataclass(frozen=True)
class Start:
    """Basis vectors to begin with."""

    vectors: Floats
    """Standardized, shape (n_basis, n_features)."""
    places: Integers
    """Where each is among the rows, −1 for one that is no row, shape (n_basis,)."""
