"""What users of neighbouring systems ran into, and its neighbours: each kind of input, at every door and method.

Others of its kind are next to what they are about: `test_bad_input`, `test_policies`, `test_nights`, `test_classes`.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import (
    REGRESSION,
    Workplace,
    assert_same_model,
    draw_regression,
    draw_rows,
    open_store,
    run_command,
    set_column,
)
from support.points import points

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.commands.ingest import run_ingest
from ridgestream.jobs.commands.quarantine import run_quarantine
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.requests import model_request
from ridgestream.pipeline.base.errors import InputError, MemoryRefused, NumericalBreakdown
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.memory_plan import check_plans
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.registry import METHODS
from ridgestream.pipeline.training.trainer import trainer_of
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.catalog.models import list_models
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.segments.segments import Segment

SETTINGS: dict[str, dict[str, Any]] = {
    "online": {},
    "novelty": {"model.method": "online", "model.selection": "novelty"},
    "drawn": {
        "model.method": "online",
        "model.selection": "fixed",
        "model.random_basis": 10,
        "model.max_basis": None,
        "model.refit": True,
    },
    "shard-merge-select": {"model.shard_merge_select.shards": 3, "model.shard_merge_select.shard_basis": 20},
    "ols": {},
    "efvs": {},
    "fvs": {},
    "orols": {"model.regularization": None},
    "isls-svm": {"model.isls_svm.start_basis": 30},
    "subset-of-regressors": {"model.max_basis": None, "model.subset_of_regressors.start_basis": 20},
    "ls-svm": {"model.max_basis": None},
    "sls-svm": {"model.sls_svm.step": 0.5, "model.folds": 2},
    "kernel-ridge": {"model.max_basis": None},
}
SIZE = {
    "drawn": ("model.random_basis",),
    "shard-merge-select": ("model.max_basis", "model.shard_merge_select.shard_basis"),
    "isls-svm": ("model.max_basis", "model.isls_svm.start_basis"),
    "subset-of-regressors": ("model.subset_of_regressors.start_basis",),
    "ls-svm": (),
    "sls-svm": (),
    "kernel-ridge": (),
}
"""Which keys say how large a dictionary is, where not max_basis alone."""

DENSE = ("ls-svm", "sls-svm", "kernel-ridge")
"""Their dictionary is all rows, or rows of it."""

FEW = ("online", "drawn", "shard-merge-select", "orols", "kernel-ridge")
"""One of each kind, for what takes several runs: selecting, given, on sums, by residuals, dense."""

ROWS = 60


def changes_for(method: str, **more: Any) -> dict[str, Any]:
    """Settings of a small regression by a method."""
    base = {"model.method": method, **REGRESSION, "model.max_basis": 12, "model.scaling_rows": "all"}
    return base | SETTINGS[method] | {key.replace("__", "."): value for key, value in more.items()}


def regression(seed: int, **columns: Any) -> pa.Table:
    table = draw_regression(seed, ROWS)
    for name, values in columns.items():
        table = set_column(table, name, pa.array(values))
    return table


def with_first(values: Any, first: float) -> Any:
    return np.concatenate([[first], np.asarray(values)[1:]])


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put(0, regression(0))
    work.put(0, regression(1000), where="held-out")
    return work


def assert_finite(work: Workplace, changes: dict[str, Any]) -> None:
    """The model and its error bars are numbers, and no variance is negative."""
    record = work.model()
    assert all(np.isfinite(a).all() for name, a in record.arrays.items() if name != "path_value")  # GCV has no bound
    predictions = work.predict_here("held-out", changes, with_std=True)
    for name in predictions.column_names:
        assert np.isfinite(predictions[name].to_numpy()).all(), name
    assert predictions["std"].to_numpy().min() >= 0
    assert (predictions["std_observed"].to_numpy() >= predictions["std"].to_numpy()).all()


def test_every_method_is_here() -> None:
    assert METHODS.keys() <= SETTINGS.keys()


@pytest.mark.samples
@pytest.mark.parametrize("target", ["price", "age"])
@pytest.mark.parametrize("method", ["online", "kernel-ridge"])
def test_a_value_too_extreme_for_the_model_is_refused_before_ingest(work: Workplace, method: str, target: str) -> None:
    changes = changes_for(method, source__target=target)
    work.run_here(changes)
    bad = work.put(1, regression(1, age=with_first(np.zeros(ROWS), -1e100)))
    snapshot = work.snapshot()
    with pytest.raises(PartitionError, match=r"part-01.parquet is not ingested: column 'age' has the value -1e\+100"):
        work.run_here(changes)
    assert work.snapshot() == snapshot
    assert work.run_here(changes | {"source.on_bad": "quarantine"})["new_partitions"] == 0
    pq.write_table(regression(1), bad)
    assert work.run_here(changes)["new_partitions"] == 1


@pytest.mark.parametrize("method", ["online", "subset-of-regressors"])
def test_an_ingested_value_too_extreme_for_the_model_is_reported_with_a_remedy(work: Workplace, method: str) -> None:
    changes = changes_for(method, model__scaling_rows=1)
    work.put(1, regression(1, age=with_first(np.zeros(ROWS), 1e100)))
    with pytest.raises(
        InputError, match=r"partition part-01.parquet: column 'age' has the value 1e\+100.*ridgestream quarantine"
    ):
        work.run_here(changes)
    assert list_models(open_store(work.store).root()) == ()
    run_quarantine(read_job(work.job(changes), {}), "part-01.parquet", "too far out", 0.0, release=False)
    assert work.run_here(changes)["rows_seen"] == ROWS


@pytest.mark.samples
@pytest.mark.parametrize("method", FEW)
def test_an_absurd_row_of_weight_zero_is_absent(work: Workplace, tmp_path: Path, method: str) -> None:
    weights = with_first(np.ones(ROWS), 0.0)
    other = Workplace(tmp_path / "other")
    for place, far in ((work, 1e100), (other, 1e39)):  # neither fits into float32, so that both are kept alike
        place.put(0, regression(0, w=np.ones(ROWS)))
        place.put(0, regression(1000, w=np.ones(ROWS)), where="held-out")
        changes = changes_for(method, source__weight="w", model__kernel__name="polynomial", model__kernel__gamma=0.1)
        place.run_here(changes)
        table = draw_regression(1, ROWS)
        columns = {name: with_first(table[name].to_numpy(), far) for name in ("size", "age", "price")}
        place.put(1, regression(1, w=weights, **columns))
        place.run_here(changes)
    assert_finite(work, changes)
    left, right = work.model().arrays, other.model().arrays
    assert left["coefficients"].tobytes() == right["coefficients"].tobytes()
    assert left["basis_vectors"].tobytes() == right["basis_vectors"].tobytes()


@pytest.mark.samples
@pytest.mark.parametrize("method", FEW)
def test_held_out_rows_on_which_predictions_overflow_are_reported_and_the_model_is_committed(
    work: Workplace, method: str
) -> None:
    changes = changes_for(method, model__kernel__name="polynomial", model__kernel__gamma=1.0, model__kernel__degree=2)
    path = work.put(0, regression(1000, age=[*np.zeros(7), 1e99, *np.zeros(ROWS - 8)]), where="held-out")
    with pytest.raises(PartitionError, match=r"held-out/part-00.parquet: row 7 lies so far .*; the model has learned"):
        work.run_here(changes)
    assert work.model().history[-1].test_mse is None
    with pytest.raises(PartitionError, match=r"part-00.parquet: row 7 lies so far from the rows that the model knows"):
        work.evaluate_here(changes)
    with pytest.raises(PartitionError, match=r"row 7 lies so far .* choose the rbf kernel"):
        work.predict_here("held-out", changes)
    assert not list((work.folder / "predictions").glob("*.parquet"))
    pq.write_table(regression(1000), path)
    assert work.evaluate_here(changes)["test_mse"] > 0


@pytest.mark.samples
@pytest.mark.parametrize("method", FEW)
def test_new_rows_on_which_a_kernel_overflows_are_reported_with_their_partition(work: Workplace, method: str) -> None:
    changes = changes_for(method, model__kernel__name="polynomial", model__kernel__gamma=1.0)
    work.run_here(changes)
    before = work.model()
    work.put(1, regression(1, age=with_first(np.zeros(ROWS), 1e60)))
    with pytest.raises(NumericalBreakdown, match=r"partition part-01.parquet.*ridgestream quarantine JOB.toml part-01"):
        work.run_here(changes)
    assert_same_model(work.model(), before)
    run_quarantine(read_job(work.job(changes), {}), "part-01.parquet", "too far out", 0.0, release=False)
    work.put(2, regression(2))
    assert work.run_here(changes)["rows_seen"] == 2 * ROWS
    assert_finite(work, changes)


@pytest.mark.parametrize("method", SETTINGS)
def test_a_dictionary_of_50000_is_refused_with_the_bytes(work: Workplace, method: str) -> None:
    large = dict.fromkeys(SIZE.get(method, ("model.max_basis",)), 50_000)
    request = model_request(read_job(work.job(changes_for(method) | large), {}))
    with pytest.raises(MemoryRefused, match=r"needs? \d.* [GT]B of memory.*1 GB may be used"):
        check_plans([trainer_of(request).plan_memory(None, 10**6, 1, 1)], 10**9)


@pytest.mark.samples
@pytest.mark.parametrize("method", [m for m in SETTINGS if m in METHODS and m not in DENSE])
def test_a_dictionary_larger_than_the_rows_needs_no_more_than_they_do(work: Workplace, method: str) -> None:
    changes = changes_for(method, memory_limit="1GB") | dict.fromkeys(SIZE.get(method, ("model.max_basis",)), 50_000)
    assert 0 < work.run_here(changes)["n_basis"] <= ROWS
    assert_finite(work, changes)


@pytest.mark.samples
@pytest.mark.parametrize("method", points(SETTINGS, FEW))
def test_duplicates_never_enter_the_dictionary(work: Workplace, method: str) -> None:
    table = regression(0)
    nearly = set_column(table, "size", pa.array(table["size"].to_numpy() + 1e-12))
    work.put(0, pa.concat_tables([table, table, nearly]))
    work.run_here(changes_for(method))
    assert_finite(work, changes_for(method))
    vectors = work.model().arrays["basis_vectors"]
    apart = np.abs(vectors[:, None] - vectors).max(axis=2) + np.eye(len(vectors))
    if method not in DENSE:
        assert apart.min() > 1e-9


@pytest.mark.samples
@pytest.mark.parametrize("method", points(SETTINGS, FEW))
def test_rows_that_are_all_equal(work: Workplace, method: str) -> None:
    work.put(0, regression(0, size=np.full(ROWS, 3.5), age=np.full(ROWS, -2.0)))
    if method == "orols":
        with pytest.raises(NumericalBreakdown, match="no row has a usable column"):
            work.run_here(changes_for(method))
        return
    work.run_here(changes_for(method))
    assert_finite(work, changes_for(method))
    if method not in DENSE:
        assert len(work.model().arrays["basis_vectors"]) == 1


@pytest.mark.samples
@pytest.mark.parametrize("kernel", [("rbf", 1e-300), ("rbf", 1e300), ("polynomial", 1e-300), ("polynomial", 1e100)])
@pytest.mark.parametrize("method", points(FEW, ["drawn", "orols"]))
def test_a_kernel_beyond_rounding_makes_no_model(work: Workplace, method: str, kernel: tuple[str, float]) -> None:
    changes = changes_for(method, model__kernel__name=kernel[0], model__kernel__gamma=kernel[1])
    try:
        work.run_here(changes)
    except (NumericalBreakdown, InputError):
        assert list_models(open_store(work.store).root()) == ()
        return
    assert_finite(work, changes)


@pytest.mark.samples
@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("method", ["online", "ols", "isls-svm"])
def test_a_shift_of_the_inputs_changes_no_prediction(
    work: Workplace, tmp_path: Path, method: str, *, single: bool
) -> None:
    kind = np.float32 if single else np.float64
    shifted = Workplace(tmp_path / "shifted")
    for where, seed in (("rows", 0), ("held-out", 1000)):
        table = draw_regression(seed, ROWS)
        names = ("size", "age")
        rounded = {n: (table[n].to_numpy() + 1e4).astype(kind) for n in names}  # the same digits in both places
        work.put(0, regression(seed, **{n: v.astype(np.float64) - 1e4 for n, v in rounded.items()}), where=where)
        shifted.put(0, regression(seed, **rounded), where=where)
    found = [place.run_here(changes_for(method)) for place in (work, shifted)]
    assert found[0]["n_basis"] == found[1]["n_basis"]
    predictions = [p.predict_here("held-out", changes_for(method))["prediction"].to_numpy() for p in (work, shifted)]
    np.testing.assert_allclose(predictions[0], predictions[1], rtol=1e-6)


@pytest.mark.parametrize("method", points(SETTINGS, FEW))
def test_a_variance_is_never_negative_however_little_is_penalized(work: Workplace, method: str) -> None:
    changes = changes_for(method) if method == "orols" else changes_for(method, model__regularization=1e-14)
    work.put(0, regression(0), where="held-out")  # the basis vectors are among them
    try:
        work.run_here(changes)
    except NumericalBreakdown as error:
        assert "rounding" in str(error)  # noqa: PT017
        assert method in DENSE
        return
    assert_finite(work, changes)


@pytest.mark.samples
@pytest.mark.parametrize("method", FEW)
def test_partitions_without_rows_change_no_bit(work: Workplace, tmp_path: Path, method: str) -> None:
    other = Workplace(tmp_path / "other")
    other.put(0, regression(1000), where="held-out")
    for number in range(5):  # first, in the middle and last
        work.put(number, regression(number // 2) if number % 2 else regression(9).slice(0, 0))
    for number in range(2):
        other.put(number, regression(number))
    summary = work.run_here(changes_for(method))
    assert summary["partitions_consumed"] == 5
    assert other.run_here(changes_for(method))["rows_seen"] == summary["rows_seen"]
    left, right = work.model().arrays, other.model().arrays
    assert left.keys() == right.keys()
    assert [n for n in left if left[n].tobytes() != right[n].tobytes()] == []


CLASSES = {"source.target": "label", "source.positive": None, "source.classes": "all"}


@pytest.mark.samples
@pytest.mark.parametrize("method", ["online", "ols", "kernel-ridge"])
def test_a_new_class_is_refused_with_label_and_partition(tmp_path: Path, method: str) -> None:
    work = Workplace(tmp_path)
    two = [set_column(draw_rows(seed, ROWS), "label", pa.array([0, 1] * (ROWS // 2))) for seed in range(3)]
    work.put(0, two[0])
    work.put(0, two[1], where="held-out")
    work.run_here(changes_for(method) | CLASSES)
    before = work.model()
    work.put(1, set_column(two[2], "label", pa.array([0, 1, 2] * (ROWS // 3))))
    with pytest.raises(PartitionError, match=r"part-01.parquet is not ingested: the target has the class 2"):
        work.run_here(changes_for(method) | CLASSES)
    assert_same_model(work.model(), before)
    work.put(1, two[2])
    assert work.run_here(changes_for(method) | CLASSES)["rows_seen"] == 2 * ROWS


class FailingOnce(InProcess):
    """Runs each task twice: at first it fails, after all that it reads but the last has been read; then it is whole."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.failed = 0
        self._failing = False
        real = Segment.read

        def read(segment: Segment, *arguments: Any) -> Any:
            rows = real(segment, *arguments)
            if self._failing:
                self.failed += 1
                raise ConnectionError("a task that fails once")
            return rows

        monkeypatch.setattr(Segment, "read", read)

    def run(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:
        for task in tasks:
            self._failing = True
            try:
                first = function(task, *shared)
            except ConnectionError:
                first = None
            finally:
                self._failing = False
            yield function(task, *shared) if first is None else first


@pytest.mark.samples
@pytest.mark.parametrize("method", ["drawn", "shard-merge-select", "ols", "orols"])
def test_a_task_that_fails_once_and_is_retried_leaves_no_trace(
    work: Workplace, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Workplace(tmp_path / "other")
    other.put(0, regression(1000), where="held-out")
    for place in (work, other):
        for number in range(3):
            place.put(number, regression(number))
    work.run_here(changes_for(method))
    executor = FailingOnce(monkeypatch)
    run_job(read_job(other.job(changes_for(method)), {}), executor, Silent(), 0.0, new_model=False)
    assert executor.failed > 0
    assert_same_model(work.model(), other.model())


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "0 bytes": (lambda path: path.write_bytes(b""), r"is empty \(0 bytes\)"),
    "without its end": (lambda path: path.write_bytes(path.read_bytes()[:-100]), "is not a readable Parquet"),
    "gone": (lambda path: path.unlink(), "does not exist|holds no partition|no Parquet"),
    "without a column": (lambda path: pq.write_table(regression(1).drop_columns(["age"]), path), "no column 'age'"),
    "text": (lambda path: pq.write_table(regression(1, age=["a"] * ROWS), path), "column 'age' has type string"),
    "NaN": (
        lambda path: pq.write_table(regression(1, age=with_first(np.zeros(ROWS), np.nan)), path),
        "column 'age' has the value nan in row 0",
    ),
    "1e200": (
        lambda path: pq.write_table(regression(1, age=with_first(np.zeros(ROWS), 1e200)), path),
        r"column 'age' has the value 1e\+200 in row 0",
    ),
}
GIVEN: dict[str, dict[str, Any]] = {
    "a fixed dictionary": {"model.selection": "fixed", "model.max_basis": None},
    "a start": {"model.isls_svm.start": "given"},
}


@pytest.mark.samples
@pytest.mark.parametrize("name", SPOILED)
@pytest.mark.parametrize("kind", points(GIVEN, list(GIVEN)[:1]))
def test_an_unusable_given_dictionary_is_reported_and_makes_no_model(work: Workplace, kind: str, name: str) -> None:
    spoil, message = SPOILED[name]
    path = work.folder / "dictionary.parquet"
    pq.write_table(regression(1).slice(0, 10), path)
    method = "online" if kind == "a fixed dictionary" else "isls-svm"
    changes = changes_for(method, model__dictionary=path.name) | GIVEN[kind]
    changes.pop("model.isls_svm.start_basis", None)
    spoil(path)
    with pytest.raises((PartitionError, InputError), match=message) as caught:
        work.run_here(changes)
    assert str(path) in str(caught.value)
    assert exit_codes.exit_code_of(caught.value) == exit_codes.DATA
    assert not work.store.exists() or list_models(open_store(work.store).root()) == ()
    pq.write_table(regression(1).slice(0, 10), path)
    assert work.run_here(changes)["rows_seen"] == ROWS


@pytest.mark.samples
@pytest.mark.parametrize("name", SPOILED)
def test_unusable_rows_to_evaluate_or_predict_are_reported_by_file(work: Workplace, name: str) -> None:
    spoil, message = SPOILED[name]
    work.run_here(changes_for("online"))
    path = work.put(1, regression(1), where="held-out")
    spoil(path)
    if name == "gone":
        path.symlink_to(work.folder / "nowhere.parquet")
        message = "cannot be read: No such file"
    for door in (work.evaluate_here, lambda changes: work.predict_here("held-out", changes)):
        with pytest.raises(PartitionError, match=message) as caught:
            door(changes_for("online"))
        assert str(path) in str(caught.value)
    assert not (work.folder / "predictions" / "part-01.parquet").exists()


def test_the_command_reports_a_bad_value_in_one_line_with_exit_code_3(work: Workplace) -> None:
    changes = changes_for("online")
    work.run_here(changes)
    work.put(1, regression(1, age=with_first(np.zeros(ROWS), 1e100)))
    done = run_command("run", work.job(changes), "--json")
    assert (done.code, done.out) == (exit_codes.DATA, "")
    assert "Traceback" not in done.err
    assert "column 'age' has the value 1e+100" in done.err
    assert len(read_ledger(open_store(work.store).root()).entries) == 1


@pytest.mark.thorough
def test_unusual_names_of_partitions_are_ingested_and_predicted(tmp_path: Path) -> None:
    work, names = Workplace(tmp_path), ["a b", "ü", "100%", "q'uote", "-x", "A", "a", "x" * 200]
    (tmp_path / "rows").mkdir()
    for seed, name in enumerate(names):
        pq.write_table(regression(seed).slice(0, 10), tmp_path / "rows" / f"{name}.parquet")
    changes = changes_for("online", evaluate__path=None)
    summary = run_ingest(read_job(work.job(changes), {}), InProcess(), Silent(), 0.0)
    assert summary["new_partitions"] == len(names)
    assert work.run_here(changes)["rows_seen"] == 10 * len(names)
    assert work.predict_here("rows", changes).num_rows == 10 * len(names)
    assert {p.stem for p in (tmp_path / "predictions").iterdir()} == set(names)
