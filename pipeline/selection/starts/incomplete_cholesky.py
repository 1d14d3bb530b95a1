"""Incomplete Cholesky dictionaries: rows that are farthest from the span of those before, without targets.

Paper: Fine & Scheinberg (2001), "Efficient SVM training using low-rank kernel representations": a Cholesky
factorization of the kernel matrix with symmetric pivoting, where the pivot is the largest diagonal entry left, ends
early. The rows of the pivots are the dictionary.

Departures: the pivots are among random rows, some per vector, so that no pass is needed; weights do not matter, but a
row of weight zero is absent.
"""

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.selection.candidate_rounds import draw_round, take_present
from ridgestream.pipeline.selection.independence import SPAN_TOLERANCE
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.sums.row_set import RowSet

CONSIDERED = 20
"""Rows among which the pivots are, per vector."""


def pivoted_rows(rows: RowSet, kernel: Kernel, n_basis: int, seed: int) -> StartingDictionary:
    """Return the rows of the first `n_basis` pivots; O(n_basis²) a row considered, of which there are 20·n_basis.

    There are fewer if all others are in the span of those. Raises InputError without a row of positive weight.
    """
    drawn = take_present(rows, draw_round(seed, 0, rows.n_rows, CONSIDERED * n_basis))
    pivots = find_pivots(kernel, drawn.features, n_basis)
    if not len(pivots):
        raise InputError(f"no row of {rows.n_rows} could be a pivot: give rows of positive weight, or another kernel")
    return StartingDictionary(drawn.features[pivots], drawn.places[pivots])


def find_pivots(kernel: Kernel, vectors: Floats, most: int) -> Integers:
    """Return the positions of at most `most` pivots among the vectors (n, n_features), in their order; O(n·most²)."""
    diagonal = kernel.diagonal(vectors)
    left, columns = diagonal.copy(), np.empty((most, len(vectors)))
    pivots: list[int] = []
    with one_blas_thread():
        while len(pivots) < min(most, len(vectors)):
            best, done = int(np.argmax(left)), columns[: len(pivots)]
            if not left[best] > SPAN_TOLERANCE * diagonal[best]:
                break
            column = kernel.block(vectors, vectors[best : best + 1])[:, 0] - done[:, best] @ done
            columns[len(pivots)] = column / np.sqrt(left[best])
            left = np.maximum(left - columns[len(pivots)] ** 2, 0.0)
            left[best] = 0.0
            pivots.append(best)
    return np.array(pivots, dtype=np.int64)
