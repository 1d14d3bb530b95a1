"""Column names of tables: what a learner has learned by name it predicts by name, or refuses or warns of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgestream import RBF, InputError, InputWarning, OnlineLSSVM

X = np.random.default_rng(0).standard_normal((20, 3))
y = X[:, 0]


@dataclass
class Named:
    """What a polars frame has of an array and of names."""

    values: Any
    columns: list[str]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.values, dtype=dtype, copy=copy)


TABLES: dict[str, Callable[[Any, list[str]], Any]] = {
    "pandas": lambda values, names: pd.DataFrame(values, columns=names),
    "polars": Named,
    "arrow": lambda values, names: pa.table(dict(zip(names, values.T, strict=True))),
}


def learn(rows: Any, **more: Any) -> OnlineLSSVM:
    return OnlineLSSVM(RBF(0.5), **{"max_basis": 5, **more}).partial_fit(rows, y)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["b", "a", "c"], "in their order; the order differs: select list"),
        (["a", "b", "d"], "it lacks 'c' and it also has 'd': select list"),
        (["a", "b"], "it lacks 'c': select list"),
        (["a", "b", "c", "d"], "it also has 'd': select list"),
    ],
)
def test_other_columns_than_those_learned_are_refused(kind: str, names: list[str], message: str) -> None:
    learner = learn(TABLES[kind](X, ["a", "b", "c"]))
    other = TABLES[kind](np.resize(X, (20, len(names))), names)
    before = learner.predict(TABLES[kind](X, ["a", "b", "c"])).tobytes()
    assert learner.feature_names_in_ == ("a", "b", "c")
    for door in (learner.predict, lambda rows: learner.partial_fit(rows, y)):
        with pytest.raises(InputError, match=message):
            door(other)
    assert learner.rows_seen == 20
    assert learner.predict(TABLES[kind](X, ["a", "b", "c"])).tobytes() == before


@settings(deadline=None, max_examples=20)
@given(
    names=st.lists(st.text(max_size=3), min_size=3, max_size=3, unique=True),
    first=st.sampled_from(sorted(TABLES)),
    second=st.sampled_from(sorted(TABLES)),
    order=st.permutations([0, 1, 2]),
)
def test_the_same_columns_give_the_same_bits_in_every_library(
    names: list[str], first: str, second: str, order: list[int]
) -> None:
    learner = learn(TABLES[first](X, names))
    moved = TABLES[second](X[:, order], [names[i] for i in order])
    if order == [0, 1, 2]:
        assert learner.predict(moved).tobytes() == learn(X).predict(X).tobytes()
    else:
        with pytest.raises(InputError, match="the order differs"):
            learner.predict(moved)


@pytest.mark.parametrize("kind", TABLES)
def test_names_on_one_side_alone_are_warned_of_where_the_user_called(kind: str) -> None:
    table = TABLES[kind](X, ["a", "b", "c"])
    for first, second, which in ((table, X, "the rows learned had"), (X, table, "X has")):
        learner = learn(first)
        for door in (learner.predict, lambda rows, learner=learner: learner.partial_fit(rows, y)):
            with pytest.warns(
                InputWarning, match=f"^only {which} column names: columns are matched by their place"
            ) as w:
                door(second)
            assert w[0].filename == __file__


def test_names_that_are_not_text_do_not_count_and_half_of_them_are_refused() -> None:
    assert learn(pd.DataFrame(X)).feature_names_in_ is None
    with pytest.raises(InputError, match="names of columns must all be text, or none of them, one is 1"):
        learn(pd.DataFrame(X, columns=["a", 1, "c"]))


def test_names_of_a_given_dictionary_count_and_a_restored_learner_learns_them_again() -> None:
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    with pytest.raises(InputError, match="the order differs"):
        learn(table[["b", "a", "c"]], selection="fixed", dictionary=table[:3], max_basis=3)
    learn(table, selection="fixed", dictionary=X[:3], max_basis=3)
    restored = OnlineLSSVM.from_state(learn(table).state())
    restored.predict(X)
    assert restored.partial_fit(table[["c", "b", "a"]], y).feature_names_in_ == ("c", "b", "a")
