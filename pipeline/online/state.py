"""The state of the online LS-SVM in information form: all that is needed to continue learning."""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.kernels import gram
from ridgestream.pipeline.online.diagnostics import Numerics
from ridgestream.pipeline.online.settings import OnlineSettings


@dataclass(frozen=True)
class OnlineState:
    """{D, K, P, z, yᵀy, n, γ}: exact, and all that is needed to continue learning.

    Everything else (P⁻¹, K⁻¹, β, ξ) is computed from it by Cholesky factorizations.
    """

    parameters: OnlineSettings
    """The settings of the learner."""
    centre: Floats
    """Point relative to which a stationary kernel computes distances, shape (n_features,)."""
    basis_vectors: Floats
    """The dictionary D, shape (n_basis, n_features)."""
    basis_rows: Integers
    """The row number in the stream of each basis vector, from zero, −1 for one given by the user; shape (n_basis,)."""
    gram: Floats
    """K, the kernel matrix of the dictionary, shape (n_basis, n_basis)."""
    normal_matrix: Floats
    """P = K̃ᵀK̃ + γK, shape (n_basis, n_basis)."""
    normal_rhs: Floats
    """z = K̃ᵀy, shape (n_basis, n_targets)."""
    target_square: Floats
    """yᵀy, shape (n_targets, n_targets)."""
    rows_seen: int
    """Rows learned so far, those of weight zero included."""
    weight_seen: float
    """n, the sum of their weights."""
    penalty: float
    """γ now: λ·2^⌊log₂ n⌋."""
    swaps: int
    """How often a basis vector was replaced so far."""
    numerics: Numerics = field(default_factory=Numerics)
    """Condition, rounding error and jitter so far."""

    @property
    def n_basis(self) -> int:
        """The number of basis vectors."""
        return len(self.basis_vectors)

    @property
    def n_targets(self) -> int:
        """The number of outputs that share the dictionary."""
        return len(self.target_square)

    def widened(self, indices: Integers) -> Self:
        """Return the state with features inserted at these indices, as `numpy.insert` takes them, zero in every row.

        Kernel values, and so all sums, stay the same.
        """
        return replace(
            self,
            centre=np.insert(self.centre, indices, 0.0),
            basis_vectors=np.insert(self.basis_vectors, indices, 0.0, axis=1),
        )

    @classmethod
    def empty(cls, parameters: OnlineSettings, n_features: int, n_targets: int) -> Self:
        """Return the state before the first row."""
        return cls(
            parameters=parameters,
            centre=np.zeros(n_features),
            basis_vectors=np.empty((0, n_features)),
            basis_rows=np.empty(0, dtype=np.int64),
            gram=np.empty((0, 0)),
            normal_matrix=np.empty((0, 0)),
            normal_rhs=np.empty((0, n_targets)),
            target_square=np.zeros((n_targets, n_targets)),
            rows_seen=0,
            weight_seen=0.0,
            penalty=0.0,
            swaps=0,
        )

    @classmethod
    def with_dictionary(
        cls, parameters: OnlineSettings, centre: Floats, dictionary: Floats, rows: Integers, n_targets: int
    ) -> Self:
        """Return the state before the first row with a given dictionary (n_basis, n_features), stream rows `rows`.

        P is zero, with γ, until the first row of positive weight.
        """
        m = len(dictionary)
        return replace(
            cls.empty(parameters, dictionary.shape[1], n_targets),
            centre=centre,
            basis_vectors=dictionary,
            basis_rows=rows,
            gram=gram(parameters.kernel, dictionary, centre),
            normal_matrix=np.zeros((m, m)),
            normal_rhs=np.zeros((m, n_targets)),
        )

    def check(self) -> None:
        """Raise InputError if shapes do not match or a value is not finite."""
        m, d = self.basis_vectors.shape
        expected = {"centre": (d,), "basis_rows": (m,), "gram": (m, m), "normal_matrix": (m, m)}
        expected["normal_rhs"] = (m, self.n_targets)
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise InputError(f"the state's {name} must have shape {shape}, it has {getattr(self, name).shape}")
        for name in ("centre", "basis_vectors", "gram", "normal_matrix", "normal_rhs", "target_square"):
            if not np.isfinite(getattr(self, name)).all():
                raise InputError(f"the state's {name} holds a value that is not finite: the state is damaged")
