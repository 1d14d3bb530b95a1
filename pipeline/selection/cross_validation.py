"""Cross-validation: models over a basis compared by their errors on folds left out, from separate sums of each fold.

A fold's sums are subtracted from the total, the model is fitted to the difference, and its squared error on the fold
follows from the fold's sums, Σ w(y − kᵀβ)² = yy − 2βᵀz + βᵀGβ. So one pass over the rows suffices for every
regularization, size and fold; each kernel needs sums of its own, formed in the same pass.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.kernels import Kernel, check_positive
from ridgestream.pipeline.selection.backward_elimination import PrunedModel, Score, walk
from ridgestream.pipeline.selection.fit_result import Fitted, Path
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import BlockStatistics, FoldedStatistics, Summing
from ridgestream.pipeline.sums.row_set import RowSet

ROUNDING = 2.0**-50
"""An error below this share of the squares that it is the difference of is rounding."""


@dataclass(frozen=True)
class Grid:
    """The regularizations to compare over each basis, and the folds that compare them."""

    regularizations: tuple[float, ...]
    """λ per row, each above zero."""
    folds: int
    """The number of folds; 1 compares nothing."""
    fold_seed: int
    """The seed with which rows are assigned to folds."""

    def check(self, n_kernels: int) -> None:
        """Raise InputError unless there is something to choose from, and folds where there is a choice."""
        check_choices(n_kernels, self.regularizations)
        if self.folds < 1:
            raise InputError(f"folds must be at least 1, which is no cross-validation, it is {self.folds}")
        if self.folds == 1 and (n_kernels > 1 or len(self.regularizations) > 1):
            raise InputError(
                f"folds = 1 cannot choose from {n_kernels} kernels and {len(self.regularizations)} regularizations: "
                "give folds = 2 or more, or one of each"
            )


@dataclass(frozen=True)
class Candidates:
    """Models over one basis that are compared: every regularization and every size."""

    basis: Basis
    """The whole dictionary and the kernel."""
    places: Integers
    """The row indices of its vectors, shape (n_basis,)."""
    sums: FoldedStatistics
    """The sums over all rows, by fold."""
    sizes: Sequence[int]
    """The sizes of the models, descending from that of the whole dictionary."""
    regularizations: Sequence[float]
    """Every λ per row."""
    dependent: int = 0
    """The number of vectors that were removed because the others span them."""
    score: Score = "coefficient"
    """The score by which vectors are pruned."""

    def fold_errors(self, report: Reporter) -> Floats:
        """Return the mean squared error on folds left out, shape (n_regularizations, n_sizes).

        The mean is over rows, by weight, and targets. Models are fitted and pruned for each fold without its rows; each
        that is about to be is reported, since none may take minutes silently.
        O(folds · n_regularizations · n_basis³). Raises InputError if a fold holds all rows.
        """
        penalty, total = self.basis.penalty(), self.sums.total()
        errors = np.zeros((len(self.regularizations), len(self.sizes)))
        for number, fold in enumerate(self.sums.folds):
            training = total.subtract(fold)
            if training.weight <= ROUNDING * total.weight:
                raise InputError("one fold holds every row of weight above zero: give more rows, or folds = 1")
            for index, regularization in enumerate(self.regularizations):
                report.advance(0, fold_left_out=number + 1, folds=len(self.sums.folds), regularization=regularization)
                errors[index] += squared_errors(fold, self._walk(training, penalty, regularization, self.sizes))
        return np.asarray(errors / (total.weight * total.rhs.shape[1]))

    def fit(self, regularization: float, size: int, path: Path | None = None) -> Fitted:
        """Return the model of this size on the path of this λ over all rows; O(n_basis³)."""
        total, sizes = self.sums.total(), [s for s in self.sizes if s >= size]
        model = deque(self._walk(total, self.basis.penalty(), regularization, sizes), maxlen=1).pop()
        vectors = model.kept[: len(model.kept) - self.basis.constant]
        basis = Basis(self.basis.kernel, self.basis.vectors[vectors], self.basis.centre, self.basis.constant)
        notes = {"passes": 1.0, "jitter": model.jitter, "dependent": float(self.dependent)}
        sums = self.sums.choose(model.kept)
        return Fitted(basis, self.places[vectors], model.coefficients, regularization, sums, path, notes)

    def _walk(
        self, sums: BlockStatistics, penalty: Floats, regularization: float, sizes: Sequence[int]
    ) -> Iterator[PrunedModel]:
        return walk(sums, penalty, regularization, sizes, constant=self.basis.constant, score=self.score)


def gather_candidates(
    rows: RowSet,
    kernels: Sequence[Kernel],
    start: StartingDictionary,
    grid: Grid,
    plan: Callable[[int], Sequence[int]],
    *,
    constant: bool,
    step: events.Step,
    score: Score = "coefficient",
) -> list[Candidates]:
    """Return the models to compare for every kernel, from one pass, reported as `step`.

    `plan` returns the sizes of the path from the size of the initial dictionary. O(n_basis·(n_basis + n_features)) per
    row and kernel. Raises InputError for a grid, a dictionary or rows that leave nothing to compare.
    """
    grid.check(len(kernels))
    start.check(rows.n_features)
    starts = [start.independent(kernel) for kernel in kernels]
    bases = [s.basis(kernel, constant=constant) for s, kernel in zip(starts, kernels, strict=True)]
    summed = rows.statistics([Summing(b, rows.n_targets, grid.folds, grid.fold_seed) for b in bases], step)
    if not any(fold.weight for fold in summed.parts[0].folds):
        raise InputError("there is no row of weight above zero to fit a model to")
    return [
        Candidates(
            basis,
            s.places,
            sums,
            plan(len(s.vectors)),
            grid.regularizations,
            len(start.vectors) - len(s.vectors),
            score,
        )
        for basis, s, sums in zip(bases, starts, summed.parts, strict=True)
    ]


def squared_errors(held: BlockStatistics, models: Iterator[PrunedModel]) -> Floats:
    """Return Σ w(y − kᵀβ)² over the rows of `held`, summed over targets, of each model: shape (n_models,).

    O(n_basis²) per model, by matrix products. An error is at least the rounding error of the squares that it is the
    difference of, so that a model with very large coefficients does not appear to be a good one.
    """
    n, n_targets = held.rhs.shape
    at_once, errors, waiting = max(1, n // n_targets), [np.zeros(0)], 0
    coefficients = np.zeros((n, at_once, n_targets))
    for model in models:
        coefficients[model.kept, waiting] = model.coefficients
        waiting += 1
        if waiting == at_once:
            errors.append(errors_above_rounding(held, coefficients))
            coefficients[:], waiting = 0.0, 0
    errors.append(errors_above_rounding(held, coefficients[:, :waiting]))
    return np.concatenate(errors)


def errors_above_rounding(held: BlockStatistics, coefficients: Floats) -> Floats:
    """Return each model's squared error with coefficients (n_functions, n_models, n_targets), at least its rounding."""
    n, n_models, n_targets = coefficients.shape
    beta = coefficients.reshape(n, n_models * n_targets)
    squares = np.tile(np.diagonal(held.target_square), n_models)
    fitted = np.einsum("ij,ij->j", beta, held.products @ beta)
    crossed = np.einsum("imt,it->mt", coefficients, held.rhs).ravel()
    lengths = np.sqrt(squares) + np.sqrt(np.diagonal(held.products)) @ np.abs(beta)
    errors = np.maximum(squares - 2 * crossed + fitted, ROUNDING * lengths**2)
    return np.asarray(errors.reshape(n_models, n_targets).sum(axis=1))


def fit_best(compared: Sequence[Candidates], max_basis: int | None, report: Reporter) -> Fitted:
    """Return the model of smallest cross-validation error, fitted to all rows, with the path of all errors.

    Only models of at most `max_basis` vectors are chosen. Of equal errors, the earlier kernel, the earlier
    regularization and the larger dictionary win. With a single fold there must be one kernel and one regularization,
    and the largest allowed model is returned.
    """
    if len(compared[0].sums.folds) == 1:
        (only,) = compared
        (regularization,) = only.regularizations
        return only.fit(regularization, next(s for s in only.sizes if _fits(s, max_basis)))
    errors = []
    for candidates in compared:
        errors.append(candidates.fold_errors(report))
        facts = {"models": errors[-1].size, "mse": float(errors[-1].min()), **candidates.basis.kernel.parameters()}
        report.say(events.SELECTION_MODELS_COMPARED, **facts)
    path = _make_path(compared, errors, max_basis)
    best = compared[int(path.width[path.chosen])]
    return best.fit(float(path.regularization[path.chosen]), int(path.n_basis[path.chosen]), path)


def check_choices(n_kernels: int, regularizations: Sequence[float]) -> None:
    """Raise InputError unless there is something to choose from, and each λ is above zero."""
    if not n_kernels or not regularizations:
        raise InputError("at least one kernel and one regularization are needed")
    for regularization in regularizations:
        check_positive("each of the regularizations", regularization)


def _make_path(compared: Sequence[Candidates], errors: Sequence[Floats], max_basis: int | None) -> Path:
    shapes = [np.broadcast_to(np.asarray(c.sizes), e.shape) for c, e in zip(compared, errors, strict=True)]
    lambdas = [np.repeat(np.asarray(c.regularizations), len(c.sizes)) for c in compared]
    sizes, values = np.concatenate([s.ravel() for s in shapes]), np.concatenate([e.ravel() for e in errors])
    widths = np.repeat(np.arange(len(compared)), [e.size for e in errors])
    open_to_choice = np.array([_fits(int(size), max_basis) for size in sizes])
    chosen = int(np.argmin(np.where(open_to_choice, values, np.inf)))
    return Path("fold_error", sizes, np.concatenate(lambdas), values, widths, chosen)


def _fits(size: int, max_basis: int | None) -> bool:
    return max_basis is None or size <= max_basis
