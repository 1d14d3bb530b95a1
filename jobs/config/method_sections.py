"""The sections of a job file that belong to one batch method each, and which keys of [model] a method takes."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ridgestream.jobs.config.section import Count, NotNegative, Positive, Section

CountOrAll = Count | Literal["all"]
Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class OLSSection(Section):
    """Forward selection by orthogonal least squares."""

    candidates: CountOrAll = 59
    """Rows that each round chooses from, drawn at random, or "all"."""
    look_ahead: Count | None = None
    """Rounds whose candidates share a pass; it changes no choice, and follows from the sizes if not given."""
    gcv: bool = False
    """Whether generalized cross-validation decides the size, up to max_basis."""
    patience: Count = 10
    """With gcv: vectors that are chosen in the hope that it falls again."""


class FVSSection(Section):
    """Selection by the reconstruction error of all rows from all rows, which asks no target."""

    spanned_threshold: Annotated[float, Field(gt=0, lt=1)] = 1e-8
    """ε: a candidate of whose squared length in feature space no more than this share is left is none."""
    reconstruction_threshold: Share = 0.0
    """τ: where the mean reconstruction error is as small, selection ends."""
    look_ahead: Count | None = None
    """Rounds whose candidates share a pass; it changes no choice, and follows from the sizes if not given."""


class EFVSSection(FVSSection):
    """Selection by the reconstruction error among candidates that are drawn."""

    candidates: CountOrAll = 59
    """ρ: rows that each round chooses from, drawn at random, or "all"."""
    sample: CountOrAll = "all"
    """ν: rows that each round judges its candidates by, drawn at random, or "all"."""


class OROLSSection(Section):
    """Selection by the largest residual."""

    tolerance: Positive = 1e-2
    """λ stands still if a step changes it by no more than this share."""
    patience: Count = 3
    """Steps in a row in which λ must have stood still."""
    condition_limit: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 1e5
    """The largest condition number of the orthogonal columns."""


class StartSection(Section):
    """A method that begins with a dictionary."""

    start: Literal["random", "k-means", "given"] = "random"
    """Rows drawn at random, centres of k-means, or the rows of `model.dictionary`."""
    start_basis: Count = 500
    """How many vectors it begins with; of a given dictionary, all rows are taken."""


class SubsetOfRegressorsSection(StartSection):
    """The exact coefficients of a dictionary."""


class ISLSSVMSection(StartSection):
    """Pruning by the smallest coefficients."""

    start: Literal["random", "k-means", "given", "efvs"] = "random"  # type: ignore[assignment]
    """As for subset-of-regressors, or what EFVS selects by the settings under `model.efvs`."""
    step: Share = 0.05
    """The share of vectors dropped a step, one at least; 0 for one by one."""
    smallest: Count = 1
    """Where the path ends."""
    score: Literal["coefficient", "cost"] = "coefficient"
    """What vectors are kept for: |β|, as in the paper, or what the regularized cost would rise by without them."""


class SLSSVMSection(Section):
    """Pruning of the LS-SVM over all rows."""

    step: Share = 0.05
    """The share of vectors dropped a step, one at least; 0 for one by one."""
    smallest: Annotated[int, Field(ge=2)] = 2
    """Where the path ends."""
    selection_folds: Annotated[int, Field(ge=0)] = 4
    """Folds by which λ and gamma are selected at each step; 0 leaves out one by one."""

    @model_validator(mode="after")
    def _check_folds(self) -> Self:
        if self.selection_folds == 1:
            raise ValueError("selection_folds is 0, to leave out one by one, or 2 or more")
        return self


class ShardMergeSelectSection(Section):
    """Dictionaries learned side by side, and one selection from their union."""

    shards: Count = 8
    """How many runs of rows learn a dictionary of their own."""
    shard_basis: Count = 250
    """The largest dictionary of a shard."""
    shard_regularization: Positive = 1e-5
    """λ per row of the shards' learners."""
    novelty_threshold: NotNegative = 1e-2
    """TOL1 of the shards' learners."""
    usefulness_threshold: NotNegative = 1e-4
    """TOL2 of the shards' learners."""


METHOD_SECTIONS: dict[str, type[Section]] = {
    "ols": OLSSection,
    "efvs": EFVSSection,
    "fvs": FVSSection,
    "orols": OROLSSection,
    "isls_svm": ISLSSVMSection,
    "subset_of_regressors": SubsetOfRegressorsSection,
    "sls_svm": SLSSVMSection,
    "shard_merge_select": ShardMergeSelectSection,
}
"""Every section by its key under [model]."""

_ONLINE = {
    "regularization",
    "max_basis",
    "selection",
    "dictionary",
    "random_basis",
    "random_seed",
    "novelty_threshold",
    "usefulness_threshold",
    "refit",
}
_BATCH = {"regularization", "max_basis", "random_seed", "folds", "reselect", "drift_margin"}
_DENSE = {"regularization"}
_TAKEN = {
    "online": _ONLINE,
    "shard-merge-select": _BATCH | {"shard_merge_select"},
    "ols": _BATCH | {"ols"},
    "efvs": _BATCH | {"efvs"},
    "fvs": _BATCH | {"fvs"},
    "orols": _BATCH - {"regularization"} | {"orols"},
    "isls-svm": _BATCH | {"isls_svm", "efvs", "dictionary"},
    "subset-of-regressors": _BATCH - {"max_basis"} | {"subset_of_regressors", "dictionary"},
    "ls-svm": _DENSE,
    "sls-svm": _DENSE | {"max_basis", "folds", "random_seed", "sls_svm"},
    "kernel-ridge": _DENSE,
}


def check_method(method: str, given: set[str]) -> None:
    """Raise ValueError naming the keys of [model] that are given and that the method does not take."""
    untaken = sorted(given - _TAKEN[method])
    if untaken:
        raise ValueError(f"method {method} takes no {', '.join(untaken)}")
