"""The numbers of cells that the pilot of a model with experts = "auto" compared, as an array of the model's record."""

from math import isfinite
from typing import Any

import numpy as np

from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.errors.exceptions import ModelError

TRIALS = "cell_trials"
"""The name of the array, whose rows have the values of TRIAL; it stays when others are replaced."""

TRIAL = ("cells", "rows_a_cell", "gamma", "penalty", "mse_left_out", "mse_later")
"""What is known of each number: rows that a cell learned in the mean, the best γ and λn, and the errors with them in
standardized units. γ is NaN for a kernel without, errors infinite where the learner broke down: None in the facts.
"""


def trials_of(record: ModelRecord) -> list[dict[str, Any]]:
    """Return what the pilot compared, by ascending number of cells; nothing where the number was given."""
    array = record.arrays.get(TRIALS, np.empty((0, len(TRIAL))))
    if array.ndim != 2 or array.shape[1] != len(TRIAL) or array.dtype != np.float64:
        raise ModelError(f"the record of the model {record.name!r} is damaged: {TRIALS} has the shape {array.shape}")
    return [
        {name: value if isfinite(value) else None for name, value in zip(TRIAL, row, strict=True)}
        | {"cells": int(row[0])}
        for row in array.tolist()
    ]
