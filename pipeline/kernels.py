"""Kernels k(x, z) on blocks of rows, in float64.

RBF distances are computed as ‖x‖² + ‖z‖² − 2xᵀz about a fixed centre, which costs one matrix product but cancels where
the norms are large against the distance; pairs for which that could cost more than 10⁻¹² of a kernel value are computed
from the differences themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Protocol, cast

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt

from ridgestream.pipeline.base.array_checks import Floats, check_point, check_rows
from ridgestream.pipeline.base.bounds import check_bounds, is_finite_number
from ridgestream.pipeline.base.errors import InputError

SAFE_SQUARED_NORM = 500.0
"""With γ‖x‖² and γ‖z‖² up to this, the rounding of γ‖x − z‖², about 4·2⁻⁵³·γ(‖x‖² + ‖z‖²), stays below 10⁻¹²."""

_ROWS_AT_ONCE = 64
"""Rows of inner products that a formula is applied to at a time, so that its temporary arrays stay small."""

LEAST_RELATION = 0.01
"""Two vectors whose kernel value is below this share of their lengths have nothing to do with each other."""

FEWEST_VECTORS, MOST_VECTORS = 10, 1000
"""How many vectors of a dictionary show whether they have to do with each other."""


class Kernel(Protocol):
    """A positive definite function of two rows; a frozen dataclass whose fields are its parameters."""

    name: ClassVar[str]
    """Its key in KERNELS."""
    is_stationary: ClassVar[bool]
    """Whether it is a function of ‖x − z‖², else of xᵀz."""

    @staticmethod
    def formula(measure: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Return k(x, z) from ‖x − z‖² or xᵀz, a number or an array, and the parameters in the order of the fields.

        The only place where the formula stands; the online learner compiles it, so it may use NumPy functions only.
        """

    def block(self, X: Floats, Z: Floats, centre: Floats | None = None, out: Floats | None = None) -> Floats:
        """Return k(x_i, z_j), shape (len(X), len(Z)), float64.

        A stationary kernel computes distances from coordinates relative to `centre` (n_features,); the values do not
        depend on it, their rounding does. The values are written to `out`, of that shape, if it is given. Raises
        InputError for entries that are not finite numbers, and for shapes that do not fit each other.
        """

    def slopes(self, X: Floats, Z: Floats) -> Floats:
        """Return the derivative of `formula` in what it measures, ‖x_i − z_j‖² or x_iᵀz_j, shape (len(X), len(Z)).

        Raises InputError as `block` does.
        """

    def diagonal(self, X: Floats) -> Floats:
        """Return k(x_i, x_i), shape (len(X),)."""

    def parameters(self) -> dict[str, float]:
        """Return the parameters by name, in the order of the fields."""


class _Parameters:
    """Reads a kernel's parameters from its fields."""

    def parameters(self) -> dict[str, float]:
        """Return the parameters by name, in the order of the fields."""
        return dict(vars(self))


@dataclass(frozen=True)
class RBF(_Parameters):
    """exp(−γ‖x − z‖²): γ is the papers' σ = 1/d (Jung & Polani), σ⁻² (Cawley & Talbot), 1/(2σ²) (Andelić et al.)."""

    name: ClassVar[str] = "rbf"
    is_stationary: ClassVar[bool] = True
    gamma: Annotated[float, Gt(0)]
    """Inverse squared width, in units of squared features; 1/n_features if a job file gives none."""

    def __post_init__(self) -> None:
        check_bounds(self)

    @staticmethod
    def formula(measure: Any, gamma: float) -> Any:  # noqa: ANN401
        """exp(−γ‖x − z‖²)."""
        return np.exp(-gamma * measure)

    def block(self, X: Floats, Z: Floats, centre: Floats | None = None, out: Floats | None = None) -> Floats:
        """Return exp(−γ‖x_i − z_j‖²); one matrix product and an exponential per entry.

        The exponent is expanded to 2γxᵀz − γ‖x‖² − γ‖z‖²; where that would cancel, differences are taken.
        """
        X, Z, centre = _checked(X, Z, centre)
        near_x, near_z = (X, Z) if centre is None or not centre.any() else (X - centre, Z - centre)
        x_norms, z_norms = np.einsum("ij,ij->i", near_x, near_x), np.einsum("ij,ij->i", near_z, near_z)
        exponents = np.matmul(near_x, near_z.T, out=out)
        exponents *= 2 * self.gamma
        exponents -= self.gamma * x_norms[:, np.newaxis]
        exponents -= self.gamma * z_norms
        np.minimum(exponents, 0.0, out=exponents)
        values = np.asarray(np.exp(exponents, out=exponents))
        far_x, far_z = self._is_far(x_norms), self._is_far(z_norms)
        if far_x.any():
            values[far_x] = self.formula(_squared_distances(X[far_x], Z), self.gamma)
        if far_z.any():
            values[:, far_z] = self.formula(_squared_distances(X, Z[far_z]), self.gamma)
        return values

    def slopes(self, X: Floats, Z: Floats) -> Floats:
        """Return −γ exp(−γ‖x_i − z_j‖²)."""
        values = self.block(X, Z)
        values *= -self.gamma
        return values

    def diagonal(self, X: Floats) -> Floats:
        """Return ones."""
        return np.ones(len(check_rows(X)))

    def _is_far(self, squared_norms: Floats) -> npt.NDArray[np.bool_]:
        """Whether rows are so far from the centre that the expanded exponent would lose digits."""
        return np.asarray(self.gamma * squared_norms > SAFE_SQUARED_NORM)


@dataclass(frozen=True)
class Polynomial(_Parameters):
    """(γ xᵀz + coef0)^degree."""

    name: ClassVar[str] = "polynomial"
    is_stationary: ClassVar[bool] = False
    gamma: Annotated[float, Gt(0)]
    """Scale of the inner product; 1/n_features if a job file gives none."""
    degree: Annotated[int, Ge(1)] = 3
    """The power."""
    coef0: Annotated[float, Ge(0)] = 1.0
    """The constant added to the inner product; not negative, or the kernel is not positive definite."""

    def __post_init__(self) -> None:
        if is_finite_number(self.degree) and self.degree == int(self.degree):
            object.__setattr__(self, "degree", int(self.degree))
        check_bounds(self)

    @staticmethod
    def formula(measure: Any, gamma: float, degree: float, coef0: float) -> Any:  # noqa: ANN401
        """(γ xᵀz + coef0)^degree."""
        return np.power(gamma * measure + coef0, degree)

    def block(self, X: Floats, Z: Floats, centre: Floats | None = None, out: Floats | None = None) -> Floats:
        """Return (γ x_iᵀz_j + coef0)^degree; one matrix product and a power per entry."""
        X, Z, _ = _checked(X, Z, centre)
        values = np.matmul(X, Z.T, out=out)
        for start in range(0, len(values), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            values[part] = self.formula(values[part], self.gamma, self.degree, self.coef0)
        return values

    def slopes(self, X: Floats, Z: Floats) -> Floats:
        """Return degree·γ (γ x_iᵀz_j + coef0)^(degree − 1)."""
        X, Z, _ = _checked(X, Z, None)
        products = np.matmul(X, Z.T)
        return np.asarray(self.degree * self.gamma * self.formula(products, self.gamma, self.degree - 1, self.coef0))

    def diagonal(self, X: Floats) -> Floats:
        """Return (γ‖x_i‖² + coef0)^degree."""
        X = check_rows(X)
        return np.asarray(self.formula(np.einsum("ij,ij->i", X, X), self.gamma, self.degree, self.coef0))


@dataclass(frozen=True)
class Linear(_Parameters):
    """xᵀz."""

    name: ClassVar[str] = "linear"
    is_stationary: ClassVar[bool] = False

    @staticmethod
    def formula(measure: Any) -> Any:  # noqa: ANN401
        """xᵀz."""
        return measure

    def block(self, X: Floats, Z: Floats, centre: Floats | None = None, out: Floats | None = None) -> Floats:
        """Return x_iᵀz_j."""
        X, Z, _ = _checked(X, Z, centre)
        return np.asarray(self.formula(np.matmul(X, Z.T, out=out)))

    def slopes(self, X: Floats, Z: Floats) -> Floats:
        """Return ones."""
        X, Z, _ = _checked(X, Z, None)
        return np.ones((len(X), len(Z)))

    def diagonal(self, X: Floats) -> Floats:
        """Return ‖x_i‖²."""
        X = check_rows(X)
        return np.asarray(self.formula(np.einsum("ij,ij->i", X, X)))


KERNELS: Mapping[str, type[Kernel]] = MappingProxyType({kernel.name: kernel for kernel in (RBF, Polynomial, Linear)})
"""The kernels by name; a new one is a class like those above and an entry here; compiled code and records read it."""


def make_kernel(name: str, parameters: Mapping[str, float], n_features: int) -> Kernel:
    """Return the kernel `name` for rows of `n_features`; `gamma` defaults to 1/n_features, as in scikit-learn.

    Raises InputError for an unknown name, an unknown parameter, and a value out of its bounds.
    """
    if name not in KERNELS:
        raise InputError(f"kernel must be one of {', '.join(KERNELS)}, it is {name!r}")
    kernel: Any = KERNELS[name]
    known = {field.name for field in fields(kernel)}
    unknown = sorted(set(parameters) - known)
    if unknown:
        raise InputError(f"the {name} kernel takes no {', '.join(unknown)}")
    defaults = {"gamma": 1.0 / max(n_features, 1)} if "gamma" in known else {}
    return cast("Kernel", kernel(**defaults | dict(parameters)))


def has_gamma(name: str) -> bool:
    """Return whether the kernel of this name, a key of KERNELS, has a parameter `gamma`."""
    return any(field.name == "gamma" for field in fields(cast("Any", KERNELS[name])))


def gram(kernel: Kernel, X: Floats, centre: Floats | None = None) -> Floats:
    """Return the kernel matrix of the rows of `X`, exactly symmetric and with exactly k(x, x) on its diagonal."""
    values = kernel.block(X, X, centre)
    for row in range(len(values)):
        values[:row, row] = values[row, :row]
    np.fill_diagonal(values, kernel.diagonal(X))
    return values


def are_unrelated(kernel: Kernel, vectors: Floats, centre: Floats | None) -> bool:
    """Return whether half of the vectors or more are alone, judged by at most MOST_VECTORS of FEWEST_VECTORS or more.

    A vector is alone if its kernel values with all others are below LEAST_RELATION of √(k(x, x) k(z, z)).
    """
    if len(vectors) < FEWEST_VECTORS:
        return False
    K = gram(kernel, vectors[:: -(-len(vectors) // MOST_VECTORS)], centre)
    scale = np.sqrt(np.diagonal(K))
    np.fill_diagonal(K, 0.0)
    closest = np.abs(K / scale).max(axis=1) / scale
    return bool(2 * np.count_nonzero(closest < LEAST_RELATION) >= len(K))


def check_kernel(kernel: object) -> None:
    """Raise InputError unless `kernel` is an instance of one of the classes in KERNELS, and of no subclass."""
    if not any(type(kernel) is known for known in KERNELS.values()):
        names = ", ".join(known.__name__ for known in KERNELS.values())
        raise InputError(f"kernel must be one of {names}, not a subclass, such as RBF(gamma=0.1), it is {kernel!r}")


def check_positive(name: str, value: object) -> None:
    """Raise InputError unless `value` is a finite number above zero."""
    if not (is_finite_number(value) and value > 0):
        raise InputError(f"{name} must be a positive number, it is {value!r}")


def _checked(X: Floats, Z: Floats, centre: Floats | None) -> tuple[Floats, Floats, Floats | None]:
    """Return the arguments of `block` as float64; raises InputError for invalid entries and shapes that do not fit."""
    rows = check_rows(X)
    others = rows if Z is X else check_rows(Z, rows.shape[1], "Z")
    return rows, others, None if centre is None else check_point(centre, rows.shape[1], "centre")


def _squared_distances(X: Floats, Z: Floats) -> Floats:
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(X, Z, "sqeuclidean"))
