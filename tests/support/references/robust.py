"""Suykens' weights straight from the paper: quartiles of sorted residuals, row by row."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def robust_scale(residuals: Array) -> float:
    """IQR/(2·0.6745)."""
    lower, upper = np.quantile(residuals, [0.25, 0.75])
    return float(upper - lower) / (2 * 0.6745)


def robust_weight(residual: float, scale: float) -> float:
    distance = abs(residual / scale)
    if distance <= 2.5:
        return 1.0
    return (3.0 - distance) / (3.0 - 2.5) if distance <= 3.0 else 1e-4
