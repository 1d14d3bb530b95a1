"""Weights of classes: as a column of such weights, for every method; nights are one run; errors are of the rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.jobs.jobs import Settings, Workplace, assert_same_model, draw_rows, set_column
from support.jobs.recording import Notes
from support.points import points

from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import JobFileError
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.executor import InProcess

METHODS: dict[str, Settings] = {
    "online": {},
    "metric": {"model.metric": "full", "model.metric_options.rows": 400, "model.metric_options.basis": 20},
    "refitted": {"model.refit": True},
    "ols": {"model.method": "ols", "model.folds": 2},
    "shard-merge-select": {"model.method": "shard-merge-select", "model.folds": 2},
    "isls-svm": {"model.method": "isls-svm", "model.folds": 2},
    "orols": {"model.method": "orols", "model.regularization": None},
    "ls-svm": {"model.method": "ls-svm", "model.max_basis": None},
}
CLASSES: dict[str, Settings] = {"binary": {}, "three": {"source.positive": None, "source.classes": "all"}}


def weighted(seed: int, factor: float) -> pa.Table:
    """Rows of class 2 with this weight, the others with weight one; the first partition has none of class 2."""
    table = draw_rows(seed)
    table = table if seed else table.filter(pc.not_equal(table["label"], 2))
    return set_column(table, "w", np.where(table["label"].to_numpy() == 2, factor, 1.0))


def works_of(folder: Path, partitions: int) -> tuple[Workplace, Workplace]:
    """Two places with the same rows: with a column of weights of their class, and of ones."""
    for name, factor in (("column", 4.0), ("table", 1.0)):
        for number in range(partitions):
            Workplace(folder / name).put(number, weighted(number, factor))
        Workplace(folder / name).put(0, weighted(1000, 1.0), where="held-out")
    return Workplace(folder / "column"), Workplace(folder / "table")


@pytest.mark.at_most(4)
@pytest.mark.parametrize("classes", points([*CLASSES], ["binary"]))
@pytest.mark.parametrize("method", points([*METHODS], ["online", "ols"]))
def test_a_table_is_as_a_column_of_weights(tmp_path: Path, method: str, classes: str) -> None:
    column, table = works_of(tmp_path, 3)
    changes = {"source.weight": "w", "model.scaling_rows": 1, **METHODS[method], **CLASSES[classes]}
    one, other = column.run_here(changes), table.run_here({**changes, "source.class_weight.2": 4.0})
    (a, b) = (work.model() for work in (column, table))
    for name in ("basis_vectors", "coefficients"):
        np.testing.assert_array_equal(a.arrays[name], b.arrays[name])
    assert one["test_error"] == other["test_error"]
    errors = a.history[-1].progressive_error, b.history[-1].progressive_error
    if method == "online":
        mistakes = (errors[1] or 0.0) * b.history[-1].rows
        assert errors[0] != errors[1]
        assert mistakes == pytest.approx(round(mistakes))


@pytest.mark.thorough
def test_balanced_weights_are_fixed_by_the_first_rows_and_nights_are_one_run(tmp_path: Path) -> None:
    changes = {"source.class_weight": "balanced"}
    one, nights, notes = Workplace(tmp_path / "one"), Workplace(tmp_path / "nights"), Notes()
    one.put_all(range(3))
    run_job(read_job(one.job(changes), {}), InProcess(), notes, 0.0, new_model=False)
    for last in range(1, 4):
        nights.put_all(range(last))
        nights.run_here(changes)
    assert_same_model(one.model(), nights.model())
    share = float(np.mean(draw_rows(0)["label"].to_numpy() == 2))
    assert one.model().encoding["class_weights"] == pytest.approx([0.5 / (1 - share), 0.5 / share])
    (said,) = notes.all("features.class_weights")
    assert said == {"weights": f"rest {0.5 / (1 - share):.4g}, 2 {0.5 / share:.4g}"}


def test_a_class_of_ten_rows_is_never_found_and_is_found_if_classes_are_balanced(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for number, folder in ((0, "rows"), (1000, "held-out")):
        work.put(0, with_rare_class(number), where=folder)
    changes: dict[str, Any] = {"source.positive": None, "source.classes": "all", "report": "out", "model.max_basis": 50}
    line = 'Never found: rare; source.class_weight = "balanced" gives rows of rare classes more weight.'
    assert line in sentences(work.run_here(changes))
    balanced = work.run_here(changes | {"source.class_weight": "balanced", "model.name": "balanced"})
    assert not [each for each in sentences(balanced) if "Never found" in each]


def with_rare_class(seed: int) -> pa.Table:
    """Rows of two classes, and ten of a third among those of the first."""
    rng = np.random.default_rng(seed)
    X = np.vstack([rng.normal(size=(990, 2)), rng.normal(size=(10, 2)) * 0.3 + [1.5, 0.0]])
    label = np.where(X[:, 1] > 0.8, "other", "common").astype(object)
    label[990:] = "rare"
    return pa.table({"x0": X[:, 0], "x1": X[:, 1], "label": label.astype(str)})


def sentences(result: dict[str, Any]) -> list[str]:
    words: list[str] = json.loads(Path(result["report"]["json"]).read_text())["words"]["sentences"]
    return words


def test_a_table_that_names_no_class_and_weights_of_numbers_are_refused(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    with pytest.raises(InputError, match=r"names the class '3', which the target does not have; its classes: rest, 2$"):
        work.run_here({"source.class_weight.3": 2.0})
    with pytest.raises(JobFileError, match="class_weight weighs classes, and the target is a number"):
        work.run_here({"source.positive": None, "source.class_weight": "balanced"})
    with pytest.raises(JobFileError, match=r"source\.class_weight"):
        work.run_here({"source.class_weight.2": 0.0})
