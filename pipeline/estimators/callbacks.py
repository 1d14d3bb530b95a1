"""Callbacks of scikit-learn, from 1.9 on: a fit is a task, so is each step in it, and each piece of rows in a step.

A callback that asks to stop is not followed: the model would lack rows silently.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from ridgestream.pipeline.base.events import Event, Step
from ridgestream.pipeline.base.reporter import Fact, Reporter

Method = TypeVar("Method", bound=Callable[..., Any])
_callback: Any = import_module("sklearn.callback") if find_spec("sklearn.callback") else None


class NoCallbacks:
    """What estimators have in place of callbacks where scikit-learn has none: nothing."""


CallbackSupport: Any = _callback.CallbackSupportMixin if _callback else NoCallbacks


def with_callbacks(method: Method) -> Method:
    """Return a method that fits, after which callbacks are torn down."""
    managed: Method = _callback.with_callbacks(method) if _callback else method
    return managed


@contextmanager
def fit_task(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Iterator[None]:
    """Report to an estimator's callbacks that its fit begins and, unless it fails, ends."""
    if isinstance(estimator, NoCallbacks):
        yield
        return
    task = estimator._init_callback_context(max_subtasks=None)  # noqa: SLF001 (as scikit-learn documents it)
    rows = {
        "X": None if isinstance(X, Iterator) else X,
        "y": y,
        "metadata": None if sample_weight is None else {"sample_weight": sample_weight},
    }
    task.call_on_fit_task_begin(estimator=estimator, **rows)
    yield
    task.call_on_fit_task_end(estimator=estimator, **rows, reconstruction_attributes={})


def heard_by_callbacks(estimator: Any, report: Reporter) -> Reporter:
    """Return the reporter of a fit, through which its callbacks hear of steps; the given one if it has none."""
    return _Tasks(estimator, report) if getattr(estimator, "_skl_callbacks", None) else report


class _Tasks:
    """A reporter that also reports tasks to callbacks."""

    def __init__(self, estimator: Any, report: Reporter) -> None:
        self._estimator, self._report = estimator, report
        self._tasks: list[Any] = [estimator._callback_fit_ctx]  # noqa: SLF001 (which `_init_callback_context` has set)

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:
        """Begin the task of a step."""
        self._report.begin(step, total_rows, **facts)
        self._tasks.append(self._subtask(step.name, max_subtasks=None))

    def advance(self, rows: int, **facts: Fact) -> None:
        """Report rows as a task of the step that has ended."""
        self._report.advance(rows, **facts)
        self._subtask(f"{rows} rows", max_subtasks=0).call_on_fit_task_end(estimator=self._estimator)

    def end(self, **facts: Fact) -> None:
        """End the task of the step."""
        self._report.end(**facts)
        self._tasks.pop().call_on_fit_task_end(estimator=self._estimator)

    def say(self, event: Event, **facts: Fact) -> None:
        """Pass an event on."""
        self._report.say(event, **facts)

    def warn(self, event: Event, **facts: Fact) -> None:
        """Pass an event on."""
        self._report.warn(event, **facts)

    def _subtask(self, name: str, max_subtasks: int | None) -> Any:
        task = self._tasks[-1].subcontext(task_name=name, max_subtasks=max_subtasks)
        return task.call_on_fit_task_begin(estimator=self._estimator)
