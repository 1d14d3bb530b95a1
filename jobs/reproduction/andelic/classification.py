"""Table 2 of Andelić et al. (2007): OROLS with a machine for each class, on five sets with given test rows.

Features have the training rows' mean zero and are divided by one number, the mean of their standard deviations, since
those of each set are of one unit. γ is that of fewest wrong classes over five folds of 2,000 random training rows, with
at most 600 vectors. Vectors are those of a machine in per cent of the training rows, on average; those of
shard-merge-select are shared by all classes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
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
        """Return the machines of the training rows."""
        return fit_orols(ArrayRows(self.X, self.Y), RBF(gamma), OROLSSettings(max_basis=max_basis), Silent())

    def error(self, fitted: OrolsFitted) -> float:
        """Return how many per cent of the test rows get a wrong class."""
        outputs = fitted.basis.outputs(self.X_test, fitted.coefficients)
        return 100 * float(np.mean(outputs.argmax(axis=1) != self.Y_test.argmax(axis=1)))

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
    errors = [sum(fold.error(fold.fit(gamma, JUDGED_BASIS)) for fold in folds) for gamma in benchmark.gammas]
    return benchmark.gammas[int(np.argmin(errors))]


def measure(benchmark: Benchmark, bench: Bench, repeat: int) -> tuple[Outcome]:  # noqa: ARG001
    """Measure OROLS."""
    classes = read(benchmark, bench.data)
    fitted = classes.fit(bench.chosen[_key(benchmark)], len(classes.X))
    sizes = np.count_nonzero(fitted.machines.turns >= 0, axis=0)
    curve = {"dictionary": [float(len(fitted.places))]}
    return (Outcome(classes.error(fitted), 100 * float(sizes.mean()) / len(classes.X), {}, curve),)


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
    findings="""On optdigits and satimage OROLS has the paper's errors with about as many vectors, on pendigits a
smaller error with more. On usps it makes one mistake of 2,007 more than ten per cent above the paper's error. **On
letter it has 3.0 % where the paper has 2.6**, with half as many vectors: γ is that of 2,000 rows, which may be wide for
16,000, and GCV ends the selection earlier. shard-merge-select shares at most 1,000 vectors among all classes, half of
those that the machines have together or fewer, and makes some more mistakes.""",
)
