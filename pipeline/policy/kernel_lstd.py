"""Batch policy evaluation: least squares temporal differences over a dictionary that a batch method selects.

Papers: Bradtke & Barto (1996), "Linear least-squares algorithms for temporal difference learning"; Jung & Polani
(2006), "Sequential learning with LS-SVM for large-scale data sets", for sparse dictionaries of kernel functions.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers, check_rows
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.method import FitTask
from ridgestream.pipeline.batch.registry import METHODS, check_options
from ridgestream.pipeline.kernels import Kernel, check_kernel
from ridgestream.pipeline.policy.value_function import LSTDSettings, ValueFunction, check_transitions
from ridgestream.pipeline.selection.independence import check_given
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.sums.row_set import ArrayRows

_MEMORY_LIMIT_BYTES = 2**62
"""No limit: the rows are in memory already."""


class KernelLSTD:
    """The value function V(x) = Σ βᵢ k(xᵢ, x) of the policy by which transitions were made.

    V(x) is the expected sum of the rewards from x on, those after t further steps discounted by γᵗ. It is the solution
    of least squares temporal differences, (A + λnK)β = b with A = Σ w k(x)(k(x) − γk(x′))ᵀ and b = Σ w k(x)r, where
    k(x′) counts as zero after the end of an episode. The features should be standardized, x and x′ alike.

    Args:
        kernel: The kernel, such as `RBF(gamma=1 / n_features)`.
        discount: γ, default 0.99, from 0 to 1; 1 only if episodes end.
        regularization: λ per row, default 1e-5; higher values give smoother functions.
        method: The batch method that selects the dictionary from the first rows learned, by its name in job files,
            default "efvs", which looks at the rows alone. A method that looks at targets sees the rewards.
        options: Settings of this method, such as `{"max_basis": 100}`.
        dictionary: Basis vectors (n_basis, n_features), in place of a selection. Dependent ones are left out.

    Transitions are summed, so `partial_fit` may be called with parts of any size, on any machine, and learners with the
    same dictionary merged. Equal parts merged in equal order give equal bits. Memory is O(n_basis²) besides the rows of
    a call; a transition costs O(n_basis²).

    Example:
        A walk on a circle, rewarded by the cosine of the angle:

        >>> import numpy as np
        >>> from ridgestream import RBF, KernelLSTD
        >>> rng = np.random.default_rng(0)
        >>> angle = rng.uniform(0, 2 * np.pi, 2000)
        >>> then = angle + rng.normal(0.5, 0.1, 2000)
        >>> X, X_next = (np.column_stack([np.cos(a), np.sin(a)]) for a in (angle, then))
        >>> values = KernelLSTD(RBF(gamma=1.0), discount=0.9, options={"max_basis": 15})
        >>> at_zero = values.fit(X, np.cos(angle), X_next).predict(np.array([[1.0, 0.0]]))
        >>> known = (1 / (1 - 0.9 * np.exp(0.5j - 0.1**2 / 2))).real
        >>> bool(abs(at_zero[0, 0] - known) < 0.05)
        True

    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        discount: float = LSTDSettings.discount,
        regularization: float = LSTDSettings.regularization,
        method: str = "efvs",
        options: Mapping[str, Any] | None = None,
        dictionary: npt.ArrayLike | None = None,
    ) -> None:
        check_kernel(kernel)
        if method not in METHODS:
            raise InputError(f"method must be one of {', '.join(METHODS)}, it is {method!r}")
        self._kernel, self._settings = kernel, LSTDSettings(discount, regularization)
        check_options(method, options or {})
        self._method, self._method_settings = method, METHODS[method].settings(**dict(options or {}))
        self._given = None if dictionary is None else check_given(dictionary, None)
        self._places: Integers = np.empty(0, dtype=np.int64)
        self._values: ValueFunction | None = None

    @property
    def basis_vectors(self) -> Floats:
        """The dictionary, shape (n_basis, n_features)."""
        return self._fitted().basis.vectors

    @property
    def basis_rows(self) -> Integers:
        """The row of each basis vector among those that it was selected from, −1 for none, shape (n_basis,)."""
        self._fitted()
        return self._places

    @property
    def n_basis(self) -> int:
        """The number of basis vectors."""
        return len(self._places)

    @property
    def rows_seen(self) -> int:
        """The transitions learned so far, those of weight zero included."""
        return self._values.sums.rows if self._values else 0

    def fit(
        self,
        X: npt.ArrayLike,
        reward: npt.ArrayLike,
        X_next: npt.ArrayLike,
        done: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> Self:
        """Select the dictionary from these transitions, forget others, and learn them; as `partial_fit` otherwise."""
        return self._learn(check_transitions(X, reward, X_next, done, sample_weight, None), None)

    def partial_fit(
        self,
        X: npt.ArrayLike,
        reward: npt.ArrayLike,
        X_next: npt.ArrayLike,
        done: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> Self:
        """Learn transitions from rows X to X_next, (rows, n_features) each; the first ones select the dictionary.

        `reward` is (rows,), or (rows, n_rewards) for as many value functions. `done` (rows,), by default zeros, is 1
        where the episode ended: the row of X_next is then ignored. Where it was merely cut off, it is 0.
        `sample_weight` (rows,), by default ones, multiplies a transition. Raises InputError before anything has
        changed.
        """
        return self._learn(check_transitions(X, reward, X_next, done, sample_weight, self._values), self._values)

    def merge(self, other: Self) -> Self:
        """Add the transitions that `other` has learned with the same dictionary; raises InputError for another one."""
        values, others = self._fitted(), other._fitted()
        if values.basis.kernel != others.basis.kernel or values.settings != others.settings:
            raise InputError("the learners to merge must have the same kernel, discount and regularization")
        if not np.array_equal(values.basis.vectors, others.basis.vectors):
            raise InputError("the learners to merge must have the same dictionary: give both the one of the first")
        self._values = values.merge(others.sums)
        return self

    def coefficients(self) -> Floats:
        """Return β, shape (n_basis, n_rewards), read-only; O(n_basis³) after new transitions.

        Raises NumericalBreakdown if A + λnK is singular within rounding, and InputError if the discount is 1 and no
        transition learned has ended an episode.
        """
        return self._fitted().checked().coefficients

    def predict(self, X: npt.ArrayLike) -> Floats:
        """Return V at rows X (rows, n_features), shape (rows, n_rewards); raises as `coefficients` does."""
        values = self._fitted().checked()
        return values.predict(check_rows(X, values.basis.vectors.shape[1]))

    def _fitted(self) -> ValueFunction:
        if self._values is None:
            raise InputError("the learner has seen no transition yet: call fit or partial_fit first")
        return self._values

    def _learn(self, transitions: ArrayRows, values: ValueFunction | None) -> Self:
        """Add transitions to a value function, or to that of a dictionary selected from them."""
        places = self._places
        if values is None:
            places, values = self._start(transitions)
        self._values, self._places = values.learn(transitions), places
        return self

    def _start(self, transitions: ArrayRows) -> tuple[Integers, ValueFunction]:
        """Return the dictionary's rows among these transitions, and the value function over it, which is zero."""
        n_features = transitions.n_features // 2
        dictionary = self._dictionary(transitions, n_features)
        dictionary.check(n_features)
        dictionary = dictionary.independent(self._kernel)
        basis = dictionary.basis(self._kernel, constant=False)
        return dictionary.places, ValueFunction.empty(basis, self._settings, transitions.n_targets)

    def _dictionary(self, transitions: ArrayRows, n_features: int) -> StartingDictionary:
        if self._given is not None:
            return StartingDictionary(self._given, np.full(len(self._given), -1))
        rows = ArrayRows(transitions.features[:, :n_features], transitions.targets, transitions.weights)
        settings = self._method_settings
        fitted = METHODS[self._method].fit(
            FitTask(
                rows=rows,
                kernels=(self._kernel,),
                settings=settings,
                others={name: METHODS[name].settings() for name in settings.also_takes if name in METHODS},
                given=None,
                memory_limit_bytes=_MEMORY_LIMIT_BYTES,
                report=Silent(),
            )
        )
        return StartingDictionary(fitted.basis.vectors, fitted.places)
