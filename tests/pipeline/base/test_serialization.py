"""Values converted to plain JSON and arrays, and back to a given type."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.serialization import from_plain, hash_of, to_plain
from ridgestream.pipeline.kernels import RBF, Linear, Polynomial
from ridgestream.pipeline.prediction.evaluate import Evaluation
from ridgestream.pipeline.sums.normal_equations import BlockStatistics, FoldedStatistics, SeveralStatistics


def statistics(seed: int) -> BlockStatistics:
    rng = np.random.default_rng(seed)
    return BlockStatistics(rng.random((3, 3)), rng.random((3, 2)), rng.random((2, 2)), 7.5, 9)


def test_sums_round_trip_bit_for_bit() -> None:
    sums = SeveralStatistics((FoldedStatistics((statistics(0), statistics(1))), FoldedStatistics((statistics(2),))))
    plain, arrays = to_plain(sums)
    restored = from_plain(SeveralStatistics, json.loads(json.dumps(plain)), arrays)
    assert isinstance(restored, SeveralStatistics)
    for part, expected in zip(restored.parts, sums.parts, strict=True):
        for fold, other in zip(part.folds, expected.folds, strict=True):
            assert fold.products.tobytes() == other.products.tobytes()
            assert (fold.weight, fold.rows) == (7.5, 9)


def test_tuples_and_none_round_trip() -> None:
    evaluation = Evaluation(3.0, 1.0, (0.5, 0.25), classes=False, confusion=((1.0, 2.0), (0.0, 0.0)))
    plain, arrays = to_plain(evaluation)
    assert from_plain(Evaluation, json.loads(json.dumps(plain)), arrays) == evaluation


def test_a_value_of_another_type_is_refused() -> None:
    plain, arrays = to_plain(statistics(0))
    with pytest.raises(InputError, match="a FoldedStatistics has the fields folds; this has"):
        from_plain(FoldedStatistics, plain, arrays)
    with pytest.raises(InputError, match="the stored value is not a <class 'float'>"):
        from_plain(float, {"other": 1}, arrays)
    with pytest.raises(InputError, match="a set is not a plain value"):
        to_plain({1, 2})


@dataclass(frozen=True)
class Pair:
    """A dataclass to hash."""

    left: Floats
    right: object


def test_a_hash_depends_only_on_numbers_strings_and_types() -> None:
    a = np.arange(4.0)
    assert hash_of(Pair(a, RBF(0.5))) == hash_of(Pair(a.copy(), RBF(0.5)))
    assert hash_of(Pair(a[::2], RBF(0.5))) == hash_of(Pair(np.array([0.0, 2.0]), RBF(0.5)))
    others = [
        Pair(a + 1e-16 * (a == 0), RBF(0.5)),
        Pair(a, RBF(0.25)),
        Pair(a, Polynomial(0.5)),
        Pair(a, Linear()),
        Pair(a.astype(np.float32), RBF(0.5)),
        Pair(a.reshape(2, 2), RBF(0.5)),
        Pair(a, None),
    ]
    assert len({hash_of(Pair(a, RBF(0.5))), *(hash_of(other) for other in others)}) == 1 + len(others)
