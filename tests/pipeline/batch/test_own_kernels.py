"""Kernels of a user's own, with the protocol or as subclasses: every learner and method refuses them by name."""

from dataclasses import dataclass, make_dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.method import FitTask
from ridgestream.pipeline.batch.ols import OLSSettings, fit_ols
from ridgestream.pipeline.batch.registry import METHODS
from ridgestream.pipeline.batch.shard_merge_select import ShardMergeSelectSettings
from ridgestream.pipeline.kernels import KERNELS, RBF, Linear, Polynomial
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.sums.row_set import ArrayRows

X = np.random.default_rng(0).standard_normal((20, 3))


@dataclass(frozen=True)
class Laplacian:
    """A kernel that has all of the protocol."""

    name = "laplacian"
    is_stationary = True
    gamma: float = 1.0

    @staticmethod
    def formula(measure: Any, gamma: float) -> Any:
        return np.exp(-gamma * np.sqrt(measure))

    def block(self, X: Any, Z: Any, centre: Any = None, out: Any = None) -> Any:  # noqa: ARG002
        values = np.empty((len(X), len(Z))) if out is None else out
        values[:] = np.exp(-self.gamma * np.abs(X[:, None] - Z[None]).sum(axis=2))
        return values

    def diagonal(self, X: Any) -> Any:
        return np.ones(len(X))

    def parameters(self) -> dict[str, float]:
        return {"gamma": self.gamma}


OVERRIDES = {
    "name": "mine",
    "kind": 9,
    "is_stationary": False,
    "formula": staticmethod(lambda measure, *_: -measure),
    "block": Laplacian.block,
    "diagonal": Laplacian.diagonal,
    "parameters": lambda self: {"gamma": self.gamma, "widths": (1.0, 2.0)},
}


@st.composite
def own_kernels(draw: st.DrawFn) -> Any:
    """A kernel of a class derived from one of ours or from the protocol alone, with overrides and perhaps a field."""
    parent = draw(st.sampled_from([RBF(0.5), Polynomial(0.5), Linear(), Laplacian()]))
    names = draw(st.sets(st.sampled_from(sorted(OVERRIDES))))
    extra = draw(st.sampled_from([[], [("widths", tuple, (1.0, 2.0))]]))
    own = make_dataclass("Own", extra, bases=(type(parent),), namespace={n: OVERRIDES[n] for n in names}, frozen=True)
    return own(**vars(parent))


NOT_KERNELS = [Laplacian(), RBF, "rbf", None, type("Named", (), {"name": ["rbf"]})()]


def fit(method: str, kernel: Any) -> None:
    task = FitTask(
        rows=ArrayRows(X, X[:, :1], np.ones(len(X))),
        kernels=(kernel,),
        settings=METHODS[method].settings(),
        others={"shard_merge_select": ShardMergeSelectSettings()},
        given=None,
        memory_limit_bytes=2**30,
        report=Silent(),
    )
    METHODS[method].fit(task)


def fit_in_memory(kernel: Any) -> None:
    fit_ols(ArrayRows(X, X[:, :1], np.ones(len(X))), kernel, OLSSettings(1e-3, 5), Silent())


@settings(deadline=None, max_examples=30)
@given(kernel=own_kernels(), method=st.sampled_from(sorted(METHODS)))
def test_a_kernel_of_the_users_own_is_refused(kernel: Any, method: str) -> None:
    for pass_kernel in (OnlineLSSVM, partial(fit, method)):
        with pytest.raises(InputError, match=r"kernel must be one of RBF, Polynomial, Linear, .* it is .*Own\("):
            pass_kernel(kernel)


@pytest.mark.parametrize("parent", [RBF, Linear, Laplacian])
def test_a_fit_in_memory_gives_no_model_of_it(parent: Any) -> None:
    own = type("Own", (parent,), {})
    with pytest.raises(InputError, match="kernel must be one of RBF, Polynomial, Linear, "):
        fit_in_memory(own() if parent is Linear else own(gamma=0.5))


@pytest.mark.parametrize("kernel", NOT_KERNELS, ids=lambda each: type(each).__name__)
def test_what_is_no_kernel_of_ours_is_refused(kernel: Any) -> None:
    with pytest.raises(InputError, match="kernel must be one of RBF, Polynomial, Linear, "):
        OnlineLSSVM(kernel)


def test_no_kernel_is_added_behind_the_back_of_compiled_code() -> None:
    with pytest.raises(TypeError, match="does not support item assignment"):
        cast("Any", KERNELS)["mine"] = Laplacian
