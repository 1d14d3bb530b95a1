"""Methods with an initial dictionary: random rows, k-means centres, given or all rows, or rows that are selected."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.settings import Count
from ridgestream.pipeline.batch.efvs import EFVSSettings, select_basis, selection_passes
from ridgestream.pipeline.batch.method import FitTask, PassPlan, PlanTask, Sizes, sum_pass
from ridgestream.pipeline.batch.shared_settings import (
    MethodSettings,
    SharedFolds,
    SharedRegularizations,
    SharedReselection,
)
from ridgestream.pipeline.selection.candidate_rounds import take_present
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.selection.starts.incomplete_cholesky import pivoted_rows
from ridgestream.pipeline.selection.starts.kmeans import kmeans_centres
from ridgestream.pipeline.selection.starts.matching_pursuit import CANDIDATES, pursued_rows
from ridgestream.pipeline.selection.starts.random_rows import draw_rows

Start = Literal["random", "k-means", "given", "incomplete-cholesky", "matching-pursuit", "efvs", "all"]
"""The name of an initial dictionary."""

KMEANS_PASSES = 3
"""The number of passes over all rows that move k-means centres."""


@dataclass(frozen=True)
class StartSettings(SharedReselection, SharedFolds, SharedRegularizations, MethodSettings):
    """A method that starts from a dictionary."""

    also_takes: ClassVar[frozenset[str]] = frozenset({"dictionary"})

    start: Start = "random"
    """The initial dictionary: rows drawn at random, centres of k-means, the rows of `model.dictionary`, the pivots of
    an incomplete Cholesky factorization, or the rows that kernel matching pursuit chooses."""
    start_basis: Count = 500
    """The size of the initial dictionary; of a given one, and of all rows, all are used."""


def initial_dictionary(task: FitTask[Any]) -> StartingDictionary:
    """Return the initial dictionary of the task's `StartSettings`; if it depends on a kernel, on the first one.

    Raises InputError if a given dictionary is asked for and none is given.
    """
    settings: StartSettings = task.settings
    n_basis, kernel = min(settings.start_basis, task.rows.n_rows), task.kernels[0]
    if settings.start == "random":
        return draw_rows(task.rows, kernel, n_basis, settings.random_seed)
    if settings.start == "k-means":
        return kmeans_centres(task.rows, n_basis, settings.random_seed, KMEANS_PASSES, task.report)
    if settings.start == "incomplete-cholesky":
        return pivoted_rows(task.rows, kernel, n_basis, settings.random_seed)
    if settings.start == "matching-pursuit":
        return pursued_rows(task.rows, kernel, n_basis, settings.random_seed)
    if settings.start == "all":
        present = take_present(task.rows, np.arange(task.rows.n_rows))
        return StartingDictionary(present.features, present.places)
    if settings.start == "efvs":
        efvs: EFVSSettings = replace(task.others["efvs"], max_basis=n_basis, memory_limit=task.memory_limit_bytes)
        selection = select_basis(task.rows, kernel, efvs, task.report)
        return StartingDictionary(selection.vectors, selection.places)
    if task.given is None:
        raise InputError("a given dictionary to start from needs model.dictionary, a Parquet file of its rows")
    return task.given


def start_sizes(task: PlanTask[Any]) -> Sizes:
    """Return the sizes of a method that starts from a dictionary, and may have a bias."""
    pool = CANDIDATES if task.settings.start == "matching-pursuit" else 1
    return Sizes(min(pool * _start_basis(task), max(task.n_rows, _start_basis(task))) + 1)


def start_passes(task: PlanTask[Any]) -> Iterator[PassPlan]:
    """Yield the passes that choose the initial dictionary, and the one that sums its products."""
    n_basis = _start_basis(task)
    if task.settings.start == "k-means":
        yield from (PassPlan(n_basis, n_basis) for _ in range(KMEANS_PASSES))
    if task.settings.start == "efvs":
        yield from selection_passes(task.others["efvs"], n_basis, task.n_rows)
    if task.settings.start == "matching-pursuit":
        yield sum_pass(min(CANDIDATES * n_basis, task.n_rows))
    yield sum_pass(n_basis + 1, task.n_kernels)


def _start_basis(task: PlanTask[Any]) -> int:
    if task.settings.start == "all":
        return task.n_rows
    return task.given_basis or min(int(task.settings.start_basis), task.n_rows)
