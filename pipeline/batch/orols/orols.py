"""OROLS: Andelić, Schafföner, Katz, Krüger & Wendemuth (2007), "Updates for nonlinear discriminants".

Forward selection on rows: each step takes the row with the largest |residual|, makes its kernel column orthogonal to
those before, K = QU, and takes the λ of least generalized cross-validation (27), until λ is stationary. λ penalizes
the orthogonal weights, ‖y − Qα̃‖² + λα̃ᵀα̃, not βᵀKβ, and depends on the order of the vectors. The model served is the
one of least GCV on the path. The other rules that the paper names, for λ and for the number of vectors, are in
`criteria`; with "re-estimation" and "stationary" both are as published.

As in the paper, the constant column comes first and is penalized like the others; λ is zero before the first step;
each class against the rest has one machine, with its own rows and λ. The paper defines neither "changes significantly"
nor a limit of Q's condition: `tolerance`, `patience` and `condition_limit` are ours. The defaults of the first two give
about the paper's sizes. λ is an estimate, whose relative error falls with the square root of the number of rows, and a
change is significant or not by comparison with this error: beyond TOLERANCE_ROWS, `tolerance` falls likewise
(`tolerance_for`).

Errata: (24) holds for one λ only; as λ moves, the residual is y − Σ qᵢ(yᵀqᵢ)/(λ + sᵢ) with new weights. (20)
needs q_m in Q_m, so U has ones on its diagonal. (5) to (18) count the constant column apart, Algorithm 1 as the
first of m. (25) divides by λ + qᵢᵀqᵢ with Q as it is, not normalized, so λ is in units of rows.

Departures, each with its reason:

- Neither the pseudoinverse nor Q is stored: G = KᵀK, which grows by a row and a column per step, gives U, qᵀq and qᵀy
  (`orthogonal_columns`), and residuals are y − Kβ. Memory is O(n_basis²) in every process, for any number of rows.
- No ε on the diagonal: with it, equal rows would get columns that differ only by noise. A row whose column is spanned,
  or would raise Q's condition above `condition_limit`, is excluded; the machine stops after REFUSALS consecutive
  exclusions. Rows equal to one that is taken or excluded are skipped, by a key of their values.
- A pass confirms several steps (`binary_machine`): steps are predicted from the rows whose columns are known, one pass
  computes the residuals of all predicted models, and a step is confirmed if its row has the largest residual of all.
  The choices are the same, with fewer passes; `foreseen` and `pool` affect nothing else.
- Rows may have weights; M is their sum. A row of weight two counts as two rows.
- (30) is one step towards a λ at which GCV is stationary, and can run past the least to an end of λ's range. Here λ is
  that of least GCV over the range (`CrossValidation`), which has an upper bound, for targets from which nothing can be
  learned: see LARGEST_SHARE.
- The folds of "cv" each have a selection of their own, from the rows of the others; the size of least error on the
  rows left out, for each machine, is that of the selection from all rows.
- Other rules choose the next row among candidates (`pursuit`); the paper names them, and uses none.
- A path also ends where GCV has not fallen for long: on few noisy rows λ never stands still, and GCV, which does not
  count the choice of the rows, falls again once there are nearly as many vectors as rows.
- The model has one dictionary. Machines contribute one vector each in turn, up to `max_basis` different ones; a
  machine's coefficient of another machine's vector is zero.

A refit needs no rows: after the sums of new partitions are added to those of the dictionary, `Machines.coefficients`
factorizes G in each machine's order and keeps its λ per row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Self

import numpy as np
from annotated_types import Ge, Gt
from scipy.linalg import solve_triangular

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.bounds import check_bounds
from ridgestream.pipeline.base.errors import InputError, NumericalBreakdown
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.base.settings import Count, CountOrAll, Internal, NotNegative
from ridgestream.pipeline.batch.orols.binary_machine import REFUSALS, Machine, PathRule, Ranking, tolerance_for
from ridgestream.pipeline.batch.orols.criteria import SCORE_NAMES, RegularizationRule, SizeRule
from ridgestream.pipeline.batch.orols.orthogonal_columns import OrthogonalColumns, solve_orthogonal
from ridgestream.pipeline.batch.orols.pursuit import CandidateRounds, SelectionRule
from ridgestream.pipeline.batch.orols.residual_pass import Chain, Library, Screened, Screening, screen_rows
from ridgestream.pipeline.batch.orols.turns import join_turns, take_turns, turns_of
from ridgestream.pipeline.batch.reweighted_rows import ReweightedRows, WithoutFold
from ridgestream.pipeline.batch.shared_settings import SharedFolds, SharedReselection, SharedSize
from ridgestream.pipeline.cholesky import cholesky
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.selection.candidate_rounds import RULE_OF_59
from ridgestream.pipeline.selection.fit_result import Fitted, Path
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import BlockStatistics, FoldedStatistics, Summing
from ridgestream.pipeline.sums.row_set import RowSet
from ridgestream.pipeline.sums.top_rows import RowTable


@dataclass(frozen=True)
class OROLSSettings(SharedReselection, SharedFolds, SharedSize):
    """Forward selection of the rows of largest residual."""

    tolerance: NotNegative = 3e-3
    """λ is stationary if its relative change in a step is at most this, times √(4000/rows) with more than 4,000 rows,
    which determine λ more exactly."""
    patience: Count = 5
    """The consecutive steps in which λ must have been stationary; or twice as many without a lower GCV."""
    regularization_rule: RegularizationRule = "gcv"
    """λ of a step: that of least GCV, that of the largest evidence, or one re-estimation from the step before."""
    size_rule: SizeRule = "gcv"
    """The number of vectors: that of least GCV, BIC, description length or cross-validation error, or where λ becomes
    stationary."""
    selection_rule: SelectionRule = "residual"
    """The next vector: the row of the largest residual, or of the candidates the one by a matching pursuit, of which
    "order-recursive" looks at the part of a column beyond those chosen."""
    candidates: CountOrAll = RULE_OF_59
    """With a matching pursuit: the number of random rows among which a round chooses, or "all"."""
    condition_limit: Annotated[float, Gt(1)] = 1e5
    """The largest condition number of Q, the longest of its orthogonal columns over the shortest."""
    foreseen: Annotated[int, Ge(0), Internal()] = 10
    """The number of steps predicted for a pass to confirm; it does not change the result."""
    pool: Annotated[int, Ge(1), Internal()] = 256
    """The number of rows of large residual whose columns a pass computes; it does not change the result."""
    memory_limit: Annotated[int | None, Internal()] = None
    """Bytes that the products of candidates may take in a process; None for no limit."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.size_rule == "cv" and self.folds < 2:
            raise InputError(f'size_rule = "cv" needs folds of at least 2, it is {self.folds}')


@dataclass(frozen=True)
class Machines:
    """The vectors of each target's machine in their order, and its λ: the input of a refit."""

    turns: Integers
    """The step at which the machine took the vector, from zero, −1 if it did not, shape (n_basis, n_targets)."""
    regularization: Floats
    """λ per row, of the orthogonal weights, shape (n_targets,)."""

    def coefficients(self, sums: BlockStatistics) -> Floats:
        """Return U⁻¹α̃ of each machine, (25) and (26), zero for vectors of other machines: (n_functions, n_targets).

        `sums` are those of the dictionary with the constant function, over any rows; O(n_basis³) per target. Raises
        NumericalBreakdown if the columns of a machine are linearly dependent over these rows, within rounding.
        """
        coefficients = np.zeros((len(self.turns) + 1, len(self.regularization)))
        with one_blas_thread():
            for target, turns in enumerate(self.turns.T):
                order = np.r_[len(turns), np.argsort(turns, kind="stable")[np.count_nonzero(turns < 0) :]]
                factor = np.tril(cholesky(sums.products[np.ix_(order, order)], "products KᵀK of a machine").factor)
                along = solve_triangular(factor, sums.rhs[order, target], lower=True)
                penalty = self.regularization[target] * sums.weight
                coefficients[order, target] = solve_orthogonal(factor, along, penalty)
        return coefficients


@dataclass(frozen=True)
class OrolsFitted(Fitted):
    """A model of OROLS; its `regularization` is the mean over machines of λ/n of the orthogonal weights."""

    machines: Machines = field(kw_only=True)
    """The vectors and λ of each machine."""


def fit_orols(rows: RowSet, kernel: Kernel, settings: OROLSSettings, report: Reporter) -> OrolsFitted:
    """Return a dictionary with coefficients for each target; O(n_basis + pool) kernel values per row and pass.

    A pass confirms several steps of every machine; a last pass forms the sums. The path has λ per row and the score
    after each step, as means over machines; each machine serves its step of least score. Raises InputError if there are
    too few rows, NumericalBreakdown if no row has a usable column.
    """
    sizes = [settings.limit] * rows.n_targets
    if settings.size_rule == "cv":
        sizes = _cross_validated_sizes(rows, kernel, settings, report)
    return _Selection(rows, kernel, settings, report, sizes).run().fitted()


def _cross_validated_sizes(rows: RowSet, kernel: Kernel, settings: OROLSSettings, report: Reporter) -> list[int]:
    """Return the number of vectors of each machine with the least error on rows left out; a selection per fold."""
    sizes, errors = [settings.limit] * rows.n_targets, []
    for fold in range(settings.folds):
        others = ReweightedRows(rows, WithoutFold(fold, settings.folds, settings.random_seed))
        selection = _Selection(others, kernel, settings, report, sizes).run()
        errors.append(selection.errors_by_size(rows, fold))
    return [_least(by_fold) for by_fold in zip(*errors, strict=True)]


def _least(by_fold: Sequence[Floats]) -> int:
    """Return the size of the least sum of errors, of those that every fold has; at least 1."""
    common = min(len(errors) for errors in by_fold)
    return int(np.argmin(sum(errors[:common] for errors in by_fold))) + 1 if common else 1


class _Selection:
    """The selection for the machines of all targets, which share each pass."""

    def __init__(
        self, rows: RowSet, kernel: Kernel, settings: OROLSSettings, report: Reporter, sizes: Sequence[int]
    ) -> None:
        self._rows, self._kernel, self._settings, self._report = rows, kernel, settings, report
        self._centre = np.zeros(rows.n_features)
        self._library = Library.empty(rows.n_features, rows.n_targets)
        self._known = self._library.rows
        self._passes, self._rounds = 0, self._open_rounds()
        screened = self._pass(self._library.rows, ())
        self._absorb(self._library.rows, screened)
        weight = float(self._library.products[-1, -1])
        if weight <= 2:
            raise InputError(
                f"the weights of the {rows.n_rows} rows sum to {weight:g}; OROLS needs more than 2, since it estimates "
                "λ by degrees of freedom: give more rows, or weights that count rows"
            )
        sums = zip(self._library.rhs[-1], screened.target_square, sizes, strict=True)
        self._machines = [
            Machine(target, OrthogonalColumns(weight, total, square), _rule(settings, size, weight))
            for target, (total, square, size) in enumerate(sums)
        ]

    def run(self) -> Self:
        """Run passes until every machine has finished, or the dictionary is full."""
        while self._has_work():
            if self._rounds is None:
                self._run_pass()
            else:
                self._run_rounds(self._rounds)
            self._library = self._library.keep(self._needs())
            self._report_progress()
        return self

    def _has_work(self) -> bool:
        """Return whether a machine has not finished and the dictionary has room."""
        working = [machine for machine in self._machines if not machine.finished]
        if not working:
            return False
        common = min(machine.confirmed for machine in working)
        sure = join_turns([machine.places()[:common] for machine in self._machines])
        return len(sure) < self._settings.limit

    def _run_pass(self) -> None:
        """Run a pass: compute the requested columns, and confirm or undo the predicted steps."""
        new = self._known.take(self._library.missing(self._needs()))
        chains = []
        with one_blas_thread():
            for machine in self._machines:
                machine.expect(self._library, self._settings.foreseen)
                chains.append(machine.chain(self._library))
        working = tuple(chain for chain in chains if chain is not None)
        screened = self._pass(new, working)
        self._learn(working, screened)
        self._absorb(new, screened)
        share = self._share()
        with one_blas_thread():
            for machine in self._machines:
                machine.advance(self._library, share)

    def _run_rounds(self, rounds: CandidateRounds) -> None:
        """Run a pass: compute the columns of random rows, among which each machine chooses, round by round."""
        drawn = rounds.draw(len(np.unique(np.concatenate([machine.places() for machine in self._machines]))))
        new = drawn.rows.take(self._library.missing(drawn.rows.places))
        self._known = self._known.join(new)
        self._absorb(new, self._pass(new, ()))
        with one_blas_thread():
            for machine in self._machines:
                for places in drawn.rounds:
                    machine.choose(self._library, places)

    def fitted(self) -> OrolsFitted:
        """Return the model of the confirmed steps, with sums over all rows."""
        taken = self._taken()
        places = join_turns(taken)
        if not len(places):
            raise NumericalBreakdown(
                "no row has a usable column: kernel values are zero, alike everywhere or too large; raise "
                "condition_limit, or change the kernel's parameters (lower gamma or degree)"
            )
        basis = self._basis(places)
        sums = self._sums(self._rows, basis)
        total = sums.total()
        penalties = [m.penalty(len(own)) for m, own in zip(self._machines, taken, strict=True)]
        machines = Machines(turns_of(places, taken), np.array(penalties) / total.weight)
        return OrolsFitted(
            basis,
            places,
            machines.coefficients(total),
            float(machines.regularization.mean()),
            sums,
            self._path(taken, total.weight),
            self._notes(taken),
            machines=machines,
        )

    def errors_by_size(self, rows: RowSet, fold: int) -> list[Floats]:
        """Return for each machine the squared error over a fold of the rows of its first 1, 2, … vectors; one pass."""
        taken = self._taken()
        places = join_turns(taken)
        sums = self._sums(rows, self._basis(places)).folds[fold]
        positions = {int(place): position for position, place in enumerate(places)}
        orders = [[len(places), *(positions[int(place)] for place in own)] for own in taken]
        return [self._errors(m, sums.choose(np.array(o))) for m, o in zip(self._machines, orders, strict=True)]

    @staticmethod
    def _errors(machine: Machine, sums: BlockStatistics) -> Floats:
        """Return the squared error of each size, from sums over the machine's own functions in their order."""
        sizes = range(1, len(sums.rhs))
        parts = ((sums.choose(np.arange(size + 1)), machine.coefficients(size)) for size in sizes)
        return np.array([part.squared_error(solved[:, np.newaxis])[machine.target] for part, solved in parts])

    def _basis(self, places: Integers) -> Basis:
        """Return the functions over these rows, with the constant one."""
        table = self._known.take(np.sort(places))
        return Basis(self._kernel, table.features[np.searchsorted(table.places, places)], self._centre, constant=True)

    def _sums(self, rows: RowSet, basis: Basis) -> FoldedStatistics:
        summing = Summing(basis, rows.n_targets, self._settings.folds, self._settings.random_seed)
        return rows.statistics((summing,), events.STEP_SUM_DICTIONARY).parts[0]

    def _open_rounds(self) -> CandidateRounds | None:
        """Return what draws candidates; None if rows are chosen by their residuals."""
        settings = self._settings
        if settings.selection_rule == "residual":
            return None
        return CandidateRounds(
            self._rows, settings.candidates, settings.random_seed, settings.limit, settings.memory_limit
        )

    def _pass(self, new: RowTable, chains: tuple[Chain, ...]) -> Screened:
        self._passes += 1
        vectors = np.concatenate([self._library.rows.features, new.features])
        depth = max(self._share() if chains else 0, 2 * REFUSALS)
        screening = Screening(
            Basis(self._kernel, vectors, self._centre, constant=True),
            len(self._library.rows.places),
            self._rows.n_targets,
            chains,
            depth,
        )
        return self._rows.reduce(screen_rows, screening, events.STEP_OROLS_PASS.numbered(number=self._passes))

    def _learn(self, chains: Sequence[Chain], screened: Screened) -> None:
        """Give each machine the rankings of its models."""
        self._known = self._known.join(screened.leaders.rows)
        begin = 0
        for chain in chains:
            rankings = {
                int(size): Ranking(screened.leaders.scores[begin + i], screened.leaders.places[begin + i])
                for i, size in enumerate(chain.sizes)
            }
            begin += len(chain.sizes)
            self._machines[chain.target].learn(rankings)

    def _absorb(self, new: RowTable, screened: Screened) -> None:
        self._library = self._library.absorb(self._kernel, self._centre, new, screened)

    def _share(self) -> int:
        """Return the number of rows of the pool for each unfinished machine, at least one."""
        return max(1, self._settings.pool // max(1, sum(not machine.finished for machine in self._machines)))

    def _needs(self) -> Integers:
        """Return the indices of the rows whose columns unfinished machines need."""
        working = [machine.needs() for machine in self._machines if not machine.finished]
        return np.unique(np.concatenate([np.empty(0, np.int64), *working]))

    def _report_progress(self) -> None:
        taken = np.concatenate([machine.places() for machine in self._machines])
        self._known = self._known.take(np.union1d(self._needs(), taken))
        steps = [len(machine.steps) for machine in self._machines]
        self._report.say(
            events.SELECTION_OROLS_ROWS,
            passes=self._passes,
            n_basis=len(np.unique(taken)),
            steps=max(steps),
            machines_at_work=sum(not machine.finished for machine in self._machines),
            largest_residual=max(machine.residual for machine in self._machines),
        )

    def _taken(self) -> list[Integers]:
        """Return the vectors of each machine up to its least GCV, of those for which the dictionary has room."""
        limit = self._settings.limit
        room = take_turns([machine.best_places(limit) for machine in self._machines], limit)
        return [machine.best_places(len(own)) for machine, own in zip(self._machines, room, strict=True)]

    def _path(self, taken: Sequence[Integers], weight: float) -> Path:
        """Return the model after each step of the machines."""
        steps = [m.steps[: len(own)] for m, own in zip(self._machines, taken, strict=True)]
        longest = max(len(own) for own in taken)
        at = [[own[min(step, len(own) - 1)] for own in steps if own] for step in range(longest)]
        return Path(
            SCORE_NAMES[self._settings.size_rule].lower(),
            np.array([len(join_turns([own[: step + 1] for own in taken])) for step in range(longest)]),
            np.array([np.mean([step.penalty for step in now]) for now in at]) / weight,
            np.array([np.mean([step.score for step in now]) for now in at]),
            np.zeros(longest, dtype=np.int64),
            longest - 1,
        )

    def _notes(self, taken: Sequence[Integers]) -> dict[str, float]:
        sizes = [len(own) for own in taken]
        return {
            "passes": float(self._passes + 1),
            "condition": max(m.condition(size) for m, size in zip(self._machines, sizes, strict=True)),
            "smallest_machine": float(min(sizes)),
            "largest_machine": float(max(sizes)),
        }


def _rule(settings: OROLSSettings, size: int, weight: float) -> PathRule:
    """Return the rule of a machine that takes at most `size` vectors, of rows with this weight."""
    return PathRule(
        min(size, settings.limit),
        tolerance_for(settings.tolerance, weight),
        settings.patience,
        settings.condition_limit,
        settings.regularization_rule,
        settings.size_rule,
        settings.selection_rule,
    )
