"""Kernels k(x, z) on blocks of rows, in float64.

RBF distances are computed as ‖x‖² + ‖z‖² − 2xᵀz about a fixed centre, which costs one matrix product but cancels where
the norms are large against the distance; pairs for which that could cost more than 10⁻¹² of a kernel value are computed
from the differences themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol, Self

import numpy as np
from annotated_types import Ge, Gt

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.bounds import check_bounds, is_finite_number
from ridgestream.pipeline.base.errors import InputError

_SAFE_SQUARED_NORM = 500.0
"""With γ‖x‖² and γ‖z‖² up to this, the rounding of γ‖x − z‖², about 4·2⁻⁵³·γ(‖x‖² + ‖z‖²), stays below 10⁻¹²."""


class Kernel(Protocol):
    """A positive definite function of two rows; `name` is its key in KERNELS."""

    name: ClassVar[str]
    kind: ClassVar[int]
    """Which it is for compiled code."""

    def block(self, X: Floats, Z: Floats, centre: Floats | None = None, out: Floats | None = None) -> Floats:
        """Return k(x_i, z_j), shape (len(X), len(Z)); a stationary kernel measures from `centre` (n_features,).

        The values are written to `out`, of that shape, if it is given.
        """

    def diagonal(self, X: Floats) -> Floats:
        """Return k(x_i, x_i), shape (len(X),)."""

    def parameters(self) -> dict[str, float]:
        """Return the numbers that make this kernel, by the names that its constructor takes."""

    @classmethod
    def with_defaults(cls, parameters: Mapping[str, float], n_features: int) -> Self:
        """Make the kernel for rows of `n_features`, with scikit-learn's defaults where `parameters` is silent."""


@dataclass(frozen=True)
class RBF:
    """exp(−γ‖x − z‖²): γ is the papers' σ = 1/d (Jung & Polani), σ⁻² (Cawley & Talbot), 1/(2σ²) (Andelić et al.)."""

    name: ClassVar[str] = "rbf"
    kind: ClassVar[int] = 0
    gamma: Annotated[float, Gt(0)]
    """Inverse squared width, in units of squared features."""

    def __post_init__(self) -> None:
        check_bounds(self)

    def block(self, X: Floats, Z: Floats, centre: Floats | None = None, out: Floats | None = None) -> Floats:
        """Return exp(−γ‖x_i − z_j‖²); one matrix product and an exponential an entry."""
        near_x, near_z = (X, Z) if centre is None or not centre.any() else (X - centre, Z - centre)
        x_norms, z_norms = np.einsum("ij,ij->i", near_x, near_x), np.einsum("ij,ij->i", near_z, near_z)
        exponents = np.matmul(near_x, near_z.T, out=out)
        exponents *= 2 * self.gamma
        exponents -= self.gamma * x_norms[:, np.newaxis]
        exponents -= self.gamma * z_norms
        self._repair(exponents, X, Z, x_norms, z_norms)
        np.minimum(exponents, 0.0, out=exponents)
        return np.asarray(np.exp(exponents, out=exponents))

    def diagonal(self, X: Floats) -> Floats:
        """Return ones."""
        return np.ones(len(X))

    def parameters(self) -> dict[str, float]:
        """Return gamma."""
        return {"gamma": self.gamma}

    @classmethod
    def with_defaults(cls, parameters: Mapping[str, float], n_features: int) -> Self:
        """Gamma defaults to 1/n_features."""
        return cls(gamma=parameters.get("gamma", 1.0 / max(n_features, 1)))

    def _repair(self, exponents: Floats, X: Floats, Z: Floats, x_norms: Floats, z_norms: Floats) -> None:
        """Compute anew, from the rows as they came, what is too far from the centre to be told by norms."""
        far_x = self.gamma * x_norms > _SAFE_SQUARED_NORM
        far_z = self.gamma * z_norms > _SAFE_SQUARED_NORM
        if far_x.any():
            exponents[far_x] = -self.gamma * _squared_distances(X[far_x], Z)
        if far_z.any():
            exponents[:, far_z] = -self.gamma * _squared_distances(X, Z[far_z])


@dataclass(frozen=True)
class Polynomial:
    """(γ xᵀz + coef0)^degree."""

    name: ClassVar[str] = "polynomial"
    kind: ClassVar[int] = 1
    gamma: Annotated[float, Gt(0)]
    """Scale of the inner product."""
    degree: Annotated[int, Ge(1)] = 3
    """A whole number of at least one."""
    coef0: Annotated[float, Ge(0)] = 1.0
    """Zero or positive, or the kernel is not positive definite."""

    def __post_init__(self) -> None:
        if is_finite_number(self.degree) and self.degree == int(self.degree):
            object.__setattr__(self, "degree", int(self.degree))
        check_bounds(self)

    def block(self, X: Floats, Z: Floats, centre: Floats | None = None, out: Floats | None = None) -> Floats:  # noqa: ARG002
        """Return (γ x_iᵀz_j + coef0)^degree; the kernel is not stationary, so `centre` is not used."""
        values = np.matmul(X, Z.T, out=out)
        values *= self.gamma
        values += self.coef0
        np.power(values, self.degree, out=values)
        return values

    def diagonal(self, X: Floats) -> Floats:
        """Return (γ‖x_i‖² + coef0)^degree."""
        return np.asarray((self.gamma * np.einsum("ij,ij->i", X, X) + self.coef0) ** self.degree)

    def parameters(self) -> dict[str, float]:
        """Return gamma, degree and coef0."""
        return {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}

    @classmethod
    def with_defaults(cls, parameters: Mapping[str, float], n_features: int) -> Self:
        """Gamma defaults to 1/n_features, degree to 3, coef0 to 1."""
        gamma, degree = parameters.get("gamma", 1.0 / max(n_features, 1)), parameters.get("degree", 3)
        return cls(gamma=gamma, degree=degree, coef0=parameters.get("coef0", 1.0))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Linear:
    """xᵀz."""

    name: ClassVar[str] = "linear"
    kind: ClassVar[int] = 2

    def block(self, X: Floats, Z: Floats, centre: Floats | None = None, out: Floats | None = None) -> Floats:  # noqa: ARG002
        """Return x_iᵀz_j; the kernel is not stationary, so `centre` is not used."""
        return np.asarray(np.matmul(X, Z.T, out=out))

    def diagonal(self, X: Floats) -> Floats:
        """Return ‖x_i‖²."""
        return np.asarray(np.einsum("ij,ij->i", X, X))

    def parameters(self) -> dict[str, float]:
        """Return nothing: it has none."""
        return {}

    @classmethod
    def with_defaults(cls, parameters: Mapping[str, float], n_features: int) -> Self:  # noqa: ARG003
        """Make it."""
        return cls()


KERNELS: dict[str, type[RBF] | type[Polynomial] | type[Linear]] = {k.name: k for k in (RBF, Polynomial, Linear)}


def make_kernel(name: str, parameters: Mapping[str, float], n_features: int) -> Kernel:
    """Make the kernel called `name`; raise InputError for an unknown name or parameter."""
    if name not in KERNELS:
        raise InputError(f"kernel must be one of {', '.join(KERNELS)}, it is {name!r}")
    kernel = KERNELS[name].with_defaults(parameters, n_features)
    unknown = sorted(set(parameters) - set(kernel.parameters()))
    if unknown:
        raise InputError(f"the {name} kernel takes no {', '.join(unknown)}")
    return kernel


def gram(kernel: Kernel, X: Floats, centre: Floats | None = None) -> Floats:
    """Return the kernel matrix of the rows of `X`, exactly symmetric and with exactly k(x, x) on its diagonal."""
    values = kernel.block(X, X, centre)
    values = np.tril(values) + np.tril(values, -1).T
    np.fill_diagonal(values, kernel.diagonal(X))
    return values


def check_kernel(kernel: object) -> None:
    """Raise InputError unless `kernel` can be used as one."""
    if isinstance(kernel, type) or not all(hasattr(kernel, name) for name in ("kind", "block", "diagonal")):
        raise InputError(f"kernel must be a kernel, such as RBF(gamma=0.1), it is {kernel!r}")


def check_positive(name: str, value: object) -> None:
    """Raise InputError unless `value` is a finite number above zero."""
    if not (is_finite_number(value) and value > 0):
        raise InputError(f"{name} must be a positive number, it is {value!r}")


def _squared_distances(X: Floats, Z: Floats) -> Floats:
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(X, Z, "sqeuclidean"))
