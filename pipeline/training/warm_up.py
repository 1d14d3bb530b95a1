"""Compiles the learner ahead of the first row: a run says what it waits for, and rates are those of learning."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.online.compiled.jit import noticing_compilation
from ridgestream.pipeline.online.compiled.update import run_rows
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM

_ROWS, _BASIS = 16, 4


def compile_learner(begin: Callable[[], None]) -> None:
    """Compile what learning takes, some ten seconds, or load it from the cache, less than one, by learning a few rows.

    `begin` is called once before the compilation, and never where the machine code is in the cache. All kernels and
    selection rules share the code.
    """
    rng = np.random.default_rng(0)
    with noticing_compilation(begin):
        learner = OnlineLSSVM(RBF(gamma=1.0), regularization=1e-3, max_basis=_BASIS)
        learner.partial_fit(rng.normal(size=(_ROWS, 2)), rng.normal(size=_ROWS))


def compile_learner_as_step(report: Reporter) -> None:
    """Compile the learner as a step of its own; nothing is reported where it is in the cache."""
    begun = []

    def begin() -> None:
        begun.append(True)
        report.say(events.TRAIN_COMPILING)
        report.begin(events.STEP_COMPILE, None)

    compile_learner(begin)
    if begun:
        report.end()


def cache_path() -> str | None:
    """Return the folder in which the learner's machine code is cached; None where it is not."""
    statistics = getattr(cast("Any", run_rows), "stats", None)  # none where numba is told not to compile
    return statistics.cache_path if statistics is not None else None
