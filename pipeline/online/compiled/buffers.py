"""What compiled code is given of a strip: its rows, what decisions need, and which basis vectors are tracked."""

from typing import NamedTuple

from ridgestream.pipeline.base.array_checks import Floats, Integers


class Rows(NamedTuple):
    """n weighted rows against a dictionary of m vectors, and room for what is formed of a block of them."""

    X: Floats
    """The rows themselves, (n, d)."""
    numbers: Integers
    """Their numbers in the stream, (n,)."""
    weights: Floats
    """w, (n,)."""
    roots: Floats
    """√w, (n,)."""
    targets: Floats
    """√w y, (n, c)."""
    self_kernel: Floats
    """k*, (n,)."""
    spans: Floats
    """The novelty that a row must exceed, (n,)."""
    kernel: Floats
    """Kb, (n, m)."""
    scaled: Floats
    """√w Kb, (n, m)."""
    swept: Floats
    """W̃ = (w/Δ)^½ Kb P⁻¹ with P before each row, if no row changes the dictionary from here on, (n, m)."""
    steps: Floats
    """ϱ̃ = (w/Δ)^½ ϱ, (n, c)."""
    pivots: Floats
    """Δ, (n,), as far as rows were scanned."""
    innovations: Floats
    """ϱ, (n, c), as far as rows were scanned."""
    A: Floats
    """The tracked columns of Kb K⁻¹, (n, tracked)."""
    factor: Floats
    """L of LLᵀ = I + √w Kb P⁻¹Kbᵀ √w, its columns as rows, with W̃ = L⁻¹ √w Kb P⁻¹; (n, n)."""


class Carried(NamedTuple):
    """K⁻¹ and P⁻¹, (m, m), in their upper triangles, with β and both diagonals as the last scanned row left them."""

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
    """Of which basis vectors K⁻¹k is at hand for each row of the block."""

    tracked: Integers
    """Those."""
    columns: Floats
    """Their columns of K⁻¹, as rows, (tracked, m); none where every vector is tracked."""
    reach: Floats
    """√(K⁻¹)_ii of the others, and what rounding may add; zero for the tracked, (m,)."""
    self_kernel: Floats
    """K_ii, (m,)."""
