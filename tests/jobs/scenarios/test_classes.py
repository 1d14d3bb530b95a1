"""Classes learned each against the rest over one dictionary, from the job file to the predictions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import confusion_matrix
from support.jobs.jobs import (
    ROWS,
    Settings,
    Workplace,
    assert_same_model,
    bits_of,
    draw_rows,
    open_store,
    read_model_at,
    run_command,
    set_column,
)
from support.references.extended_precision import GaussianKernel
from support.references.online import RowByRow

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.commands.ingest import run_ingest
from ridgestream.jobs.commands.train import run_train
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.dataset.dask_arrays import open_dask_arrays
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.catalog.models import list_models
from ridgestream.stores.errors.exceptions import PartitionError, StoreError

EACH: Settings = {"source.positive": None, "source.classes": "all"}
"""The job over `draw_rows`, whose label is 1, 2 or 3."""

Array = npt.NDArray[np.float64]


def place(path: Path, name: str) -> Workplace:
    folder = path / name
    folder.mkdir()
    return Workplace(folder)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("straight"))
    work.put_all(range(3))
    work.run_here(EACH)
    return work


def ingest_here(work: Workplace, changes: Settings) -> dict[str, Any]:
    return run_ingest(read_job(work.job(changes), {}), InProcess(), Silent(), 0.0)


def train_here(work: Workplace, changes: Settings) -> dict[str, Any]:
    return run_train(read_job(work.job(changes), {}), InProcess(), Silent(), 0.0, new_model=False)


def draw_sectors(seed: int, rows: int, n_classes: int) -> pa.Table:
    """Two features that float32 holds, and `label`, which of as many sectors around the origin they lie in."""
    X = np.random.default_rng(seed).normal(size=(rows, 2)).astype(np.float32).astype(np.float64)
    label = np.minimum((np.arctan2(X[:, 1], X[:, 0]) / (2 * np.pi) + 0.5) * n_classes, n_classes - 1).astype(int)
    return pa.table({"x0": X[:, 0], "x1": X[:, 1], "label": label})


def features_of(table: pa.Table, like: pa.Table) -> Array:
    """Features standardized as those of another table."""
    X, Z = (np.column_stack([t["x0"].to_numpy(), t["x1"].to_numpy()]) for t in (table, like))
    return np.asarray((X - Z.mean(axis=0)) / Z.std(axis=0))


def signs(labels: npt.NDArray[Any], n_classes: int) -> Array:
    return np.where(labels[:, np.newaxis] == np.arange(n_classes), 1.0, -1.0)


@pytest.mark.samples
@pytest.mark.parametrize(("n_classes", "rows", "gamma"), [(1, 30, 4.0), (3, 60, 4.0), (7, 120, 4.0), (50, 300, 40.0)])
def test_with_every_row_in_the_dictionary_it_is_kernel_ridge_regression(
    tmp_path: Path, n_classes: int, rows: int, gamma: float
) -> None:
    work = Workplace(tmp_path)
    train, held_out = draw_sectors(0, rows, n_classes), draw_sectors(1, 200, n_classes)
    work.put(0, train)
    work.put(0, held_out, where="held-out")
    thresholds = {"model.novelty_threshold": 0.0, "model.usefulness_threshold": 0.0}
    changes = {**EACH, **thresholds, "model.max_basis": 500, "model.scaling_rows": rows, "model.kernel.gamma": gamma}
    summary = work.run_here(changes)
    assert summary["n_basis"] == rows
    y, truth = train["label"].to_numpy(), held_out["label"].to_numpy()
    other = KernelRidge(alpha=1e-4 * rows, kernel="rbf", gamma=gamma).fit(
        features_of(train, train), signs(y, n_classes)
    )
    expected = other.predict(features_of(held_out, train)).reshape(len(truth), n_classes)
    table = work.predict_here("held-out", changes, with_scores=True)
    assert table.column_names == ["prediction", *(f"score_{i}" for i in range(n_classes))]
    scores = np.column_stack([table[f"score_{i}"].to_numpy() for i in range(n_classes)])
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    np.testing.assert_array_equal(table["prediction"].to_numpy(), expected.argmax(axis=1))
    summary = work.evaluate_here(changes)
    assert summary["test_error"] == (expected.argmax(axis=1) != truth).mean()
    assert summary["confusion"]["classes"] == list(range(n_classes))
    if n_classes > 1:
        matrix = confusion_matrix(truth, expected.argmax(axis=1), labels=range(n_classes))
        np.testing.assert_array_equal(summary["confusion"]["weights"], matrix)


def test_the_dictionary_and_the_progressive_error_are_the_references(tmp_path: Path) -> None:
    work, tables = Workplace(tmp_path), [draw_sectors(seed, ROWS, 5) for seed in range(2)]
    for number, table in enumerate(tables):
        work.put(number, table)
    summary = work.run_here({**EACH, "evaluate.path": None, "model.kernel.gamma": 0.5})
    learner = RowByRow(GaussianKernel(0.5), 1e-4, max_basis=20, max_condition=1e12)
    mistakes = 0
    for x, label in zip(
        np.vstack([features_of(t, tables[0]) for t in tables]),
        np.concatenate([t["label"].to_numpy() for t in tables]),
        strict=True,
    ):
        known = learner.basis_rows
        before = learner.kernel(x[None], learner.basis_vectors)[0] @ learner.beta() if known else np.zeros(5)
        mistakes += int(np.argmax(before) != label)
        learner.learn(x, signs(np.array([label]), 5)[0])
    assert work.model().arrays["basis_rows"].tolist() == learner.basis_rows
    expected = learner.published_coefficients().astype(np.float64)
    np.testing.assert_allclose(work.model().arrays["coefficients"], expected, atol=1e-7 * np.abs(expected).max())
    assert summary["progressive_error"] == mistakes / (2 * ROWS)


def test_two_classes_are_the_binary_model(tmp_path: Path) -> None:
    tables = {number: draw_sectors(number, ROWS, 2) for number in (0, 1, 1000)}
    works, models = [], []
    for name, changes in (("each", EACH), ("binary", {"source.positive": 1})):
        work = place(tmp_path, name)
        for number, table in tables.items():
            work.put(number, table, where="held-out" if number == 1000 else "rows")
        summary = work.run_here(changes)
        works.append((work, changes, summary))
        models.append(bits_of(work.model()))
    each, binary = models
    assert each.pop("encoding") == {**binary.pop("encoding"), "classes": [0, 1]}
    each.pop("confusion")
    assert each == binary
    assert works[0][2]["test_error"] == works[1][2]["test_error"]
    assert works[0][2]["progressive_error"] == works[1][2]["progressive_error"]
    of_each, of_binary = (work.predict_here("held-out", c, with_std=True, with_scores=True) for work, c, _ in works)
    np.testing.assert_array_equal(of_each["prediction"].to_numpy() == 1, of_binary["prediction"].to_numpy() == 1)
    assert of_each["score_1"].equals(of_binary["score"])
    np.testing.assert_array_equal(of_each["score_0"].to_numpy(), -of_binary["score"].to_numpy())
    for name in ("std", "std_observed"):
        assert of_each[f"{name}_0"].equals(of_binary[name])
        assert of_each[f"{name}_1"].equals(of_binary[name])


LABELS: dict[str, tuple[list[Any], pa.DataType, pa.DataType, list[str]]] = {
    "small integers": ([3, 5, 200], pa.uint8(), pa.int64(), ["3", "5", "200"]),
    "negative integers": ([-2, -1, 7], pa.int32(), pa.int64(), ["-2", "-1", "7"]),
    "text": (["ash", "fir", "pine tree"], pa.string(), pa.string(), ["ash", "fir", "pine tree"]),
    "large text": (["a", "b", "c"], pa.large_string(), pa.string(), ["a", "b", "c"]),
    "text as a dictionary": (["a", "b", "ç"], pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", "b", "ç"]),
    "numbers": ([-0.5, 0.0, 2.5], pa.float32(), pa.float64(), ["-0.5", "0.0", "2.5"]),
    "booleans": ([False, True], pa.bool_(), pa.bool_(), ["false", "true"]),
}


@pytest.mark.samples
@pytest.mark.parametrize(("labels", "kept_as", "written_as", "names"), LABELS.values(), ids=LABELS.keys())
def test_the_winner_is_written_in_the_users_type(
    tmp_path: Path, labels: list[Any], kept_as: pa.DataType, written_as: pa.DataType, names: list[str]
) -> None:
    predicted = []
    for name, values, kind in (("typed", labels, kept_as), ("plain", list(range(len(labels))), pa.int64())):
        work = place(tmp_path, name)
        for number in range(2):
            table = draw_sectors(number, ROWS, len(labels))
            drawn = pa.array([values[i] for i in table["label"].to_pylist()]).cast(kind)
            work.put(number, set_column(table, "label", drawn), where=("rows", "held-out")[number])
        work.run_here(EACH)
        predicted.append(work.predict_here("held-out", EACH, with_scores=True))
        assert work.evaluate_here(EACH)["confusion"]["classes"] == values
        assert json.loads(json.dumps(work.model().encoding["classes"])) == values
    typed, plain = predicted
    assert typed.schema.field("prediction").type == written_as
    assert typed["prediction"].to_pylist() == [labels[i] for i in plain["prediction"].to_pylist()]
    assert set(typed["prediction"].to_pylist()) == set(labels)
    assert typed.column_names == ["prediction", *(f"score_{name}" for name in names)]
    np.testing.assert_array_equal(typed.drop_columns(["prediction"]), plain.drop_columns(["prediction"]))


def test_a_class_is_the_same_in_any_type_of_number(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(3))
    for number, kind in ((1, pa.float64()), (2, None)):
        table = draw_rows(number)
        values = table["label"].combine_chunks()
        work.put(number, set_column(table, "label", values.dictionary_encode() if kind is None else values.cast(kind)))
    work.run_here(EACH)
    assert_same_model(work.model(), straight.model())


@pytest.mark.samples
@pytest.mark.parametrize("ends", [(1,), (2,), (1, 2)])
def test_nights_leave_no_trace(tmp_path: Path, straight: Workplace, ends: tuple[int, ...]) -> None:
    work, done = Workplace(tmp_path), 0
    for stop in (*ends, 3):
        work.put_all(range(done, stop))
        work.run_here(EACH)
        done = stop
    assert_same_model(work.model(), straight.model())
    assert work.model().history[-1].test_error == straight.model().history[-1].test_error
    assert read_ledger(open_store(work.store).root()).classes == read_ledger(open_store(straight.store).root()).classes


@pytest.mark.thorough
def test_a_cluster_leaves_no_trace_and_every_command_reports_the_confusion(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(3))
    summary = run_command("run", work.job(EACH), "--cluster", "local:2", "--json").result
    assert_same_model(work.model(), straight.model())
    confusion = straight.evaluate_here(EACH)["confusion"]
    assert np.sum(confusion["weights"]) == ROWS
    assert 1 - np.trace(confusion["weights"]) / ROWS == pytest.approx(summary["test_error"], rel=1e-12)
    evaluated = run_command("evaluate", work.job(EACH), "--cluster", "local:2", "--json").result
    assert (evaluated["confusion"], evaluated["test_error"]) == (confusion, summary["test_error"])
    (model,) = run_command("inspect", work.job(EACH), "--json").result["models"]
    assert (model["classes"], model["confusion"]) == ([1, 2, 3], confusion)
    second = confusion["weights"][1]
    row = ["2", *(f"{weight:.0f}" for weight in second)]
    for command in ("inspect", "evaluate"):
        assert row in [line.split() for line in run_command(command, work.job(EACH)).out.splitlines()]
    run_command("predict", work.job(EACH), work.folder / "held-out", work.folder / "there", "--cluster", "local:2")
    straight.predict_here("held-out", EACH)
    here, there = ((w.folder / n / "part-00.parquet") for w, n in ((straight, "predictions"), (work, "there")))
    assert pq.read_table(here).equals(pq.read_table(there))


def test_a_training_without_held_out_rows_keeps_no_confusion_of_an_older_one(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    work.run_here(EACH)
    assert "confusion" in work.model().arrays
    work.put(1)
    work.run_here({**EACH, "evaluate.path": None})
    assert "confusion" not in work.model().arrays


UNSEEN = (
    "the target has the class 9, which the model did not have when it was first trained; begin a new model with --new-"
)


def with_class(number: int, label: int, row: int = 5) -> pa.Table:
    table = draw_rows(number)
    values = table["label"].to_pylist()
    return set_column(table, "label", pa.array([*values[:row], label, *values[row + 1 :]]))


@pytest.mark.thorough
def test_a_new_class_is_refused_before_ingest_and_learned_by_a_new_model(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(2))
    work.run_here(EACH)
    before = work.snapshot()
    work.put(2, with_class(2, 9))
    with pytest.raises(PartitionError, match=rf"part-02\.parquet is not ingested: {UNSEEN}"):
        work.run_here(EACH)
    assert work.snapshot() == before
    done = run_command("run", work.job(EACH))
    assert (done.code, "part-02.parquet is not ingested" in done.err, done.out) == (exit_codes.DATA, True, "")
    assert work.run_here(EACH, new_model=True)["partitions_consumed"] == 3
    assert work.model().encoding["classes"] == [1, 2, 3, 9]
    assert work.model().arrays["coefficients"].shape == (20, 4)


def test_a_class_ingested_without_training_is_refused_before_anything_is_learned(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(2))
    work.run_here(EACH)
    before = bits_of(work.model())
    work.put(2)
    work.put(3, with_class(3, 9))
    assert ingest_here(work, EACH)["new_partitions"] == 2
    with pytest.raises(InputError, match=rf"partition part-03\.parquet: {UNSEEN}"):
        train_here(work, EACH)
    assert bits_of(work.model()) == before


def test_a_class_that_only_held_out_rows_have_is_refused_with_the_file(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    work.put(0, with_class(0, 9), where="held-out")
    with pytest.raises(PartitionError, match=rf"held-out/part-00\.parquet: {UNSEEN}"):
        work.run_here(EACH)
    assert list_models(open_store(work.store).root()) == ()


def test_listed_classes_may_come_later(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    changes = {**EACH, "source.classes": [3, 9, 1, 2]}
    work.run_here(changes)
    assert work.model().encoding["classes"] == [1, 2, 3, 9]
    table = work.predict_here("held-out", changes, with_scores=True)
    assert table["score_9"].to_numpy().max() < 0
    assert set(table["prediction"].to_pylist()) == {1, 2, 3}
    assert work.evaluate_here(changes)["confusion"]["weights"][3] == [0.0] * 4
    work.put(1, set_column(draw_rows(1), "label", pa.array([9] * ROWS)))
    work.run_here({**EACH, "source.classes": [1, 2, 3, 9.0]})
    assert 9 in work.predict_here("rows", changes)["prediction"].to_pylist()


def test_a_full_list_is_the_same_as_all(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(3))
    work.run_here({**EACH, "source.classes": [3, 2.0, 1]})
    assert_same_model(work.model(), straight.model())


def test_a_class_that_is_not_listed_is_refused_with_row_and_value(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put(0, with_class(0, 9, row=17))
    said = r"part-00\.parquet: column 'label' has the value 9 in row 17; source\.classes does not list it"
    with pytest.raises(PartitionError, match=said):
        work.run_here({**EACH, "source.classes": [1, 2, 3], "evaluate.path": None})


def test_rows_of_one_class_are_reported(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put(0, set_column(draw_rows(0), "label", pa.array(["only"] * ROWS)))
    done = run_command("run", work.job({**EACH, "evaluate.path": None}))
    assert done.code == 0, done
    assert "all rows learned in this run are of one class" in done.err
    assert set(work.predict_here("rows", EACH)["prediction"].to_pylist()) == {"only"}


def weighted(number: int, *, keep_absent: bool) -> pa.Table:
    """Rows of which every fifth has weight zero and a class that no other has."""
    table, absent = draw_rows(number), np.arange(ROWS) % 5 == 0
    labels = np.where(absent, 9, table["label"].to_numpy())
    table = set_column(set_column(table, "label", pa.array(labels)), "w", pa.array(np.where(absent, 0.0, 1.0)))
    return table if keep_absent else table.filter(pa.array(~absent))


def test_rows_of_weight_zero_bring_no_class(tmp_path: Path) -> None:
    changes, works = {**EACH, "source.weight": "w", "model.novelty_threshold": 0.1}, []
    for name, keep_absent in (("with", True), ("without", False)):
        work = place(tmp_path, name)
        for number in range(2):
            work.put(number, weighted(number, keep_absent=keep_absent))
        work.put(0, weighted(1000, keep_absent=keep_absent), where="held-out")
        work.run_here(changes)
        works.append(work)
    models = [work.model() for work in works]
    assert [model.encoding["classes"] for model in models] == [[1, 2, 3]] * 2
    assert models[0].arrays["basis_vectors"].shape == models[1].arrays["basis_vectors"].shape
    np.testing.assert_array_equal(models[0].arrays["confusion"], models[1].arrays["confusion"])
    np.testing.assert_allclose(models[0].arrays["coefficients"], models[1].arrays["coefficients"], rtol=1e-6, atol=1e-9)
    assert models[0].history[-1].test_error == models[1].history[-1].test_error


def test_dask_arrays_hold_classes_and_weights_of_the_store(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for number in range(2):
        work.put(number, weighted(number, keep_absent=True))
    work.put(2, draw_rows(0, rows=0).append_column("w", pa.array([], pa.float64())))
    ingest_here(work, {**EACH, "source.weight": "w"})
    data = open_dask_arrays(open_store(work.store))
    targets = data.targets.compute(scheduler="synchronous")[:, 0].astype(int)
    truth = np.concatenate([weighted(number, keep_absent=True)["label"].to_numpy() for number in range(2)])
    assert sorted(data.classes) == [1, 2, 3]
    assert [(*data.classes, 9)[position] for position in targets] == truth.tolist()


@pytest.mark.parametrize(
    "changes",
    [{**EACH, "source.classes": [1, 2, 3]}, {"source.positive": 2}, {"source.positive": None}],
    ids=["listed", "positive", "regression"],
)
def test_the_classes_of_a_store_stay(straight: Workplace, changes: Settings) -> None:
    with pytest.raises(StoreError, match=r"was made with(out positive| classes = 'all'), the job says .*another store"):
        straight.run_here(changes)


def test_a_binary_job_learns_each_class_by_two_flags(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(3))
    flags = ("--set", "source.positive=", "--set", "source.classes=all", "--store", work.folder / "each")
    summary = run_command("run", work.job(), *flags, "--json").result
    assert summary["partitions_consumed"] == 3
    assert_same_model(read_model_at(work.folder / "each"), straight.model())
