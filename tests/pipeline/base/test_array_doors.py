"""Every public callable that takes arrays: any real dtype and layout gives the same bits, any fault is named."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

import ridgestream
from ridgestream import RBF, InputError, KernelLSTD, Linear, LocalExperts, OnlineLSSVM, OnlineLSTD, Polynomial
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.ols import OLSSettings, fit_ols
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.models.uncertainty import Uncertainty
from ridgestream.pipeline.sums.row_set import ArrayRows

Array = npt.NDArray[Any]
Door = Callable[[Any, Any, Any], list[Array]]
"""Passes X (20, 2), y (20, 1) and weights (20,) through a callable and returns all that it computes from them."""


def learner(**more: Any) -> OnlineLSSVM:
    return OnlineLSSVM(RBF(0.5), max_basis=5, regularization=1e-3, **more)


def experts(centres: Any = ((0.0, 20.0), (20.0, 0.0))) -> LocalExperts:
    return LocalExperts(RBF(0.5), centres, max_basis=5, regularization=1e-3)


def lstd(dictionary: Any = ((0.0, 20.0), (20.0, 0.0))) -> KernelLSTD:
    return KernelLSTD(RBF(0.5), dictionary=dictionary)


def online_lstd() -> OnlineLSTD:
    return OnlineLSTD(RBF(0.5), max_basis=5)


def evaluated(X: Any, y: Any, w: Any) -> tuple[Any, ...]:
    """Transitions that lead back to where they started, the last of which ends an episode."""
    return X, y, X, np.arange(20) == 19, w


def fitted() -> OnlineLSSVM:
    X, y, w = good()
    return learner().partial_fit(X, y, w)


def fit_in_memory(X: Any, y: Any, w: Any) -> list[Array]:
    result = fit_ols(ArrayRows(X, y, w), RBF(0.5), OLSSettings(1e-3, 5), Silent())
    return [result.basis.vectors, result.coefficients]


def error_bars() -> Uncertainty:
    X, y, w = good()
    return Uncertainty.of(OnlineLSSVM(RBF(0.5), max_basis=2).partial_fit(X, y, w).state())


def block(kernel: Kernel) -> Door:
    return lambda X, _, __: [kernel.block(X, good()[0][:4]), kernel.block(good()[0], X[:4], None)]


def slopes(kernel: Kernel) -> Door:
    return lambda X, _, __: [kernel.slopes(X, good()[0][:4]), kernel.slopes(good()[0], X[:4])]


def diagonal(kernel: Kernel) -> Door:
    return lambda X, _, __: [kernel.diagonal(X)]


DOORS: dict[str, Door] = {
    "OnlineLSSVM": lambda X, _, __: [learner(centre=X[0]).partial_fit(*good()).predict(good()[0])],
    "OnlineLSSVM.partial_fit": lambda X, y, w: [learner().partial_fit(X, y, w).coefficients()],
    "OnlineLSSVM.predict_then_learn": lambda X, y, w: [learner().predict_then_learn(X, y, w)],
    "OnlineLSSVM.predict": lambda X, _, __: [fitted().predict(X)],
    "LocalExperts": lambda X, _, __: [experts(X[:2]).partial_fit(*good()).predict(good()[0])],
    "LocalExperts.partial_fit": lambda X, y, w: [experts().partial_fit(X, y, w).predict(good()[0])],
    "LocalExperts.predict_then_learn": lambda X, y, w: [experts().predict_then_learn(X, y, w)],
    "LocalExperts.predict": lambda X, _, __: [experts().partial_fit(*good()).predict(X)],
    "KernelLSTD": lambda X, _, __: [lstd(X[:4]).fit(*evaluated(*good())).coefficients()],
    "KernelLSTD.fit": lambda X, y, w: [lstd().fit(*evaluated(X, y, w)).coefficients()],
    "KernelLSTD.partial_fit": lambda X, y, w: [lstd().partial_fit(*evaluated(X, y, w)).coefficients()],
    "KernelLSTD.predict": lambda X, _, __: [lstd().fit(*evaluated(*good())).predict(X)],
    "OnlineLSTD.partial_fit": lambda X, y, w: [online_lstd().partial_fit(*evaluated(X, y, w)).coefficients()],
    "OnlineLSTD.predict": lambda X, _, __: [online_lstd().partial_fit(*evaluated(*good())).predict(X)],
    "RBF.block": block(RBF(0.5)),
    "RBF.slopes": slopes(RBF(0.5)),
    "RBF.diagonal": diagonal(RBF(0.5)),
    "Polynomial.block": block(Polynomial(0.5)),
    "Polynomial.slopes": slopes(Polynomial(0.5)),
    "Polynomial.diagonal": diagonal(Polynomial(0.5)),
    "Linear.block": block(Linear()),
    "Linear.slopes": slopes(Linear()),
    "Linear.diagonal": diagonal(Linear()),
    "ArrayRows": fit_in_memory,
    "Uncertainty.variance": lambda X, _, w: [error_bars().variance(X, w)],
}
"""Every door; a public callable with an array argument that is missing here fails the first test."""

ELSEWHERE = {
    *("OnlineLSSVM.widen", "OnlineState", "OnlineState.with_dictionary", "OnlineState.widened"),
    *("LocalExperts.widen", "ExpertsState", "ExpertsState.having", "ExpertsState.widened"),
}
"""Take arrays of a learner's own state, which its `check` and their own tests check."""


def takes_arrays(function: object) -> bool:
    parameters = inspect.signature(cast("Any", function)).parameters.values()
    return any(
        word in str(each.annotation) for each in parameters for word in ("ArrayLike", "SupportsArray", "ndarray")
    )


def public_doors() -> set[str]:
    names: set[str] = set()
    for name in ridgestream.__all__:
        public = getattr(ridgestream, name)
        if inspect.isfunction(public) and takes_arrays(public):
            names.add(name)
        if inspect.isclass(public) and not issubclass(public, Exception):
            names |= {name} if takes_arrays(public) else set()
            for key in (key for key in vars(public) if not key.startswith("_")):
                method = getattr(public, key)
                names |= {f"{name}.{key}"} if callable(method) and takes_arrays(method) else set()
    return names


def test_every_public_callable_that_takes_arrays_is_a_door_of_these_tests() -> None:
    assert public_doors() - ELSEWHERE == DOORS.keys() - {"ArrayRows", "Uncertainty.variance"}


def good() -> tuple[Array, Array, Array]:
    """Small whole numbers, which every dtype represents."""
    rng = np.random.default_rng(0)
    X = rng.permutation(40).reshape(20, 2).astype(np.float64)
    return X / 1, rng.integers(0, 9, (20, 1)).astype(np.float64), rng.integers(1, 4, 20).astype(np.float64)


DTYPES = ("u1", "i1", "i2", "u4", "i8", "f2", "f4", ">f8", "longdouble", "O")

LAYOUTS: dict[str, Callable[[Array], Any]] = {
    **{dtype: partial(np.asarray, dtype=dtype) for dtype in DTYPES},
    "fortran": np.asfortranarray,
    "strided": lambda values: np.repeat(values, 2, axis=0)[::2],
    "reversed": lambda values: values[::-1].copy()[::-1],
    "list": lambda values: values.tolist(),
    "masked": np.ma.masked_array,
}


def read_only(values: Array) -> Array:
    values = values.copy()
    values.setflags(write=False)
    return values


@pytest.mark.samples
@pytest.mark.parametrize("door", DOORS)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(layouts=st.tuples(*[st.sampled_from(sorted({*LAYOUTS, "read-only"}))] * 3))
def test_any_dtype_and_layout_gives_the_same_bits(door: str, layouts: tuple[str, str, str]) -> None:
    expected = DOORS[door](*good())
    apply = {**LAYOUTS, "read-only": read_only}
    arguments = [apply[layout](values) for layout, values in zip(layouts, good(), strict=True)]
    if layouts[0] == "list" and door in (
        "OnlineLSSVM",
        "LocalExperts",
        "KernelLSTD",
        *(f"{kernel.__name__}.{name}" for kernel in (RBF, Polynomial, Linear) for name in ("block", "slopes")),
    ):
        arguments[0] = np.array(arguments[0])  # these doors of the tests slice it
    assert [values.tobytes() for values in DOORS[door](*arguments)] == [values.tobytes() for values in expected]


def test_pandas_and_boolean_values_are_numbers() -> None:
    X, y, w = good()
    frame = pd.DataFrame(X.astype(np.int64), columns=["a", "b"])
    expected = learner().partial_fit(X, y > 4, w).coefficients()
    assert learner().partial_fit(frame.to_numpy(), y > 4, pd.Series(w)).coefficients().tobytes() == expected.tobytes()
    rows = ArrayRows(cast("Any", frame), cast("Any", pd.Series(y[:, 0] > 4)), cast("Any", pd.Series(w)))
    assert rows.features.tobytes() == X.tobytes()
    assert rows.targets.tobytes() == (y > 4).astype(np.float64).tobytes()


def spoil(values: Array, value: float | None) -> Array:
    values = values.copy()
    values.flat[3] = value
    return values


FAULTS: dict[str, Callable[[Array], Any]] = {
    "NaN": lambda values: spoil(values, np.nan),
    "infinite": lambda values: spoil(values, -np.inf),
    "huge": lambda values: spoil(values, 1e200),
    "complex": lambda values: values + 0j,
    "text": lambda values: values.astype(str),
    "text as objects": lambda values: values.astype(str).astype(object),
    "time": lambda values: values.astype("i8").astype("M8[s]"),
    "none": lambda values: spoil(values.astype(object), None),
    "sparse": lambda values: sparse.csr_matrix(np.atleast_2d(values)),
    "scalar": lambda values: values.flat[0],
    "three dimensions": lambda values: values.reshape(5, 2, -1),
    "masked": lambda values: np.ma.masked_equal(values, values.flat[3]),
    "longer": lambda values: np.concatenate([values, values[:1]]),
    "empty": lambda values: values[:0],
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("door", ["OnlineLSSVM.partial_fit", "OnlineLSSVM.predict_then_learn", "ArrayRows"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_fault_is_named_with_its_argument(door: str, fault: str, place: int) -> None:
    names = ("features", "targets", "weights") if door == "ArrayRows" else ("X", "y", "sample_weight")
    arguments: list[Any] = list(good())
    arguments[place] = FAULTS[fault](arguments[place])
    name = names[1] if place == 0 and fault in ("longer", "empty") else names[place]
    with pytest.raises(InputError, match=rf"^{name} "):
        DOORS[door](*arguments)


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - {"longer", "empty", "sparse", "scalar", "masked"}))
@pytest.mark.parametrize(
    "door",
    [door for door in DOORS if "block" in door or "slopes" in door or "diag" in door or door.endswith("predict")],
)
def test_a_fault_of_rows_is_named_by_kernels_and_predictions(door: str, fault: str) -> None:
    with pytest.raises(InputError, match=r"^[XZ] "):
        DOORS[door](FAULTS[fault](good()[0]), None, None)


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - {"longer", "empty"}))
@pytest.mark.parametrize("place", [0, 2])
def test_a_fault_of_kernel_values_is_named_by_error_bars(fault: str, place: int) -> None:
    arguments: list[Any] = list(good())
    arguments[place] = FAULTS[fault](arguments[place])
    with pytest.raises(InputError, match=r"^kernel_rows " if place == 0 else r"^self_kernel "):
        DOORS["Uncertainty.variance"](*arguments)


@pytest.mark.parametrize("fault", ["longer", "empty"])
def test_error_bars_need_one_self_kernel_a_row(fault: str) -> None:
    X, y, w = good()
    with pytest.raises(InputError, match=r"^self_kernel must have 20 entries, its shape is "):
        DOORS["Uncertainty.variance"](X, y, FAULTS[fault](w))


def test_negative_weights_are_refused() -> None:
    X, y, w = good()
    for door in ("ArrayRows", "OnlineLSSVM.partial_fit"):
        with pytest.raises(InputError, match=r"weight.* of row 3 is -1.0; weights must be zero or positive"):
            DOORS[door](X, y, spoil(w, -1.0))


def test_row_numbers_are_whole_and_in_range() -> None:
    rows = ArrayRows(*good())
    for numbers, message in (([0, 20], "indices has 20 at 1"), ([-1], "has -1 at 0"), ([0.0], "whole numbers")):
        with pytest.raises(InputError, match=message):
            rows.take(np.array(numbers))
    assert rows.take(np.array([1, 1], dtype=np.uint8)).features.tolist() == [rows.features[1].tolist()] * 2


def test_rows_that_are_contiguous_float64_are_not_copied() -> None:
    X, y, w = good()
    rows = ArrayRows(X, y, w)
    assert all(
        np.shares_memory(a, b) for a, b in zip((rows.features, rows.targets, rows.weights), (X, y, w), strict=True)
    )
