"""The passes over all rows that fitting a batch method takes, known from the job and the number of rows alone.

Greedy methods may end before their largest dictionary, and then take fewer; how many OROLS takes, the rows decide.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ridgestream.pipeline.batch.efvs_rounds import ALL_ROUNDS
from ridgestream.pipeline.batch.orols.orols import OrolsSettings
from ridgestream.pipeline.batch.registry import KMEANS_PASSES
from ridgestream.pipeline.selection.candidate_rounds import (
    KERNEL_SECONDS,
    PRODUCT_SECONDS,
    ROW_SECONDS,
    NumberOrAll,
    plan_look_ahead,
)

ONLINE_PRODUCTS = 4.5
"""What an online row costs beside a row of sums over a dictionary of the same size."""

_OROLS_VECTORS = 5
"""Vectors that a pass of OROLS serves, by experience."""


@dataclass(frozen=True)
class PassPlan:
    """One pass."""

    values: int
    """Kernel values of a row."""
    products: int
    """Products that are summed, of a row."""

    @property
    def row_seconds(self) -> float:
        """What a row costs on one thread of the machine that the constants were measured on."""
        return self.values * KERNEL_SECONDS + self.products * PRODUCT_SECONDS + ROW_SECONDS


class Planned(Protocol):
    """What a request says of passes."""

    @property
    def method(self) -> str:
        """The method's name."""

    @property
    def kernels(self) -> Sequence[Mapping[str, float]]:
        """Every kernel that is tried."""

    @property
    def max_basis(self) -> int | None:
        """The largest dictionary."""

    @property
    def options(self) -> Mapping[str, Mapping[str, Any]]:
        """What belongs to some methods alone."""

    @property
    def given_basis(self) -> int:
        """The rows of a given dictionary, 0 for none."""


def plan_passes(request: Planned, n_rows: int) -> tuple[PassPlan, ...]:
    """Return the passes over so many rows, in their order; none without rows."""
    return tuple(_PASSES[request.method](request, n_rows)) if n_rows else ()


def is_sure(request: Planned) -> bool:
    """Tell whether so many passes are made unless candidates run out."""
    ols = request.options.get("ols") if request.method == "ols" else None
    return request.method != "orols" and not (ols and ols["gcv"])


def sum_pass(n_functions: int, kernels: int = 1) -> PassPlan:
    """Return the pass that sums products of so many functions, for each kernel."""
    return PassPlan(kernels * n_functions, kernels * n_functions**2)


def _most_basis(request: Planned, n_rows: int) -> int:
    return min(request.max_basis or n_rows, n_rows)


def _ols(request: Planned, n_rows: int) -> Iterator[PassPlan]:
    options = request.options["ols"]
    yield from _rounds(_most_basis(request, n_rows), n_rows, options["candidates"], options["look_ahead"], n_rows)
    yield sum_pass(_most_basis(request, n_rows))


def _efvs(request: Planned, n_rows: int) -> Iterator[PassPlan]:
    yield from _efvs_choice(request, _most_basis(request, n_rows), n_rows)
    yield sum_pass(_most_basis(request, n_rows))


def _efvs_choice(request: Planned, max_basis: int, n_rows: int) -> Iterator[PassPlan]:
    options = {"candidates": "all", "sample": "all", **(request.options.get("efvs") or request.options["fvs"])}
    if options["sample"] == "all" or options["sample"] >= n_rows:
        yield from _rounds(max_basis, n_rows, options["candidates"], options["look_ahead"], ALL_ROUNDS)


def _rounds(
    max_basis: int, n_rows: int, candidates: NumberOrAll, look_ahead: int | None, ahead_of_all: int
) -> Iterator[PassPlan]:
    """Yield a pass for the candidates of some rounds, each of which chooses one."""
    n_basis = 0
    while n_basis < max_basis:
        if candidates == "all":
            ahead = ahead_of_all if ahead_of_all == n_rows else look_ahead or ahead_of_all
            drawn = n_rows - n_basis
        else:
            ahead = look_ahead or plan_look_ahead(max_basis, n_basis, candidates)
            drawn = min(n_rows, min(ahead, max_basis - n_basis) * candidates)
        yield PassPlan(n_basis + drawn, drawn * (n_basis + drawn))
        n_basis += ahead


def _orols(request: Planned, n_rows: int) -> Iterator[PassPlan]:
    most, pool = _most_basis(request, n_rows), OrolsSettings().pool
    for n_basis in range(0, most, _OROLS_VECTORS):
        yield PassPlan(n_basis + pool, pool * (n_basis + pool))
    yield sum_pass(most + 1)


def _started(request: Planned, n_rows: int) -> Iterator[PassPlan]:
    options = request.options[request.method.replace("-", "_")]
    n_basis = request.given_basis or min(options["start_basis"], n_rows)
    if options["start"] == "k-means":
        yield from (PassPlan(n_basis, n_basis) for _ in range(KMEANS_PASSES))
    if options["start"] == "efvs":
        yield from _efvs_choice(request, n_basis, n_rows)
    yield sum_pass(n_basis + 1, len(request.kernels))


def _shard_merge_select(request: Planned, n_rows: int) -> Iterator[PassPlan]:
    options = request.options["shard_merge_select"]
    n_basis = options["shard_basis"]
    yield PassPlan(round(ONLINE_PRODUCTS * n_basis), round(ONLINE_PRODUCTS * n_basis**2))
    yield sum_pass(min(n_rows, options["shards"] * n_basis))


def _dense(request: Planned, n_rows: int) -> Iterator[PassPlan]:  # noqa: ARG001
    yield sum_pass(n_rows)


_PASSES = {
    "shard-merge-select": _shard_merge_select,
    "ols": _ols,
    "efvs": _efvs,
    "fvs": _efvs,
    "orols": _orols,
    "isls-svm": _started,
    "subset-of-regressors": _started,
    "ls-svm": _dense,
    "sls-svm": _dense,
    "kernel-ridge": _dense,
}
