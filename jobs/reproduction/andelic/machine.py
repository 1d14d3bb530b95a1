"""OROLS on a division of rows, and the width of its kernel by five folds, as in all experiments of Andelić et al."""

from collections.abc import Iterator, Sequence

import numpy as np

from ridgestream.jobs.reproduction.split import Split
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.orols.criteria import RegularizationRule, SizeRule
from ridgestream.pipeline.batch.orols.orols import OrolsFitted, OROLSSettings, fit_orols
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.sums.folds import deal_folds

FOLDS = 5


RULES: dict[str, tuple[RegularizationRule, SizeRule]] = {
    "least GCV": ("gcv", "gcv"),
    "λ by (30) until stationary": ("re-estimation", "stationary"),
    "λ by evidence": ("evidence", "gcv"),
    "size by BIC": ("gcv", "bic"),
    "size by MDL": ("gcv", "mdl"),
    "size by 5 folds": ("gcv", "cv"),
}
"""How λ and the number of vectors are found: by default, as printed in the paper, and the ways that it names."""


def fit(split: Split, gamma: float, rule: str = "least GCV") -> OrolsFitted:
    """Return the model of the training rows."""
    regularization, size = RULES[rule]
    settings = OROLSSettings(max_basis=len(split.X), regularization_rule=regularization, size_rule=size)
    return fit_orols(split.rows, RBF(gamma), settings, Silent())


def predict(fitted: OrolsFitted, split: Split) -> Floats:
    """Return the outputs for the test rows, shape (test rows, n_targets)."""
    return np.asarray(fitted.basis.values(split.X_test) @ fitted.coefficients)


def choose_gamma(splits: Sequence[Split], gammas: Sequence[float]) -> float:
    """Return the γ of least squared error over five folds of the training rows of these divisions."""
    folds = [fold for split in splits for fold in folds_of(split)]
    errors = [float(np.mean([fold.error(predict(fit(fold, gamma), fold)) for fold in folds])) for gamma in gammas]
    return gammas[int(np.argmin(errors))]


def folds_of(split: Split) -> Iterator[Split]:
    """Yield the training rows without each fold, which are the test rows."""
    dealt = deal_folds(0, len(split.X), FOLDS, 0)
    for fold in range(FOLDS):
        out = dealt == fold
        yield Split(split.X[~out], split.y[~out], split.X[out], split.y[out], split.unit)
