"""Compiled kernel values come from the formulas of kernels.py, each kernel from its own."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.kernels import KERNELS, RBF, Kernel, Linear, Polynomial
from ridgestream.pipeline.online.compiled.jit import compiled
from ridgestream.pipeline.online.compiled.kernel_column import KernelCode, encode_kernel, kernel_column
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM


@compiled
def column(kernel: KernelCode, X: Floats, x: Floats) -> Floats:
    """Call `kernel_column`, which only compiled code can call."""
    return kernel_column(kernel, X, x)


@pytest.mark.parametrize("kernel", [RBF(0.2), RBF(3.0), Polynomial(0.3), Polynomial(0.1, 2, 0.5), Linear()], ids=str)
def test_a_column_is_that_of_the_block(kernel: Kernel) -> None:
    X = np.random.default_rng(0).standard_normal((50, 4))
    values = column(encode_kernel(kernel), X, X[7])
    np.testing.assert_allclose(values, kernel.block(X, X[7:8])[:, 0], rtol=1e-13, atol=1e-15)


def test_every_kernel_is_compiled() -> None:
    assert sorted(encode_kernel(kernel).position for kernel in (RBF(1.0), Polynomial(1.0), Linear())) == [0, 1, 2]
    assert len(KERNELS) == 3, "add the new kernel to the two tests above"


@dataclass(frozen=True)
class Unregistered(Linear):
    """A kernel that is not in KERNELS, though it has another one's name."""

    name: ClassVar[str] = "linear"


def test_a_kernel_that_is_not_registered_is_refused() -> None:
    with pytest.raises(InputError, match=r"kernel must be one of RBF, Polynomial, Linear, .* it is Unregistered"):
        OnlineLSSVM(Unregistered())
    with pytest.raises(ValueError, match="is not in list"):
        encode_kernel(Unregistered())
    code = encode_kernel(Linear())
    assert np.isnan(column(code._replace(position=len(KERNELS)), np.ones((3, 2)), np.ones(2))).all()
