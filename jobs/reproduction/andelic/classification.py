"""Table 2 of Andelić et al. (2007): OROLS with a machine for each class, on five sets with given test rows.

Features have the training rows' mean zero and are divided by one number, the mean of their standard deviations, since
those of each set are of one unit. γ is that of fewest wrong classes over five folds of 2,000 random training rows, with
at most 600 vectors for all machines of a fold together. Vectors are those of a machine in per cent of the training
rows, on average; those of shard-merge-select are shared by all classes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ridgestream.jobs.reproduction.data import DataFolder
from ridgestream.jobs.reproduction.study import Bench, Cell, Measurement, Outcome, Published, Study
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.orols.orols import OrolsFitted, OROLSSettings, fit_orols
from ridgestream.pipeline.estimators.sparse import SparseKernelClassifier
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.sums.folds import deal_folds
from ridgestream.pipeline.sums.row_set import ArrayRows

JUDGED_ROWS, JUDGED_BASIS, FOLDS = 2000, 600, 5
"""What chooses γ."""


@dataclass(frozen=True)
class Benchmark:
    """One of the sets."""

    name: str
    """Its file."""
    training: int
    """The number of its training rows, which come first."""
    gammas: tuple[float, ...]
    """The widths that are compared."""
    published: Published
    """The paper's error."""


BENCHMARKS = (
    Benchmark("optdigits", 3823, (0.01, 0.015, 0.022, 0.033, 0.05), Published(1.11, None, 10.2)),
    Benchmark("satimage", 4435, (0.1, 0.15, 0.25, 0.4, 0.6), Published(8.2, None, 7.5)),
    Benchmark("pendigits", 7494, (0.1, 0.15, 0.25, 0.4, 0.6), Published(1.66, None, 1.9)),
    Benchmark("usps", 7291, (0.002, 0.004, 0.008, 0.016), Published(4.4, None, 10)),
    Benchmark("letter", 16000, (0.125, 0.25, 0.5, 1.0), Published(2.61, None, 4.3)),
)


@dataclass(frozen=True)
class Classes:
    """Rows to learn and to predict, with ±1 for each class against the rest."""

    X: Floats
    """Shape (rows, n_features)."""
    Y: Floats
    """Shape (rows, n_classes)."""
    X_test: Floats
    """Shape (test rows, n_features)."""
    Y_test: Floats
    """Shape (test rows, n_classes)."""

    def fit(self, gamma: float, max_basis: int) -> OrolsFitted:
        """Return the machines of the training rows, with at most so many vectors together."""
        return fit_orols(ArrayRows(self.X, self.Y), RBF(gamma), OROLSSettings(max_basis=max_basis), Silent())

    def error(self, fitted: Iterable[OrolsFitted]) -> float:
        """Return how many per cent of the test rows get a wrong class from these models' machines, in order."""
        outputs = np.hstack([each.basis.outputs(self.X_test, each.coefficients) for each in fitted])
        return 100 * float(np.mean(outputs.argmax(axis=1) != self.Y_test.argmax(axis=1)))

    def alone(self, label: int) -> "Classes":
        """Return the rows with the target of one class against the rest."""
        return replace(self, Y=self.Y[:, [label]])

    def fold(self, fold: int) -> "Classes":
        """Return random training rows without a fold of them, which are the test rows: files may be sorted by class."""
        drawn = np.sort(np.random.default_rng(0).permutation(len(self.X))[:JUDGED_ROWS])
        X, Y, out = self.X[drawn], self.Y[drawn], deal_folds(0, len(drawn), FOLDS, 0) == fold
        return Classes(X[~out], Y[~out], X[out], Y[out])


def read(benchmark: Benchmark, data: DataFolder) -> Classes:
    """Return the rows of a set."""
    table, n = data.table(benchmark.name), benchmark.training
    X = (table.X - table.X[:n].mean(axis=0)) / table.X[:n].std(axis=0).mean()
    Y = np.where(table.target[:, np.newaxis] == np.unique(table.target), 1.0, -1.0)
    return Classes(X[:n], Y[:n], X[n:], Y[n:])


def choose(benchmark: Benchmark, data: DataFolder) -> float:
    """Return γ."""
    classes = read(benchmark, data)
    folds = [classes.fold(fold) for fold in range(FOLDS)]
    errors = [sum(fold.error([fold.fit(gamma, JUDGED_BASIS)]) for fold in folds) for gamma in benchmark.gammas]
    return benchmark.gammas[int(np.argmin(errors))]


def measure(benchmark: Benchmark, bench: Bench, repeat: int) -> tuple[Outcome]:  # noqa: ARG001
    """Measure OROLS: one machine after the other, since passes for all of them compute all their vectors."""
    classes, gamma = read(benchmark, bench.data), bench.chosen[_key(benchmark)]
    fitted = [classes.alone(label).fit(gamma, len(classes.X)) for label in range(classes.Y.shape[1])]
    size = float(np.mean([len(each.places) for each in fitted]))
    distinct = np.unique(np.concatenate([each.places for each in fitted]))
    curve = {"dictionary": [float(len(distinct))]}
    return (Outcome(classes.error(fitted), 100 * size / len(classes.X), {}, curve),)


def measure_shared(benchmark: Benchmark, bench: Bench, repeat: int) -> tuple[Outcome]:  # noqa: ARG001
    """Measure shard-merge-select, whose classes share their vectors, with everything chosen on training rows."""
    classes = read(benchmark, bench.data)
    product = SparseKernelClassifier("shard-merge-select", max_basis=SHARED_BASIS, scale=None)
    product.fit(classes.X, classes.Y.argmax(axis=1))
    wrong = product.predict(classes.X_test) != classes.Y_test.argmax(axis=1)
    return (Outcome(100 * float(np.mean(wrong)), 100 * len(product.basis_vectors_) / len(classes.X)),)


SHARED_BASIS = 1000
"""The vectors of all classes together."""


def _key(benchmark: Benchmark) -> str:
    return f"gamma of {benchmark.name}"


def _measurements() -> Iterator[Measurement]:
    for each in BENCHMARKS:
        yield Measurement((Cell(f"{each.name}, OROLS", each.published),), partial(measure, each), 1, (_key(each),))
    for each in BENCHMARKS:
        cell = Cell(f"{each.name}, shard-merge-select", each.published)
        yield Measurement((cell,), partial(measure_shared, each), 1, ())


STUDY = Study(
    title="OROLS: a machine for each class",
    source="Andelić et al. (2007), Table 2",
    error="wrong classes of the test rows in per cent (vectors of a machine in per cent of the training rows)",
    repeats=1,
    takes="two hours",
    given={"folds": FOLDS, "gammas": {each.name: each.gammas for each in BENCHMARKS}},
    choices={_key(each): partial(choose, each) for each in BENCHMARKS},
    measurements=tuple(_measurements()),
    needs=tuple(each.name for each in BENCHMARKS),
    findings="""OROLS has the paper's errors on optdigits, satimage and letter, a smaller one on pendigits, and seven
more mistakes of 2,007 on usps. Vectors are about as many as the paper's on optdigits, more on satimage and pendigits,
fewer on usps and letter: a path ends where λ no longer changes significantly, and the paper does not say what is
significant. Here it is what exceeds a share of the statistical error of λ, which falls with the rows. With a limit that
does not depend on the number of rows, paths ended after 320 to 390 vectors on average on every set, and letter had 3.02
with 2.1 %, usps 4.88 with 4.4 %. GCV alone does not end them: on optdigits, usps and letter it falls up to where we
looked, 800 vectors a machine. γ is that of 2,000 rows, whose machines have at most 600 vectors together: with all rows
and vectors, another width may be better. shard-merge-select shares at most 1,000 vectors among all classes, half of
those that the machines have together or fewer, and makes some more mistakes.""",
)
