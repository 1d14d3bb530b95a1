"""Several regression targets over one dictionary, from the job file to the predictions."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.jobs.jobs import ROWS, Settings, Workplace, assert_same_model, run_command, set_column
from support.references.extended_precision import GaussianKernel
from support.references.online import RowByRow

from ridgestream.jobs.cli import exit_codes
from ridgestream.pipeline.models.model_record import model_of
from ridgestream.stores.errors.exceptions import PartitionError, StoreError

TARGETS = ("price", "rent")
JOB: Settings = {"source.target": list(TARGETS), "source.positive": None, "model.kernel.gamma": 0.5}


def draw(seed: int, rows: int = ROWS) -> pa.Table:
    """Two features that float32 holds, and two targets: `price` near 3000, `rent` near −1, of other shapes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2)).astype(np.float32).astype(np.float64)
    price = 3000.0 + 400.0 * np.sin(X[:, 0]) + 150.0 * X[:, 1] + 10.0 * rng.normal(size=rows)
    rent = -1.0 + 0.01 * np.cos(2 * X[:, 1]) + 0.002 * rng.normal(size=rows)
    return pa.table({"size": X[:, 0], "age": X[:, 1], "price": price, "rent": rent})


def put(work: Workplace, numbers: range) -> None:
    for number in numbers:
        work.put(number, draw(number))
    work.put(0, draw(1000), where="held-out")


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("straight"))
    put(work, range(3))
    work.run_here(JOB)
    return work


def columns(table: pa.Table, names: tuple[str, ...]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.column_stack([table[name].to_numpy() for name in names])


@dataclass(frozen=True)
class Reference:
    """The row-by-row learner on rows standardized here, in the users' units again."""

    learner: RowByRow
    progressive: Any
    predicted: Any


@pytest.fixture(scope="module")
def reference() -> Reference:
    tables = [draw(number) for number in range(3)]
    X0, Y0 = columns(tables[0], ("size", "age")), columns(tables[0], TARGETS)
    centre, scale = Y0.mean(axis=0), Y0.std(axis=0)
    learner = RowByRow(GaussianKernel(0.5), 1e-4, max_basis=20, max_condition=1e12)
    squares = []
    for x, y in zip(*(np.vstack([columns(t, n) for t in tables]) for n in (("size", "age"), TARGETS)), strict=True):
        row, target = (x - X0.mean(axis=0)) / X0.std(axis=0), (y - centre) / scale
        before = learner.kernel(row[None], learner.basis_vectors)[0] @ learner.beta() if learner.basis_rows else 0.0
        squares.append(((before - target) * scale) ** 2)
        learner.learn(row, target)
    held_out = (columns(draw(1000), ("size", "age")) - X0.mean(axis=0)) / X0.std(axis=0)
    return Reference(learner, np.mean(squares, axis=0), learner.predict(held_out) * scale + centre)


def test_the_dictionary_and_the_predictions_are_the_references(straight: Workplace, reference: Reference) -> None:
    assert straight.model().arrays["basis_rows"].tolist() == reference.learner.basis_rows
    table = straight.predict_here("held-out", JOB)
    assert table.column_names == ["prediction_price", "prediction_rent"]
    found = columns(table, ("prediction_price", "prediction_rent"))
    spread = reference.predicted.std(axis=0)
    assert (np.abs(found - reference.predicted).max(axis=0) < 1e-7 * spread).all()


def test_errors_are_reported_for_each_target_and_overall(straight: Workplace, reference: Reference) -> None:
    truth = columns(draw(1000), TARGETS)
    expected = ((reference.predicted - truth) ** 2).mean(axis=0).astype(np.float64)
    summary = straight.evaluate_here(JOB)
    night = straight.model().history[-1]
    assert list(summary["test_mse_of"]) == list(TARGETS)
    np.testing.assert_allclose(list(summary["test_mse_of"].values()), expected, rtol=1e-6)
    assert summary["test_mse"] == pytest.approx(sum(summary["test_mse_of"].values()) / 2, rel=1e-14)
    assert summary["test_error"] is None
    assert (night.test_mse, night.test_mse_of) == (summary["test_mse"], summary["test_mse_of"])
    assert night.progressive_mse_of is not None
    progressive = [night.progressive_mse_of[name] for name in TARGETS]
    np.testing.assert_allclose(progressive, reference.progressive.astype(np.float64), rtol=1e-6)
    assert night.progressive_error == pytest.approx(np.mean(progressive), rel=1e-14)
    assert expected[0] < 0.1 * truth[:, 0].var()
    assert expected[1] < 0.6 * truth[:, 1].var()


def test_error_bars_are_of_each_target_in_its_units(straight: Workplace) -> None:
    table = straight.predict_here("held-out", JOB, with_std=True)
    names = [f"{kind}_{target}" for target in TARGETS for kind in ("std", "std_observed")]
    assert table.column_names == ["prediction_price", "prediction_rent", *names]
    numeric = columns(draw(1000), ("size", "age"))
    model = model_of(straight.model(), with_uncertainty=True)
    of_f, of_observed = model.deviations(numeric, np.empty((len(numeric), 0), np.int32), [])
    for i, target in enumerate(TARGETS):
        np.testing.assert_array_equal(table[f"std_{target}"].to_numpy(), of_f[:, i])
        np.testing.assert_array_equal(table[f"std_observed_{target}"].to_numpy(), of_observed[:, i])
        off = np.abs(table[f"prediction_{target}"].to_numpy() - draw(1000)[target].to_numpy())
        assert 0.85 <= (off <= 1.96 * of_observed[:, i]).mean() <= 1.0
    assert (of_f[:, 0] > 1000 * of_f[:, 1]).all()


@pytest.mark.samples
@pytest.mark.parametrize("ends", [(1,), (2,), (1, 2)])
def test_nights_leave_no_trace(tmp_path: Path, straight: Workplace, ends: tuple[int, ...]) -> None:
    work, done = Workplace(tmp_path), 0
    for stop in (*ends, 3):
        put(work, range(done, stop))
        work.run_here(JOB)
        done = stop
    assert_same_model(work.model(), straight.model())


@pytest.mark.thorough
def test_a_cluster_leaves_no_trace(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    put(work, range(3))
    summary = run_command("run", work.job(JOB), "--cluster", "local:2", "--json").result
    assert_same_model(work.model(), straight.model())
    night = straight.model().history[-1]
    assert (summary["test_mse_of"], summary["progressive_mse_of"]) == (night.test_mse_of, night.progressive_mse_of)
    (inspected_model,) = run_command("inspect", work.job(JOB), "--json").result["models"]
    assert inspected_model["history"][-1]["test_mse_of"] == night.test_mse_of
    text = run_command("evaluate", work.job(JOB)).out
    assert f"test_mse_of.rent  {summary['test_mse_of']['rent']:.6g}" in text


def test_a_list_of_one_target_is_that_target(tmp_path: Path) -> None:
    for name, target in (("one", "price"), ("list", ["price"])):
        (tmp_path / name).mkdir()
        work = Workplace(tmp_path / name)
        put(work, range(2))
        changes = {**JOB, "source.target": target, "source.ignore": ["rent"]}
        work.run_here(changes)
        assert work.predict_here("held-out", changes).column_names == ["prediction"]
    assert_same_model(*(Workplace(tmp_path / name).model() for name in ("one", "list")))


BAD: dict[str, tuple[Any, str]] = {
    "missing": (None, r"part-01\.parquet has no column 'rent'"),
    "text": (pa.array(["a"] * ROWS), r"part-01\.parquet: column 'rent' has type string, the store has it as numeric"),
    "NaN": (pa.array([0.0] * 7 + [np.nan] * (ROWS - 7)), r"part-01\.parquet: column 'rent' has the value nan in row 7"),
}


@pytest.mark.parametrize(("values", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_second_target_is_refused_by_its_name(tmp_path: Path, values: Any, message: str) -> None:
    work = Workplace(tmp_path)
    put(work, range(1))
    work.run_here(JOB)
    before = work.snapshot()
    table = draw(1).drop_columns(["rent"])
    work.put(1, table if values is None else set_column(table, "rent", values))
    with pytest.raises(PartitionError, match=message):
        work.run_here(JOB)
    assert work.snapshot() == before


def test_targets_of_a_store_stay(straight: Workplace) -> None:
    for target in ("price", ["price", "age"]):
        with pytest.raises(StoreError, match=r"made with target = \('price', 'rent'\), the job says .*another store"):
            straight.run_here({**JOB, "source.target": target})
    assert straight.run_here({**JOB, "source.target": ["rent", "price"]})["new_partitions"] == 0


def test_columns_of_predictions_that_would_share_a_name_are_refused(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for where in ("rows", "held-out"):
        work.put(0, draw(0).rename_columns(["size", "age", "x", "observed_x"]), where)
    changes = {**JOB, "source.target": ["x", "observed_x"]}
    work.run_here(changes)
    assert work.predict_here("held-out", changes).column_names == ["prediction_x", "prediction_observed_x"]
    with pytest.raises(PartitionError, match=r"two columns .* called 'std_observed_x'; rename a target or class"):
        work.predict_here("held-out", changes, with_std=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"source.target": []}, "source.target"),
        ({"source.target": ["price", ""]}, "source.target"),
        ({"source.positive": 2}, "with positive or classes there is one target"),
        ({"source.classes": "all"}, "with positive or classes there is one target"),
    ],
    ids=json.dumps,
)
def test_invalid_jobs_are_refused(tmp_path: Path, changes: Settings, said: str) -> None:
    work = Workplace(tmp_path)
    done = run_command("run", work.job({**JOB, **changes}))
    assert (done.code, said in done.err, done.out) == (exit_codes.USAGE, True, ""), done


def test_a_target_named_twice_is_refused(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    put(work, range(1))
    with pytest.raises(PartitionError, match="column 'price' is named twice; give each column one role"):
        work.run_here({**JOB, "source.target": ["price", "price"]})


def test_scores_are_for_classes(straight: Workplace) -> None:
    done = run_command("predict", straight.job(JOB), straight.folder / "held-out", straight.folder / "p", "--scores")
    assert (done.code, "--scores is for classes" in done.err) == (exit_codes.USAGE, True)
    assert not (straight.folder / "p").exists()
