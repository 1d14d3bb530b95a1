"""A strip of rows against one dictionary: kernel values formed at once, then run through block by block, compiled."""

import math

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.online.compiled.buffers import Carried, Rows, Tracking
from ridgestream.pipeline.online.compiled.lapack import make_lapack
from ridgestream.pipeline.online.compiled.update import Candidate, Dictionary, run_rows
from ridgestream.pipeline.online.information_form import Information
from ridgestream.pipeline.online.inverses import Inverses
from ridgestream.pipeline.online.selection_rule import SelectionRule
from ridgestream.pipeline.selection.independence import SPAN_TOLERANCE

BLUR_LIMIT = 1e-6
"""The share of the novelty threshold that rounding may reach before K⁻¹k is refined for every row."""

TRACKED_SHARE = 12
"""In a screened strip one basis vector in so many, the weakest, has its entry of K⁻¹k computed for every row."""


_NO_CAP = 2**62

_EPS = float(np.finfo(np.float64).eps)


class Workspace:
    """Room for one strip at a time: memory asked for anew each time would be cleared by the kernel, page by page."""

    def __init__(self) -> None:
        self._buffers: dict[str, Floats] = {}
        self.lapack = make_lapack()

    def __reduce__(self) -> tuple[type["Workspace"], tuple[()]]:
        """Begin empty in a copy and in another process, where the routines lie elsewhere."""
        return Workspace, ()

    def array(self, name: str, *shape: int) -> Floats:
        """Return room of this shape, its values whatever they were; it is the room given before under this name."""
        size = math.prod(shape)
        if name not in self._buffers or len(self._buffers[name]) < size:
            self._buffers[name] = np.empty(2 * size)
        return self._buffers[name][:size].reshape(shape)


class Strip:
    """Weighted rows against one dictionary: Kb = k(X, D) formed at once, and room for `block_rows` of them at a time.

    Where `screened`, K⁻¹k is computed only where a bound does not rule a swap out, else for all rows. The next strip in
    the same `room` overwrites this one.
    """

    def __init__(
        self,
        kernel: Kernel,
        centre: Floats | None,
        information: Information,
        inverses: Inverses,
        X: Floats,
        numbers: Integers,
        targets: Floats,
        weights: Floats,
        novelty_threshold: float,
        block_rows: int,
        room: Workspace,
        *,
        screened: bool,
    ) -> None:
        self.kernel, self.information, self.inverses, self.room = kernel, information, inverses, room
        (n_rows, n_targets), n_basis = targets.shape, information.capacity
        inverses.reserve(n_basis)
        kernel_rows = room.array("kernel", n_rows, n_basis)
        kernel.block(X, information.basis_vectors, centre, out=kernel_rows[:, : information.n_basis])
        kernel_rows[:, information.n_basis :] = 0.0
        self_kernel = kernel.diagonal(X)
        spans = np.maximum(novelty_threshold, SPAN_TOLERANCE * self_kernel)
        self.blurred = _plan_blur(self_kernel, spans)
        self.careful = bool(inverses.gram_diagonal[: information.n_basis].sum() > self.blurred)
        self.tracking = _track(inverses, information, screened=screened and not self.careful)
        roots, scaled = np.sqrt(weights), kernel_rows
        if not (weights == 1.0).all():
            scaled = np.multiply(kernel_rows, roots[:, np.newaxis], out=room.array("scaled", n_rows, n_basis))
        block_rows = min(block_rows, n_rows)
        self.rows = Rows(
            X=X,
            numbers=numbers,
            weights=weights,
            roots=roots,
            targets=targets * roots[:, np.newaxis],
            self_kernel=self_kernel,
            spans=spans,
            kernel=kernel_rows,
            scaled=scaled,
            swept=room.array("swept", block_rows, n_basis),
            steps=np.empty((block_rows, n_targets)),
            pivots=np.empty(block_rows),
            innovations=np.empty_like(targets),
            A=room.array("A", block_rows, len(self.tracking.tracked)),
            factor=room.array("factor", block_rows, block_rows),
        )
        a, w_b, normal = np.empty((3, n_basis))
        self.candidate = Candidate(a, w_b, normal, np.empty(n_targets), np.empty(n_targets), np.empty(3))

    def run(
        self, rule: SelectionRule, usefulness_threshold: float, max_basis: int | None, *, fresh: bool, counts: Integers
    ) -> tuple[int, int, int]:
        """Learn until the strip's end, or where room or a refresh is wanted: (what, rows learned, swaps made)."""
        information, inverses = self.information, self.inverses
        cap = _NO_CAP if max_basis is None else max_basis
        what, stop, n_basis, swaps = run_rows(
            self.room.lapack,
            self.rows,
            Dictionary(
                information.vectors,
                information.numbers,
                information.gram_room.T,
                information.normal_room.T,
                information.rhs_room,
            ),
            Carried(inverses.gram.T, inverses.normal.T, inverses.beta, inverses.diagonal, inverses.gram_diagonal),
            self.tracking,
            self.candidate,
            self.kernel.kind,
            np.array([*self.kernel.parameters().values(), 0.0, 0.0, 0.0]),
            float(information.penalty),
            float(rule.least_usefulness(usefulness_threshold)),
            information.n_basis,
            cap,
            _NO_CAP if rule.replaces else cap,
            self.careful,
            self.blurred,
            fresh,
            counts,
        )
        information.n_basis = inverses.n_basis = n_basis
        return what, stop, swaps


def _plan_blur(self_kernel: Floats, spans: Floats) -> float:
    """Return the trace of K⁻¹ above which rounding could blur the novelties that matter.

    Then K⁻¹k is refined for every row, and every change of the dictionary is followed by a refresh.
    """
    largest = float(self_kernel.max())
    return float(BLUR_LIMIT * spans.min()) / largest / largest / _EPS


def _track(inverses: Inverses, information: Information, *, screened: bool) -> Tracking:
    """Choose whose entries of K⁻¹k are computed for every row: where √(K⁻¹)_ii/‖β_i‖ is largest, or all."""
    m = information.capacity
    tracked = np.arange(m)
    if screened:
        n_tracked = max(1, m // TRACKED_SHARE)
        tracked = np.argpartition(np.sum(inverses.beta**2, axis=0) / inverses.gram_diagonal, n_tracked - 1)[:n_tracked]
    columns = np.empty((len(tracked) if screened else 0, m))
    return Tracking(tracked, columns, np.empty(m), inverses.self_kernel)
