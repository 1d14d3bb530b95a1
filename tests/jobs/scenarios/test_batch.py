"""Batch methods as jobs: the same command, model file, predictions and promises as the online learner's."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import (
    REGRESSION,
    Workplace,
    assert_same_model,
    draw_regression,
    draw_rows,
    of_one_class,
    set_column,
)
from support.jobs.recording import NEVER, Killed, Notes
from support.points import points
from support.stores.stores import PicklingExecutor

from ridgestream.jobs.commands.inspect import run_inspect, show_inspection
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import JobFileError, parse_flags
from ridgestream.pipeline.base import pass_checkpoint
from ridgestream.pipeline.base.errors import MemoryRefused, NumericalBreakdown
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Reporter, Silent
from ridgestream.pipeline.batch.registry import METHODS
from ridgestream.pipeline.dataset import stored_rows
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.models.model_record import expansion_of, fitted_of
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.selection.fit_result import Path as SelectionPath
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import BlockStatistics, FoldedStatistics
from ridgestream.pipeline.training.batch_fit import check_fitted
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.repository.store_location import StoreLocation

GRID = [1e-5, 1e-4, 1e-3]
SETTINGS: dict[str, dict[str, Any]] = {
    "shard-merge-select": {
        "model.regularization": GRID,
        "model.shard_merge_select.shards": 3,
        "model.shard_merge_select.shard_basis": 30,
    },
    "ols": {},
    "efvs": {},
    "fvs": {},
    "orols": {"model.regularization": None},
    "isls-svm": {"model.regularization": GRID, "model.isls_svm.start_basis": 100},
    "subset-of-regressors": {
        "model.max_basis": None,
        "model.regularization": GRID,
        "model.subset_of_regressors.start": "k-means",
        "model.subset_of_regressors.start_basis": 60,
    },
    "ls-svm": {"model.max_basis": None, "model.regularization": GRID, "model.ls_svm.reweightings": 1},
    "sls-svm": {"model.regularization": 1e-4, "model.sls_svm.step": 0.5, "model.folds": 2},
    "kernel-ridge": {"model.max_basis": None, "model.regularization": GRID},
}
SUMMED = [method for method in SETTINGS if not METHODS[method].always_reselects]


def changes_for(method: str, **changes: Any) -> dict[str, Any]:
    more = {key.replace("__", "."): value for key, value in changes.items()}
    return {"model.method": method, "model.kernel.gamma": 0.4, "model.max_basis": 60, **SETTINGS[method], **more}


def run_with(work: Workplace, changes: dict[str, Any], executor: Any = None, report: Reporter | None = None) -> Any:
    job = read_job(work.job(changes), {})
    return run_job(job, executor or InProcess(), report or Silent(), 0.0, new_model=False)


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put_all(range(3))
    return work


def test_every_method_has_settings_here() -> None:
    assert SETTINGS.keys() == METHODS.keys()


@pytest.mark.samples
@pytest.mark.parametrize("method", SETTINGS)
def test_a_method_trains_and_predicts_with_error_bars_and_is_inspected(
    method: str, work: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = work.run_here(changes_for(method))
    assert (summary["rows_seen"], summary["partitions_consumed"]) == (600, 3)
    assert summary["test_error"] < (0.45 if method == "sls-svm" else 0.3)  # Suykens' pruning loses much at few vectors
    assert work.evaluate_here(changes_for(method))["test_error"] == summary["test_error"]
    predictions = work.predict_here("held-out", changes_for(method), with_std=True)
    truth = pq.read_table(work.folder / "held-out")["label"].to_numpy() == 2
    assert np.mean((predictions["prediction"].to_numpy() == 1) != truth) == summary["test_error"]
    deviation, observed = predictions["std"].to_numpy(), predictions["std_observed"].to_numpy()
    assert np.isfinite(deviation).all()
    assert deviation.min() >= 0
    assert (observed > deviation).all()
    inspected = run_inspect(StoreLocation(str(work.store)))
    show_inspection(inspected)
    shown = capsys.readouterr().out
    assert f"{summary['n_basis']} basis vectors" in shown
    assert f"method {method}, λ " in shown
    path = inspected["models"][0].get("path")
    if path is not None:
        assert path["n_basis"][path["chosen"]] == summary["n_basis"]
        assert f"best of {len(path['value'])} models" in shown
    assert inspected["models"][0]["parameters"]["method"] == method
    assert work.run_here(changes_for(method))["new_partitions"] == 0


@pytest.mark.samples
@pytest.mark.parametrize("method", points(SETTINGS, ["orols", "isls-svm", "shard-merge-select"]))
def test_where_tasks_are_done_changes_no_bit(method: str, work: Workplace, tmp_path: Path) -> None:
    work.run_here(changes_for(method))
    other = Workplace(tmp_path / "other")
    other.put_all(range(3))
    run_with(other, changes_for(method), PicklingExecutor())
    assert_same_model(work.model(), other.model())


@pytest.mark.samples
@pytest.mark.parametrize("method", points(SUMMED, ["ols", "isls-svm", "shard-merge-select"]))
def test_a_night_adds_its_sums_for_the_existing_dictionary(method: str, work: Workplace) -> None:
    work.run_here(changes_for(method))
    before = work.model()
    work.put(3)
    summary = work.run_here(changes_for(method))
    after = work.model()
    assert (summary["new_rows"], summary["rows_seen"]) == (200, 800)
    assert 0 < summary["progressive_error"] < 0.3
    assert after.arrays["basis_vectors"].tobytes() == before.arrays["basis_vectors"].tobytes()
    assert after.parameters == before.parameters
    found, expected = fits_to_rows(work, after)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert np.abs(after.arrays["coefficients"] - before.arrays["coefficients"]).max() > 1e-3


def fits_to_rows(work: Workplace, record: ModelRecord) -> tuple[Any, Any]:
    """What the model says of all rows of the source, and what a dense solve over them says."""
    table, model = pq.read_table(work.folder / "rows"), expansion_of(record)
    numeric = np.column_stack([table[f"x{i}"].to_numpy() for i in range(4)])
    features = model.feature_map.features(numeric, np.empty((len(numeric), 0), dtype=np.int32), [])
    values, y = model.basis.values(features), np.where(table["label"].to_numpy() == 2, 1.0, -1.0)
    penalty = fitted_of(record).regularization * len(y) * penalty_of(record, values)
    dense = np.linalg.solve(values.T @ values + penalty, values.T @ y)
    return (values @ model.coefficients)[:, 0], values @ dense


def penalty_of(record: ModelRecord, values: Any) -> Any:
    """What λn is times: K, or for OROLS UᵀU, where the columns in the order of choice are QU with orthogonal Q."""
    if record.parameters["method"] != "orols":
        return expansion_of(record).basis.penalty()
    order = np.r_[values.shape[1] - 1, np.argsort(record.arrays["own_turns"][:, 0])]
    R = np.linalg.qr(values[:, order], mode="r")
    U = R / np.diagonal(R)[:, np.newaxis]
    penalty = np.empty_like(R)
    penalty[np.ix_(order, order)] = U.T @ U
    return penalty


@pytest.mark.samples
@pytest.mark.parametrize("method", points(SETTINGS, ["ols", "orols", "shard-merge-select"]))
def test_reselected_on_a_second_night_it_is_the_model_of_one_run(method: str, work: Workplace, tmp_path: Path) -> None:
    changes = changes_for(method) if METHODS[method].always_reselects else changes_for(method, model__reselect="always")
    work.put(3)
    work.run_here(changes)
    nightly = Workplace(tmp_path / "nightly")
    nightly.put_all(range(2))
    nightly.run_here(changes)
    for number in (2, 3):
        nightly.put(number)
    nightly.run_here(changes)
    assert_same_model(work.model(), nightly.model())


@pytest.mark.thorough
def test_drift_selects_again_and_is_reported(work: Workplace) -> None:
    changes = changes_for("ols", model__reselect="on drift", model__drift_margin=0.8)
    work.run_here(changes)
    before = work.model()
    notes = Notes()
    work.put(3)
    run_with(work, changes, report=notes)
    assert "train.reselected_for_drift" not in notes.codes
    same = work.model()
    assert same.arrays["basis_vectors"].tobytes() == before.arrays["basis_vectors"].tobytes()
    moved = draw_rows(4)
    work.put(4, set_column(moved, "x0", moved["x0"].to_numpy() * -3 + 2))
    run_with(work, changes, report=notes)
    facts = notes.facts("train.reselected_for_drift")
    assert float(str(facts["mse_of_new"])) > 1.8 * float(str(facts["mse_of_old_rows"]))
    assert work.model().arrays["basis_vectors"].tobytes() != before.arrays["basis_vectors"].tobytes()


def test_other_regularizations_are_compared_at_once_and_other_sizes_are_another_model(work: Workplace) -> None:
    changes = changes_for("shard-merge-select")
    work.run_here(changes)
    first = work.model()
    summary = work.run_here({**changes, "model.regularization": [0.1, 1.0]})
    assert summary["new_partitions"] == 0
    assert work.model().parameters["regularization"] == [0.1, 1.0]
    assert work.model().parameters["learner"]["regularization"] in (0.1, 1.0)
    assert work.model().arrays["coefficients"].tobytes() != first.arrays["coefficients"].tobytes()
    with pytest.raises(ModelError, match=r"shard_merge_select\.shards was 3, is 4; give the model another name"):
        work.run_here({**changes, "model.shard_merge_select.shards": 4})
    with pytest.raises(ModelError, match="method was 'shard-merge-select', is 'online'"):
        work.run_here()


@pytest.mark.samples
@pytest.mark.parametrize("method", points(SUMMED, ["ols", "shard-merge-select"]))
def test_a_killed_training_goes_on_and_ends_in_the_same_bits(
    method: str, work: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pass_checkpoint, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(pass_checkpoint, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(pass_checkpoint, "WORTH_BYTES", 2**62)
    monkeypatch.setattr(stored_rows, "TASK_ROWS", 256)
    straight = Workplace(tmp_path / "straight")
    straight.put_all(range(3))
    counting = Killed(NEVER)
    run_with(straight, changes_for(method), counting)
    for after in (4, 2, 1):  # the first three tasks are those of the ingest, in the first run
        with suppress(KeyboardInterrupt):  # a method of few passes may be done by now
            run_with(work, changes_for(method), Killed(after))
    ending = Killed(NEVER)
    run_with(work, changes_for(method), ending)
    assert ending.done < counting.done - 3
    assert_same_model(work.model(), straight.model())


@pytest.mark.thorough
def test_each_class_and_several_targets_share_a_dictionary(work: Workplace, tmp_path: Path) -> None:
    classes = {"source.positive": None, "source.classes": "all"}
    for method in ("shard-merge-select", "ols", "isls-svm"):
        summary = work.run_here({**changes_for(method), **classes, "store": method})
        assert summary["test_error"] < 0.35
    prices = Workplace(tmp_path / "prices")
    for number in range(3):
        table = draw_regression(number)
        prices.put(number, set_column(table, "half", table["price"].to_numpy() / 2 + table["age"].to_numpy()))
    prices.put(0, prices_held_out(), where="held-out")
    both = {**REGRESSION, "source.target": ["price", "half"]}
    summary = prices.run_here({**changes_for("shard-merge-select"), **both})
    assert summary["test_mse_of"]["price"] < 60**2
    predicted = prices.predict_here("held-out", {**changes_for("shard-merge-select"), **both}, with_std=True)
    assert {"prediction_price", "prediction_half", "std_price", "std_half"} <= set(predicted.column_names)


def prices_held_out() -> Any:
    table = draw_regression(99)
    return set_column(table, "half", table["price"].to_numpy() / 2 + table["age"].to_numpy())


def test_a_given_dictionary_and_several_widths(work: Workplace) -> None:
    pq.write_table(draw_rows(77, 30), work.folder / "dictionary.parquet")
    changes = {
        **changes_for("isls-svm"),
        "model.kernel.gamma": [1e-6, 0.4],
        "model.dictionary": "dictionary.parquet",
        "model.isls_svm.start": "given",
        "model.isls_svm.start_basis": None,
    }
    summary = work.run_here(changes)
    assert summary["n_basis"] <= 30
    record = work.model()
    assert record.parameters["learner"]["kernel"] == {"name": "rbf", "gamma": 0.4}
    assert set(record.arrays["basis_rows"]) == {-1}
    assert len(set(record.arrays["path_width"])) == 2


@pytest.mark.samples
@pytest.mark.parametrize("method", SETTINGS)
def test_a_constant_target_is_predicted_with_finite_error_bars(method: str, tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    table = draw_regression(0, 120)
    for where in ("rows", "held-out"):
        work.put(0, set_column(table, "price", np.full(120, 7.0)), where=where)
    changes = {**changes_for(method), **REGRESSION}
    work.run_here(changes)
    found = work.predict_here("held-out", changes, with_std=True)
    np.testing.assert_allclose(found["prediction"].to_numpy(), 7.0)
    assert np.isfinite(found["std"].to_numpy()).all()
    assert np.isfinite(found["std_observed"].to_numpy()).all()


@pytest.mark.samples
@pytest.mark.parametrize("method", ["shard-merge-select", "isls-svm", "subset-of-regressors", "ls-svm", "kernel-ridge"])
def test_a_kernel_beyond_all_digits_is_a_breakdown_and_no_model(method: str, work: Workplace) -> None:
    kernel = {"model.kernel.name": "polynomial", "model.kernel.degree": 60, "model.kernel.gamma": 50.0}
    with pytest.raises(NumericalBreakdown, match=r"lower the kernel's gamma|not finite|raise .*regularization"):
        work.run_here({**changes_for(method), **kernel})
    assert run_inspect(StoreLocation(str(work.store)))["models"] == []


def test_coefficients_within_rounding_are_refused_and_a_poor_fit_of_fewer_rows_is_reported() -> None:
    rng = np.random.default_rng(0)
    basis = Basis(RBF(1.0), rng.random((2, 2)), np.zeros(2))
    sums = BlockStatistics(np.eye(2), np.ones((2, 1)), np.array([[4.0]]), 4.0, 4)
    good, bad = (
        Fitted(basis, np.arange(2), np.full((2, 1), size), 1e-5, FoldedStatistics((sums,))) for size in (1.0, 1e9)
    )
    notes = Notes()
    check_fitted(good, notes, shrinks=True)
    with pytest.raises(NumericalBreakdown, match=r"comes to 2e\+18, which must lie between 0 and 4"):
        check_fitted(bad, notes, shrinks=True)
    check_fitted(bad, notes, shrinks=False)
    assert notes.codes == ["train.worse_than_constant"]
    for error_of_more, codes in ((0.6, []), (0.4, ["train.size_too_small"])):
        sizes, lambdas, widths = np.array([8, 2]), np.full(2, 1e-5), np.zeros(2, np.int64)
        path = SelectionPath("fold_error", sizes, lambdas, np.array([error_of_more, 1.0]), widths, chosen=1)
        notes = Notes()
        check_fitted(replace(good, path=path), notes, shrinks=False)
        assert notes.codes == codes


def test_one_class_and_no_rows_are_reported(tmp_path: Path) -> None:
    notes, one = Notes(), Workplace(tmp_path / "one")
    one.put(0, of_one_class(0))
    run_with(one, changes_for("ols", evaluate__path=None), report=notes)
    assert notes.all("train.one_class") == [{"positive": 2, "classes": "2"}]
    nothing = Workplace(tmp_path / "nothing")
    nothing.put(0, draw_rows(0, 0))
    run_with(nothing, changes_for("ols", evaluate__path=None), report=notes)
    assert notes.codes[-1] == "train.no_rows"


def test_a_key_is_taken_back(work: Workplace) -> None:
    changes = {"model.max_basis": 20, "model.folds": 3, "model.method": "ols"}
    job = read_job(work.job(changes), parse_flags(["model.max_basis=", "model.folds="]))
    assert (job.model.max_basis, job.model.folds) == ("auto", 5)


def test_a_run_beyond_the_memory_limit_is_refused_before_any_ingest(work: Workplace) -> None:
    with pytest.raises(MemoryRefused, match=r"method ls-svm with sums of .* and .* rows in memory needs .*; 300 MB"):
        work.run_here({**changes_for("ls-svm"), "memory_limit": "300MB"})
    assert not work.store.exists() or run_inspect(StoreLocation(str(work.store)))["partitions"] == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model.method": "ols", "model.selection": "novelty"}, "method ols takes no selection"),
        ({"model.method": "ols", "model.regularization": GRID}, "method ols takes a single regularization, not a list"),
        ({"model.regularization": GRID}, "method online takes a single regularization, not a list"),
        ({"model.method": "ols", "model.kernel.gamma": [1, 2]}, "method ols takes a single kernel.gamma, not a list"),
        ({"model.method": "ols", "model.efvs.sample": 5}, "method ols takes no efvs"),
        ({"model.method": "ols", "model.refit": True}, "method ols takes no refit"),
        ({"model.folds": 3}, "method online takes no folds"),
        (
            {"model.method": "isls-svm", "model.regularization": GRID, "model.folds": 1},
            "folds = 1 cannot choose from 1 kernels and 3 regularizations: give folds = 2 or more",
        ),
        ({"model.method": "isls-svm", "model.isls_svm.start": "given"}, 'start = "given" and model.dictionary'),
        (
            {"model.method": "isls-svm", "model.isls_svm.smallest": 50},
            "max_basis = 20 is below smallest = 50",
        ),
        ({"model.method": "magic"}, 'must be "online" or "shard-merge-select"'),
    ],
)
def test_keys_that_a_method_does_not_take_are_refused(work: Workplace, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(JobFileError, match=said):
        read_job(work.job(changes), {})
