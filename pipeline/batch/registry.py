"""The batch methods by their names in job files."""

from collections.abc import Iterable
from typing import Any

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.settings import settings_of
from ridgestream.pipeline.batch import efvs, isls_svm, ols, shard_merge_select, subset_of_regressors
from ridgestream.pipeline.batch.dense import kernel_ridge, ls_svm, sls_svm
from ridgestream.pipeline.batch.method import Method
from ridgestream.pipeline.batch.orols import method as orols

METHODS: dict[str, Method[Any]] = {
    "shard-merge-select": shard_merge_select.METHOD,
    "ols": ols.METHOD,
    "efvs": efvs.EFVS,
    "fvs": efvs.FVS,
    "orols": orols.METHOD,
    "isls-svm": isls_svm.METHOD,
    "subset-of-regressors": subset_of_regressors.METHOD,
    "ls-svm": ls_svm.METHOD,
    "sls-svm": sls_svm.METHOD,
    "kernel-ridge": kernel_ridge.METHOD,
}
"""Every batch method."""


def section_of(method: str) -> str:
    """Return the key below `[model]` of a method's section: `isls_svm` for `isls-svm`."""
    return method.replace("-", "_")


def check_options(method: str, options: Iterable[str]) -> frozenset[str]:
    """Return the names of a method's settings for Python programs; raises InputError for an option that is none."""
    names = {setting.name for setting in settings_of(METHODS[method].settings)} - {"reselect", "drift_margin"}
    untaken = sorted(set(options) - names)
    if untaken:
        raise InputError(f"method {method} has no option {untaken[0]}; it has {', '.join(sorted(names))}")
    return frozenset(names)
