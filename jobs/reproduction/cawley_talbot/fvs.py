"""Conventional feature vector selection (Baudat & Anouar 2001), for the papers' figures alone: rows in memory."""

from collections.abc import Iterator, Sequence

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.kernels import Kernel, gram


def conventional_fvs(kernel: Kernel, X: Floats, threshold: float = 1e-8) -> Iterator[int]:
    """Yield the rows of X, (rows, n_features), that are chosen: O(rows² · n_basis + rows · n_basis³) a step.

    Each step inverts K_SS again for every row, and adds the one of largest J. Rows that are spanned are no candidates.
    """
    K = gram(kernel, X)
    diagonal, chosen = np.diagonal(K), list[int]()
    while True:
        shares = np.full(len(K), -np.inf)
        for candidate in range(len(K)):
            trial = [*chosen, candidate]
            if candidate in chosen or _spanned(K, chosen, candidate, threshold):
                continue
            explained = np.sum(K[trial] * (np.linalg.inv(K[np.ix_(trial, trial)]) @ K[trial]), axis=0)
            shares[candidate] = float(np.mean(explained / diagonal))
        if not np.isfinite(shares).any():
            return
        chosen.append(int(np.argmax(shares)))
        yield chosen[-1]


def _spanned(K: Floats, chosen: Sequence[int], candidate: int, threshold: float) -> bool:
    if not chosen:
        return False
    k = K[chosen, candidate]
    outside = K[candidate, candidate] - k @ np.linalg.solve(K[np.ix_(chosen, chosen)], k)
    return bool(outside <= threshold * K[candidate, candidate])
