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


def bits_of(file: Path, number: int, seed: int) -> list[int]:
    """Return so many of the bits of a file, drawn from a seed."""
    n_bits = 8 * file.stat().st_size
    return [int(bit) for bit in np.random.default_rng(seed).permutation(n_bits)[:number]]


@pytest.mark.thorough
@pytest.mark.parametrize("folder", ["snapshots", "manifests", "transactions"])
def test_a_flipped_bit_is_refused_or_changes_nothing(store: Path, folder: str) -> None:
    file = newest(store / folder)
    assert silent_flips(store, file, bits_of(file, SAMPLE, seed=0)) == []


def test_a_flipped_bit_of_the_branch_is_refused_or_changes_nothing(store: Path) -> None:
    file = store / "refs" / "branch.main" / "ref.json"
    assert silent_flips(store, file, bits_of(file, SAMPLE, seed=0)) == []


@pytest.mark.slow
def test_more_flipped_bits_are_refused_or_change_nothing(store: Path) -> None:
    file = newest(store / "snapshots")
    assert silent_flips(store, file, bits_of(file, 6 * SAMPLE, seed=1)) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("folder", ["snapshots", "manifests", "transactions"])
def test_every_flipped_bit_is_refused_or_changes_nothing(store: Path, folder: str) -> None:
    file = newest(store / folder)
    assert silent_flips(store, file, range(8 * file.stat().st_size)) == []
