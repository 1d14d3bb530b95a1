"""Callbacks of scikit-learn hear of a fit, its steps and their rows; where it has none, estimators have none."""

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from ridgestream import InputError, OnlineLSSVMRegressor, SparseKernelRegressor

callback: Any = pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks from 1.9 on")
PLAIN: dict[str, Any] = {"gamma": 0.3, "regularization": 1e-4, "max_basis": 15, "metric": "standardized"}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] / 2


class Heard:
    def __init__(self) -> None:
        self.tasks: list[tuple[str, str]] = []
        self.rows: list[int] = []
        self.scores: list[float] = []

    def setup(self, estimator: Any, context: Any) -> None:  # noqa: ARG002 (of the protocol)
        self.tasks.append(("setup", context.task_name))

    def teardown(self, estimator: Any, context: Any) -> None:  # noqa: ARG002
        self.tasks.append(("teardown", context.task_name))

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:  # noqa: ARG002
        self.tasks.append(("begin", context.task_name))

    def on_fit_task_end(self, estimator: Any, context: Any, *, X: Any, y: Any, fitted_estimator: Any) -> None:  # noqa: ARG002
        self.tasks.append(("end", context.task_name))
        if fitted_estimator is not None and X is not None:
            self.rows.append(len(X))
            self.scores.append(fitted_estimator.score(X, y))


@pytest.mark.parametrize("estimator", [OnlineLSSVMRegressor(**PLAIN), SparseKernelRegressor(**PLAIN)])
def test_a_fit_is_a_task_and_so_is_each_step(estimator: Any) -> None:
    heard = Heard()
    plain = type(estimator)(**estimator.get_params()).fit(X, Y)
    assert estimator.set_callbacks(heard).fit(X, Y) is estimator
    assert heard.tasks[:2] == [("setup", "fit"), ("begin", "fit")]
    assert heard.tasks[-2:] == [("end", "fit"), ("teardown", "fit")]
    begun, ended = ({name for when, name in heard.tasks if when == what} for what in ("begin", "end"))
    assert begun == ended
    assert len(begun) > 1
    assert (heard.rows, heard.scores) == ([400], [plain.score(X, Y)])
    assert np.array_equal(estimator.coefficients_, plain.coefficients_)
    estimator.set_callbacks()
    assert np.array_equal(pickle.loads(pickle.dumps(estimator)).predict(X), plain.predict(X))  # noqa: S301


def test_a_stream_of_blocks_is_one_task() -> None:
    heard = Heard()
    OnlineLSSVMRegressor(**PLAIN).set_callbacks(heard).fit(iter([(X[:200], Y[:200]), (X[200:], Y[200:])]))
    assert [task for task in heard.tasks if task[1] == "fit"][:2] == [("setup", "fit"), ("begin", "fit")]
    assert sum(task == ("begin", "train") for task in heard.tasks) == 2


def test_a_fit_that_fails_is_torn_down() -> None:
    heard = Heard()
    with pytest.raises(InputError, match="missing must be one of"):
        OnlineLSSVMRegressor(**PLAIN, missing="drop").set_callbacks(heard).fit(X, Y)
    assert heard.tasks == [("setup", "fit"), ("begin", "fit"), ("teardown", "fit")]


def test_a_scikit_learn_without_callbacks_is_enough() -> None:
    program = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "sklearn.callback" else found(name, package)
import numpy as np, ridgestream
X = np.arange(40.0).reshape(20, 2)
settings = {"gamma": 1.0, "regularization": 1.0, "metric": "standardized"}
model = ridgestream.SparseKernelRegressor("ls-svm", **settings).fit(X, X[:, 0])
assert not hasattr(model, "set_callbacks") and model.predict(X).shape == (20,)"""
    subprocess.run([sys.executable, "-c", program], check=True)
