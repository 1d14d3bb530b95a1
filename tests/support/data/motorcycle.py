"""A regression problem with one input like the motorcycle data (Silverman 1985): noisy, few degrees of freedom."""

import numpy as np
from support.references.isls import Data


def motorcycle(rows: int, seed: int) -> Data:
    """Return standardized rows: the response is flat, falls, rises and levels off; noise grows after the flat part."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.gamma(6.0, 4.2, rows))
    mean = -110 * np.exp(-(((t - 21) / 5) ** 2)) + 50 * np.exp(-(((t - 33) / 5) ** 2))
    y = mean + rng.standard_normal(rows) * np.where(t < 14, 3.0, 22.0)
    X = t[:, np.newaxis]
    return Data((X - X.mean()) / X.std(), ((y - y.mean()) / y.std())[:, np.newaxis], np.ones(rows))
