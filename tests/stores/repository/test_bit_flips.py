"""A flipped bit in a file of a store is refused, or changes nothing that is read from it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.jobs.jobs import Workplace, draw_rows, set_column
from support.stores.bit_flips import newest, silent_flips

SAMPLE = 150
"""Bits that the ordinary test flips in each file."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three classes, categories, missing values and weights in a few rows, and a model of them."""
    work = Workplace(tmp_path_factory.mktemp("flips"))
    for number in range(2):
        rows = draw_rows(number, 30)
        rows = set_column(rows, "colour", pa.array(["red", "green", None] * 10))
        rows = set_column(rows, "x3", pa.array([None, 1.5, -2.25] * 10))
        work.put(number, set_column(rows, "weight", pa.array(np.arange(30) / 4)))
    work.run_here(
        {
            "source.positive": None,
            "source.classes": "all",
            "source.weight": "weight",
            "source.missing": "impute",
            "model.max_basis": 3,
            "model.scaling_rows": 30,
            "evaluate.path": None,
        }
    )
    return work.store


def bits_of(file: Path, number: int | None) -> list[int]:
    n_bits = 8 * file.stat().st_size
    every = range(n_bits)
    return list(every) if number is None else sorted(np.random.default_rng(0).choice(n_bits, number, replace=False))


@pytest.mark.parametrize("folder", ["snapshots", "manifests"])
def test_a_flipped_bit_is_refused_or_changes_nothing(store: Path, folder: str) -> None:
    file = newest(store / folder)
    assert silent_flips(store, file, bits_of(file, SAMPLE)) == []
