"""The arrays that compiled code works on, as tuples by meaning: rows, learner, selection rules, scratch memory."""

from typing import NamedTuple

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.online.compiled.lapack import Lapack


class Rows(NamedTuple):
    """n weighted rows and their kernel values with m basis vectors; the last six fields are filled block by block."""

    X: Floats
    """The rows themselves, (n, d)."""
    row_numbers: Integers
    """Their numbers in the stream, (n,)."""
    weights: Floats
    """w, (n,)."""
    root_weights: Floats
    """√w, (n,)."""
    targets: Floats
    """√w y, (n, c)."""
    self_kernel: Floats
    """k*, (n,)."""
    least_novelty: Floats
    """The novelty that a row must exceed, (n,)."""
    kernel: Floats
    """Kb, (n, m)."""
    weighted_kernel: Floats
    """√w Kb, (n, m)."""
    directions: Floats
    """W̃ = (w/Δ)^½ Kb P⁻¹ with P before each row, if no row changes the dictionary from here on, (n, m)."""
    steps: Floats
    """ϱ̃ = (w/Δ)^½ ϱ, (n, c): row j changes β by ϱ̃_j W̃_j."""
    pivots: Floats
    """Δ, (n,), for the rows scanned so far."""
    innovations: Floats
    """ϱ, (n, c), for the rows scanned so far."""
    A: Floats
    """The tracked columns of Kb K⁻¹, (n, tracked)."""
    factor: Floats
    """L of LLᵀ = I + √w Kb P⁻¹Kbᵀ √w, its columns as rows, with W̃ = L⁻¹ √w Kb P⁻¹; (n, n)."""


class InformationArrays(NamedTuple):
    """D, K, P and z, changed in place; symmetric matrices in their upper triangle."""

    vectors: Floats
    """D, (m, d)."""
    row_numbers: Integers
    """The row number in the stream of each basis vector, (m,)."""
    gram: Floats
    """K, (m, m)."""
    normal: Floats
    """P, (m, m)."""
    rhs: Floats
    """z, (m, c)."""


class InverseArrays(NamedTuple):
    """K⁻¹ and P⁻¹, (m, m), in their upper triangles, with β and both diagonals as of the last scanned row."""

    gram: Floats
    """K⁻¹."""
    normal: Floats
    """P⁻¹ as it was before the block."""
    beta: Floats
    """β, (c, m)."""
    diagonal: Floats
    """q_i = (P⁻¹)_ii, (m,)."""
    gram_diagonal: Floats
    """(K⁻¹)_ii, (m,)."""


class Tracking(NamedTuple):
    """The basis vectors for which K⁻¹k is computed for each row of the block."""

    tracked: Integers
    """Their indices."""
    columns: Floats
    """Their columns of K⁻¹, as rows, (tracked, m); empty if every vector is tracked."""
    reach: Floats
    """√(K⁻¹)_ii of the others, widened for rounding; zero for the tracked ones, (m,)."""
    self_kernel: Floats
    """K_ii, (m,)."""


class Model(NamedTuple):
    """What the learner carries from row to row."""

    information: InformationArrays
    """The exact sums."""
    inverses: InverseArrays
    """What decisions are computed from."""
    tracking: Tracking
    """For which basis vectors K⁻¹k is computed for every row."""


class StripRules(NamedTuple):
    """What decides, in one strip, on changes of the dictionary and on refreshes."""

    penalty: float
    """γ."""
    least_usefulness: float
    """TOL2, −∞ if usefulness is not tested."""
    max_basis: int
    """The size of a full dictionary."""
    closed_size: int
    """The size from which no row can change the dictionary."""
    largest_trace: float
    """The trace of K⁻¹ above which a refresh is due, since rounding could blur novelties."""
    refines: bool
    """Whether K⁻¹k is refined for every row, and a refresh is due after every change of the dictionary."""
    is_fresh: bool
    """Whether the strip follows a refresh, so that another one could not help its first row."""


class Candidate(NamedTuple):
    """What P, K and z gain if a row becomes a basis vector; filled by `evaluate`."""

    a: Floats
    """K⁻¹k, (m,)."""
    w_b: Floats
    """a + (wδ/Δ)P⁻¹k with P before the row, (m,): equation (14)."""
    normal: Floats
    """P a + wδk with P after the row, (m,)."""
    rhs: Floats
    """aᵀz + wδy, (c,)."""
    kappa: Floats
    """wϱ/(wδ + γΔ), (c,): equation (15)."""
    scalars: Floats
    """δ; Δ_b = γδ + wδ²/Δ, the slides' form; P's corner aᵀPa + γ(k* − aᵀk) + 2wδ aᵀk + wδ²."""


class Neighbours(NamedTuple):
    """Scratch memory of the bounds on swaps, for one row."""

    indices: Integers
    """The nearest basis vectors."""
    shares: Floats
    """k_n²/k_nn of each."""
    apart: Floats
    """The row's novelty to all of them but each."""
    L: Floats
    """Cholesky's factor of their kernel matrix."""
    cross: Floats
    """ϱ·β_i, (m,)."""
    norms: Floats
    """‖β_i‖² less its possible rounding error, (m,)."""


class Scratch(NamedTuple):
    """Memory and routines that compiled code needs besides the model."""

    lapack: Lapack
    """BLAS and LAPACK."""
    candidate: Candidate
    """The row that may become a basis vector."""
    neighbours: Neighbours
    """For the bounds on swaps."""
    counts: Integers
    """SCANNED, SUSPECTED and REFUSED."""
