"""A strip of rows against one dictionary: kernel values for all of them at once, then compiled code block by block."""

import math

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.online.compiled.arrays import (
    Candidate,
    InformationArrays,
    InverseArrays,
    Model,
    Rows,
    Scratch,
    StripRules,
    Tracking,
)
from ridgestream.pipeline.online.compiled.kernel_column import encode_kernel
from ridgestream.pipeline.online.compiled.lapack import make_lapack
from ridgestream.pipeline.online.compiled.swap_bounds import make_neighbours
from ridgestream.pipeline.online.compiled.update import run_rows
from ridgestream.pipeline.online.information_form import Information
from ridgestream.pipeline.online.inverses import Inverses
from ridgestream.pipeline.online.row_block import RowBlock
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.selection.independence import SPAN_TOLERANCE

BLUR_LIMIT = 1e-6
"""Largest share of the novelty threshold that rounding may reach; beyond it K⁻¹k is refined for every row."""

TRACKED_SHARE = 12
"""When screening, K⁻¹k is computed for every row for one in this number of basis vectors, the weakest ones."""

_UNLIMITED = 2**62

_EPS = float(np.finfo(np.float64).eps)


class Workspace:
    """Memory reused from strip to strip: newly allocated memory would be cleared by the system, page by page."""

    def __init__(self) -> None:
        self._buffers: dict[str, Floats] = {}
        self.lapack = make_lapack()

    def __reduce__(self) -> tuple[type["Workspace"], tuple[()]]:
        """Start empty in a copy and in another process, where the routines have other addresses."""
        return Workspace, ()

    def array(self, name: str, *shape: int) -> Floats:
        """Return an uninitialized array of this shape; it shares the memory of the last one of this name."""
        size = math.prod(shape)
        if name not in self._buffers or len(self._buffers[name]) < size:
            self._buffers[name] = np.empty(2 * size)
        return self._buffers[name][:size].reshape(shape)


class Strip:
    """Rows against one dictionary: Kb = k(X, D) computed at once, and memory for `plan_block_rows` of them at a time.

    If `screened`, K⁻¹k is computed only where a bound does not rule a swap out, else for all rows. The next strip in
    the same `workspace` overwrites this one.
    """

    def __init__(
        self,
        settings: OnlineSettings,
        centre: Floats | None,
        information: Information,
        inverses: Inverses,
        block: RowBlock,
        workspace: Workspace,
        *,
        screened: bool,
    ) -> None:
        self.settings, self.information, self.inverses, self.workspace = settings, information, inverses, workspace
        n_targets, n_basis = block.targets.shape[1], information.capacity
        inverses.reserve(n_basis)
        self_kernel = settings.kernel.diagonal(block.X)
        least_novelty = np.maximum(settings.novelty_threshold, SPAN_TOLERANCE * self_kernel)
        self.largest_trace = _largest_trace(self_kernel, least_novelty)
        self.refines = bool(inverses.gram_diagonal[: information.n_basis].sum() > self.largest_trace)
        self.tracking = _track(inverses, information, screened=screened and not self.refines)
        kernel_rows, root_weights = self._kernel_rows(block.X, centre), np.sqrt(block.weights)
        weighted = kernel_rows
        if not (block.weights == 1.0).all():
            out = workspace.array("weighted", *kernel_rows.shape)
            weighted = np.multiply(kernel_rows, root_weights[:, np.newaxis], out=out)
        block_rows = min(plan_block_rows(settings.max_basis), len(block))
        self.rows = Rows(
            X=block.X,
            row_numbers=block.row_numbers,
            weights=block.weights,
            root_weights=root_weights,
            targets=block.targets * root_weights[:, np.newaxis],
            self_kernel=self_kernel,
            least_novelty=least_novelty,
            kernel=kernel_rows,
            weighted_kernel=weighted,
            directions=workspace.array("directions", block_rows, n_basis),
            steps=np.empty((block_rows, n_targets)),
            pivots=np.empty(block_rows),
            innovations=np.empty_like(block.targets),
            A=workspace.array("A", block_rows, len(self.tracking.tracked)),
            factor=workspace.array("factor", block_rows, block_rows),
        )

    def run(self, *, is_fresh: bool, counts: Integers) -> tuple[int, int, int]:
        """Learn until the strip ends or more memory or a refresh is needed: (why, rows learned, swaps made)."""
        information, inverses = self.information, self.inverses
        why, learned, n_basis, swaps = run_rows(
            Scratch(self.workspace.lapack, self._candidate(), make_neighbours(information.capacity), counts),
            Model(information_arrays(information), inverse_arrays(inverses), self.tracking),
            self.rows,
            encode_kernel(self.settings.kernel),
            self._rules(is_fresh=is_fresh),
            information.n_basis,
        )
        information.n_basis = inverses.n_basis = n_basis
        return why, learned, swaps

    def _kernel_rows(self, X: Floats, centre: Floats | None) -> Floats:
        """Return k(X, D), zero in the columns that no basis vector has yet."""
        n_basis = self.information.n_basis
        kernel_rows = self.workspace.array("kernel", len(X), self.information.capacity)
        self.settings.kernel.block(X, self.information.basis_vectors, centre, out=kernel_rows[:, :n_basis])
        kernel_rows[:, n_basis:] = 0.0
        return kernel_rows

    def _candidate(self) -> Candidate:
        n_basis, n_targets = self.information.capacity, self.rows.targets.shape[1]
        a, w_b, normal = np.empty((3, n_basis))
        return Candidate(
            a=a, w_b=w_b, normal=normal, rhs=np.empty(n_targets), kappa=np.empty(n_targets), scalars=np.empty(3)
        )

    def _rules(self, *, is_fresh: bool) -> StripRules:
        settings, rule = self.settings, self.settings.rule
        max_basis = _UNLIMITED if settings.max_basis is None else settings.max_basis
        return StripRules(
            penalty=float(self.information.penalty),
            least_usefulness=float(rule.least_usefulness(settings.usefulness_threshold)),
            max_basis=max_basis,
            closed_size=_UNLIMITED if rule.replaces else max_basis,
            largest_trace=self.largest_trace,
            refines=self.refines,
            is_fresh=is_fresh,
        )


def plan_block_rows(max_basis: int | None) -> int:
    """Return the rows of a block: enough for matrix products to pay, few enough to be updated after a swap."""
    if max_basis is not None and max_basis <= 256:
        return 32
    return 64 if max_basis is None or max_basis <= 1024 else 128


def information_arrays(information: Information) -> InformationArrays:
    """Return the arrays of D, K, P and z for compiled code, which changes them in place."""
    return InformationArrays(
        vectors=information.vectors,
        row_numbers=information.row_numbers,
        gram=information.gram_array.T,
        normal=information.normal_array.T,
        rhs=information.rhs_array,
    )


def inverse_arrays(inverses: Inverses) -> InverseArrays:
    """Return the arrays of K⁻¹, P⁻¹ and β for compiled code, which changes them in place."""
    return InverseArrays(
        gram=inverses.gram.T,
        normal=inverses.normal.T,
        beta=inverses.beta,
        diagonal=inverses.diagonal,
        gram_diagonal=inverses.gram_diagonal,
    )


def _largest_trace(self_kernel: Floats, least_novelty: Floats) -> float:
    """Return the trace of K⁻¹ above which rounding could blur the novelties that decide.

    Above it K⁻¹k is refined for every row, and a refresh follows every change of the dictionary.
    """
    largest = float(self_kernel.max())
    return float(BLUR_LIMIT * least_novelty.min()) / largest / largest / _EPS


def _track(inverses: Inverses, information: Information, *, screened: bool) -> Tracking:
    """Choose the basis vectors whose entry of K⁻¹k is computed for every row: if `screened`, the weakest, else all.

    The weakest are those with the largest √(K⁻¹)_ii/‖β_i‖.
    """
    m = information.capacity
    tracked = np.arange(m)
    if screened:
        n_tracked = max(1, m // TRACKED_SHARE)
        tracked = np.argpartition(np.sum(inverses.beta**2, axis=0) / inverses.gram_diagonal, n_tracked - 1)[:n_tracked]
    columns = np.empty((len(tracked) if screened else 0, m))
    return Tracking(tracked=tracked, columns=columns, reach=np.empty(m), self_kernel=inverses.self_kernel)
