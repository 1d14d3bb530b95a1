"""Table 4 of Andelić et al. (2007): OROLS on random divisions of Boston and abalone.

As in the paper, continuous features have mean zero and variance one over all rows, and the sex of abalone is three
indicators. γ is that of least squared error over five folds of the training rows of the first division. Errors are in
squared units of the target.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from ridgestream.jobs.reproduction.andelic.machine import RULES, choose_gamma, fit, predict
from ridgestream.jobs.reproduction.data import DataFolder
from ridgestream.jobs.reproduction.split import Split
from ridgestream.jobs.reproduction.study import Bench, Cell, Measurement, Outcome, Published, Study
from ridgestream.pipeline.estimators.sparse import SparseKernelRegressor

TRAINING = {"boston": 481, "abalone": 3000}
GAMMAS = {
    "boston": (0.005, 0.01, 0.02, 0.04, 0.06, 0.1, 0.15),
    "abalone": (0.005, 0.01, 0.02, 0.04, 0.08, 0.15),
}
JUDGED = {"boston": 3, "abalone": 1}
"""The divisions whose training rows choose γ."""
PUBLISHED = {"boston": (Published(7.9, 3.28, 26), None), "abalone": (Published(4.32, 0.17, 10.8), 10)}
"""The paper's values, and the paper's partitions where there are fewer than for the other set."""
AS_PUBLISHED = 2
"""The first rules may be the paper's."""
BETTER_REPEATS = 3
OTHER_REPEATS = 10
"""Repeats of the rules after the first one."""


def divide(name: str, data: DataFolder, repeat: int) -> Split:
    """Return a random division; targets have the training rows' mean zero and variance one."""
    table = data.table(name)
    order = np.random.default_rng(repeat).permutation(len(table.X))
    mean = np.where(table.continuous, table.X.mean(axis=0), 0.0)
    X = (table.X - mean) / np.where(table.continuous, table.X.std(axis=0), 1.0)
    y, (training, test) = table.target.astype(float), np.split(order, [TRAINING[name]])
    centre, scale = y[training].mean(), y[training].std()
    return Split(X[training], (y[training] - centre) / scale, X[test], (y[test] - centre) / scale, float(scale) ** 2)


def choose(name: str, data: DataFolder) -> float:
    """Return γ."""
    return choose_gamma([divide(name, data, repeat) for repeat in range(JUDGED[name])], GAMMAS[name])


def measure(name: str, rule: str, bench: Bench, repeat: int) -> tuple[Outcome]:
    """Measure OROLS; vectors are a share of the training rows, in per cent."""
    split = divide(name, bench.data, repeat)
    fitted = fit(split, bench.chosen[f"gamma of {name}"], rule)
    size = len(fitted.places)
    better = {}
    if repeat < BETTER_REPEATS and rule == next(iter(RULES)):
        product = SparseKernelRegressor("shard-merge-select", max_basis=size, scale=None).fit(split.X, split.y)
        better = {"shard-merge-select, learned metric": split.error(product.predict(split.X_test))}
    return (Outcome(split.error(predict(fitted, split)), 100 * size / len(split.X), better),)


def _measurements() -> Iterator[Measurement]:
    """Yield each set with each rule; the paper's values beside those that may be its own."""
    for name, (published, most) in PUBLISHED.items():
        for number, rule in enumerate(RULES):
            cell = Cell(f"{name}, {rule}", published if number < AS_PUBLISHED else None)
            repeats = OTHER_REPEATS if number else most
            yield Measurement((cell,), partial(measure, name, rule), repeats, (f"gamma of {name}",))


STUDY = Study(
    title="OROLS: Boston and abalone",
    source="Andelić et al. (2007), Table 4",
    error="mean squared error in the target's units (vectors in per cent of the training rows)",
    repeats=100,
    takes="an hour",
    given={"training rows": TRAINING, "folds": 5, "gammas": GAMMAS},
    choices={f"gamma of {name}": partial(choose, name) for name in TRAINING},
    measurements=tuple(_measurements()),
    needs=tuple(TRAINING),
    findings="""Errors on 25 test rows of Boston differ by more between partitions than methods do: the paper's ±
3.28 is that. With λ and size of least GCV, the mean of 100 partitions is 9.4, half of the paper's standard deviation
above its mean, with as large a share of vectors; the median is 8.0, and λ by evidence has 7.8. As printed, with λ by
(30) until it stands still, selection takes most of Boston's rows: this λ does not settle. On abalone the least GCV is
found at a fifth of the paper's vectors, with an error within one of its standard deviations. With as many vectors,
shard-merge-select in the learned metric has a smaller error on Boston, and the same on abalone.""",
)
