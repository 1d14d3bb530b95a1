"""Checks of the arrays users pass: which rows, targets and weights are accepted, and the messages for others."""

from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from ridgestream.pipeline.base.array_checks import check_rows, check_targets, check_weights
from ridgestream.pipeline.base.errors import InputError

MASKED = np.ma.masked_array(np.arange(6.0).reshape(3, 2), mask=np.arange(6).reshape(3, 2) == 3)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (MASKED, "^X is masked at row 1, column 1: fill it in, or leave its row out$"),
        (sparse.csr_matrix(np.eye(2)), r"^X must be a dense array, it is a csr_matrix: pass X.toarray\(\)$"),
        (sparse.coo_array(np.eye(2)), r"^X must be a dense array, it is a coo_array: pass X.toarray\(\)$"),
        (np.full((2, 2), 1 + 1j), "^X must hold real numbers, it is of type complex128$"),
        (np.full((2, 2), "2026-01-01", dtype="M8[D]"), r"^X must hold real numbers, it is of type datetime64\[D\]$"),
        (np.full((2, 2), 3, dtype="m8[s]"), r"^X must hold real numbers, it is of type timedelta64\[s\]$"),
        ([[datetime(2026, 1, 1, tzinfo=UTC)]], "^X must hold real numbers, row by row: float"),
        ([[1.0, 2.0], [3.0]], "^X must hold real numbers, row by row: .*inhomogeneous"),
        ([["red"]], "^X must hold real numbers, row by row: could not convert string to float: .*red"),
        ([[10**400]], "^X must hold real numbers, row by row: int too large"),
    ],
)
def test_rows_that_are_not_a_dense_real_array_are_refused(X: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_rows(X)


def test_invalid_targets_and_weights_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"^y is masked at row 1, column 1: "):
        check_targets(MASKED, 3)
    with pytest.raises(InputError, match=r"^y is masked at row 1: "):
        check_targets(MASKED[:, 1], 3)
    with pytest.raises(InputError, match=r"^sample_weight is masked at row 1: "):
        check_weights(MASKED[:, 1], 3)
    with pytest.raises(InputError, match=r"^y must hold real numbers, it is of type complex64"):
        check_targets(np.ones(3, dtype=np.complex64), 3)


@pytest.mark.parametrize(
    "X",
    [
        [[1, 2], [3, 4]],
        np.array([[1, 2], [3, 4]], dtype=np.uint8),
        np.asfortranarray([[1.0, 2.0], [3.0, 4.0]]),
        np.array([[1, 2], [3, 4]], dtype=object),
        [[Decimal(1), Decimal(2)], [Decimal(3), Decimal(4)]],
        np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], mask=False),
    ],
)
def test_real_numbers_of_any_type_are_accepted(X: Any) -> None:
    rows = check_rows(X)
    assert type(rows) is np.ndarray
    assert rows.flags.c_contiguous
    assert (rows == [[1.0, 2.0], [3.0, 4.0]]).all()


def test_rows_that_need_no_change_are_not_copied() -> None:
    X = np.ones((3, 2))
    assert check_rows(X) is X


EXACT = {
    "int64": np.array,
    "objects": lambda rows: np.array(rows, dtype=object),
    "decimals": lambda rows: np.array([[Decimal(value) for value in row] for row in rows], dtype=object),
    "a list": lambda rows: rows,
}


@pytest.mark.parametrize("value", [2**53 + 1, -(2**63), 2**60])
@pytest.mark.parametrize("make", EXACT.values(), ids=EXACT.keys())
def test_whole_numbers_that_float64_may_change_are_refused(value: int, make: Any) -> None:
    rows = make([[0], [value]])
    for check, name in ((check_rows, "X"), (partial(check_targets, n_rows=2), "y")):
        with pytest.raises(InputError, match=rf"^{name} has {value}; beyond 2⁵³ .* are not exact: pass floats$"):
            check(rows)
    with pytest.raises(InputError, match=rf"^sample_weight has {value}; beyond 2⁵³"):
        check_weights([row[0] for row in rows], 2)
    largest = int(np.sign(value)) * 2**53
    assert check_rows(make([[0], [largest]]))[1, 0] == largest
    assert check_rows([[0.0], [float(value)]])[1, 0] == float(value)


def test_unsigned_numbers_beyond_the_signed_ones_are_refused() -> None:
    with pytest.raises(InputError, match=r"^X has 18446744073709551615; beyond 2⁵³"):
        check_rows(np.array([[2**64 - 1]], dtype=np.uint64))
