"""A regression set of one input like the motorcycle data (Silverman 1985): noisy, and of few degrees of freedom."""

import numpy as np
from support.references.isls import Data


def motorcycle(rows: int, seed: int) -> Data:
    """Standardized rows; the response is flat, falls, rises and rings out, and is noisier where it moves."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.gamma(6.0, 4.2, rows))
    mean = -110 * np.exp(-(((t - 21) / 5) ** 2)) + 50 * np.exp(-(((t - 33) / 5) ** 2))
    y = mean + rng.standard_normal(rows) * np.where(t < 14, 3.0, 22.0)
    X = t[:, np.newaxis]
    return Data((X - X.mean()) / X.std(), ((y - y.mean()) / y.std())[:, np.newaxis], np.ones(rows))
