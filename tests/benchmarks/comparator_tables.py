"""What the papers compare with, measured again on the rows of their tables: prints JSON, and makes a page of it.

    python tests/benchmarks/comparator_tables.py sinc boston abalone fvs classes --data FOLDER > errors.json
    python tests/benchmarks/comparator_tables.py forest > forest.json
    python tests/benchmarks/comparator_tables.py --page errors.json forest.json > docs/reference/comparators.md

Rows, divisions, scaling and grids of γ are those of `ridgestream reproduce`, in whose tables the papers' own methods
are. Settings are those of least error over folds of training rows. FOLDER has the sets of rows, as there.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.svm import SVC, SVR

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.comparators import fit_qr, fit_rvm
from benchmarks.measuring import Watch, say
from benchmarks.rivals import measure_in_a_process

from ridgestream.jobs.reproduction.andelic.classification import BENCHMARKS, FOLDS, Benchmark, Classes, read
from ridgestream.jobs.reproduction.andelic.machine import folds_of
from ridgestream.jobs.reproduction.andelic.regression import GAMMAS as GAMMAS_OF
from ridgestream.jobs.reproduction.andelic.regression import JUDGED as JUDGED_OF
from ridgestream.jobs.reproduction.andelic.regression import divide
from ridgestream.jobs.reproduction.andelic.sinc import GAMMAS, JUDGED, NOISE, draw_rows
from ridgestream.jobs.reproduction.cawley_talbot.efvs import Curve, reconstruction_errors
from ridgestream.jobs.reproduction.cawley_talbot.efvs import read as read_boston
from ridgestream.jobs.reproduction.cawley_talbot.fvs import conventional_fvs
from ridgestream.jobs.reproduction.data import DataFolder
from ridgestream.jobs.reproduction.split import Split
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.efvs import select_basis
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.sums.row_set import ArrayRows

Array = npt.NDArray[np.float64]
Settings = dict[str, float]
Fitted = tuple[Callable[[Array], Array], int]
"""What predicts rows, and the number of its vectors."""

FVS_SIZES = (10, 25, 50, 100)
FOREST = ((10_000, (100, 300, 500)), (50_000, (500,)))
"""Rows, and numbers of vectors."""


def qr(split: Split, gamma: float) -> Fitted:
    """Fit the QR method of Nair et al."""
    model = fit_qr(RBF(gamma), split.X, split.y, len(split.X))
    return model.predict, len(model.places)


def rvm(split: Split, gamma: float) -> Fitted:
    """Fit the relevance vector machine."""
    model = fit_rvm(RBF(gamma), split.X, split.y).model
    return model.predict, len(model.places)


def svr(split: Split, gamma: float, C: float, epsilon: float) -> Fitted:
    """Fit scikit-learn's support vector regression."""
    model = SVR(gamma=gamma, C=C, epsilon=epsilon).fit(split.X, split.y)
    return model.predict, len(model.support_)


def grid(**values: Sequence[float]) -> list[Settings]:
    """Return every combination of values by name."""
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


@dataclass(frozen=True)
class Regression:
    """A method on the divisions of a table."""

    name: str
    """What it is called."""
    published: str
    """The paper's value."""
    fit: Callable[..., Fitted]
    """Fits training rows with settings."""
    grid: list[Settings]
    """The settings that are compared."""

    def errors(self, split: Split, settings: Settings) -> tuple[float, int]:
        """Return the mean squared error on the test rows, and the number of vectors."""
        predict, size = self.fit(split, **settings)
        return split.error(predict(split.X_test)), size

    def choose(self, splits: Iterable[Split]) -> Settings:
        """Return the settings of least squared error over five folds of the training rows of these divisions."""
        folds = [fold for split in splits for fold in folds_of(split)]
        means = [np.mean([self.errors(fold, settings)[0] for fold in folds]) for settings in self.grid]
        return self.grid[int(np.argmin(means))]

    def measure(self, draw: Callable[[int], Split], judged: int, repeats: int, *, root: bool) -> dict[str, Any]:
        """Return the errors on so many divisions; `judged` of them choose the settings."""
        say(self.name)
        chosen = self.choose(map(draw, range(judged)))
        splits = list(map(draw, range(repeats)))
        found = [self.errors(split, chosen) for split in splits]
        errors, sizes = np.array([each[0] for each in found]), np.array([each[1] for each in found])
        errors = np.sqrt(errors) if root else errors
        return {
            "method": self.name,
            "published": self.published,
            "mean": float(errors.mean()),
            "std": float(errors.std()),
            "vectors_percent": float(100 * sizes.mean() / len(splits[0].X)),
            "chosen": chosen,
            "repeats": repeats,
        }


def measure_sinc(data: DataFolder) -> list[dict[str, Any]]:
    """Measure Table 3 of Andelić et al."""
    machines = grid(gamma=GAMMAS, C=(1, 10, 100), epsilon=(0.02, 0.05, 0.1, 0.2))
    methods = (
        Regression("SVM for regression", "0.0519", svr, machines),
        Regression("RVM", "0.0494", rvm, grid(gamma=GAMMAS)),
        Regression("QR", "–", qr, grid(gamma=GAMMAS)),
    )
    del data
    return [each.measure(partial(draw_rows, 50, NOISE), JUDGED, 100, root=True) for each in methods]


def measure_divisions(name: str, methods: Sequence[Regression], repeats: int, data: DataFolder) -> list[dict[str, Any]]:
    """Measure a line of Table 4 of Andelić et al."""
    return [each.measure(partial(divide, name, data), JUDGED_OF[name], repeats, root=False) for each in methods]


def measure_boston(data: DataFolder) -> list[dict[str, Any]]:
    """Measure Boston; the paper quotes another one's support vectors."""
    machines = grid(gamma=GAMMAS_OF["boston"], C=(1, 10, 100), epsilon=(0.05, 0.1, 0.2))
    methods = (
        Regression("QR", "8.35 ± 5.67", qr, grid(gamma=GAMMAS_OF["boston"])),
        Regression("SVM for regression", "8.7 ± 6.8", svr, machines),
    )
    return measure_divisions("boston", methods, 100, data)


def measure_abalone(data: DataFolder) -> list[dict[str, Any]]:
    """Measure abalone."""
    methods = (Regression("QR", "4.53 ± 0.29", qr, grid(gamma=GAMMAS_OF["abalone"])),)
    return measure_divisions("abalone", methods, 10, data)


SVM = {"usps": "4.3", "letter": "2.75", "optdigits": "2.73", "pendigits": "2.5", "satimage": "7.8"}
"""The paper's test errors of one machine against the rest for each class."""


COSTS = (1, 10, 100)
"""The values of C that are compared."""


def count_wrong(classes: Classes, outputs: Sequence[Array]) -> int:
    """Return how many of the test rows get a wrong class, from the outputs of each class's machine."""
    return int(np.sum(np.argmax(outputs, axis=0) != classes.Y_test.argmax(axis=1)))


def choose_machine(folds: Sequence[Classes], gammas: Sequence[float]) -> Settings:
    """Return γ and C of fewest wrong classes; the machines of a fold share its kernel matrix for each γ."""
    compared, wrong = grid(gamma=gammas, C=COSTS), []
    for gamma in gammas:
        kernel = RBF(gamma)
        inside = [kernel.block(fold.X, fold.X) for fold in folds]
        across = [kernel.block(fold.X_test, fold.X) for fold in folds]
        for C in COSTS:
            machine = SVC(kernel="precomputed", C=C)
            wrong.append(
                sum(
                    count_wrong(fold, [machine.fit(K, y).decision_function(K_test) for y in fold.Y.T])
                    for fold, K, K_test in zip(folds, inside, across, strict=True)
                )
            )
    return compared[int(np.argmin(wrong))]


def measure_machines(benchmark: Benchmark, data: DataFolder) -> dict[str, Any]:
    """Measure a line of Table 2 of Andelić et al.: γ and C by five folds of 2,000 random training rows."""
    say(benchmark.name)
    classes = read(benchmark, data)
    chosen = choose_machine([classes.fold(fold) for fold in range(FOLDS)], benchmark.gammas)
    outputs, sizes = [], []
    for y in classes.Y.T:
        machine = SVC(**chosen, cache_size=500).fit(classes.X, y)
        outputs.append(machine.decision_function(classes.X_test))
        sizes.append(len(machine.support_))
    return {
        "method": f"{benchmark.name}, SVM",
        "published": SVM[benchmark.name],
        "mean": 100 * count_wrong(classes, outputs) / len(classes.X_test),
        "std": 0.0,
        "vectors_percent": 100 * float(np.mean(sizes)) / len(classes.X),
        "chosen": chosen,
        "repeats": 1,
    }


def measure_classes(data: DataFolder) -> list[dict[str, Any]]:
    """Measure Table 2 of Andelić et al."""
    return [measure_machines(each, data) for each in BENCHMARKS]


def measure_fvs(data: DataFolder) -> list[dict[str, Any]]:
    """Measure the run time of Figure 1 of Cawley & Talbot, with the reconstruction error."""
    X = read_boston(data)
    kernel, rows = RBF(1 / X.shape[1]), ArrayRows(X, np.zeros(len(X)))

    def of_curve(curve: Curve, size: int) -> list[int]:
        return list(select_basis(rows, kernel, curve.settings(size, 0), Silent()).places.tolist())

    methods: dict[str, Callable[[int], list[int]]] = {
        "conventional FVS": lambda size: list(islice(conventional_fvs(kernel, X), size)),
        "EFVS, all candidates": partial(of_curve, Curve("all", "all")),
        "EFVS, 59 candidates": partial(of_curve, Curve(59, "all")),
    }
    found = []
    with one_blas_thread():
        for (name, select), size in product(methods.items(), FVS_SIZES):
            say(f"{name}, {size}")
            watch = Watch()
            places = select(size)
            seconds = watch.read().cpu_seconds
            error = float(reconstruction_errors(kernel, X, X[places])[-1])
            found.append({"method": name, "vectors": len(places), "cpu_seconds": seconds, "error": error})
    return found


def measure_forest(data: DataFolder) -> list[dict[str, Any]]:
    """Measure CPU time and memory of Figure 1 of Jung & Polani, each method in its own process."""
    del data
    found = []
    for rows, sizes in FOREST:
        for name, size in product(("column-ols", "ols", "online"), sizes):
            say(f"{name}, {rows} rows, {size} vectors")
            found.append({"method": name, "rows": rows, "vectors": size, **measure_in_a_process(name, rows, size)})
    return found


TABLES: dict[str, Callable[[DataFolder], list[dict[str, Any]]]] = {
    "sinc": measure_sinc,
    "boston": measure_boston,
    "abalone": measure_abalone,
    "classes": measure_classes,
    "fvs": measure_fvs,
    "forest": measure_forest,
}


def main() -> None:
    """Measure tables and print them, or print the page of tables measured before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--data", type=Path, help="folder with the sets of rows")
    parser.add_argument("--page", nargs="+", type=Path, metavar="JSON", help="print the page of these results")
    arguments = parser.parse_args()
    if arguments.page:
        from benchmarks.comparator_page import page_of

        print(page_of({name: t for path in arguments.page for name, t in json.loads(path.read_text()).items()}), end="")
        return
    print(json.dumps({name: TABLES[name](DataFolder(arguments.data)) for name in arguments.names}))


if __name__ == "__main__":
    main()
