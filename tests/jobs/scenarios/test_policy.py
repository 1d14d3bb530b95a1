"""Policy evaluation by job files: transitions from Parquet, night after night, as the learners on arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.jobs.jobs import Settings, Workplace, assert_same_model, set_column
from support.jobs.recording import Notes
from support.stores.stores import PicklingExecutor

from ridgestream import RBF, KernelLSTD, OnlineLSTD
from ridgestream.jobs.commands.inspect import run_inspect, show_inspection
from ridgestream.jobs.commands.plan import run_plan
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.reproduction.jung_polani.processes import Transitions, mountain_car
from ridgestream.pipeline.base import pass_checkpoint
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Fact, Stopped
from ridgestream.pipeline.models.policy_record import values_of
from ridgestream.stores.errors.exceptions import ModelError, PartitionError, StoreError
from ridgestream.stores.repository.store_location import StoreLocation

ROWS = 600
POLICY: dict[str, Any] = {
    "source.target": "reward",
    "source.positive": None,
    "source.next": "*_next",
    "source.done": "done",
    "source.precision": "float64",
    "model.method": "lstd",
    "model.lstd.discount": 0.9,
    "model.kernel.gamma": 0.5,
    "model.max_basis": 25,
    "model.scaling_rows": ROWS,
    "model.metric": None,
    "evaluate.path": None,
}
BATCH: dict[str, Any] = {**POLICY, "model.lstd.update": "batch"}


def table_of(drives: Transitions) -> pa.Table:
    """Columns a, b, reward, a_next, b_next and done; where an episode ended, nothing is known of the state after it."""
    ended = drives.done == 1
    ahead = {f"{name}_next": pa.array(column, mask=ended) for name, column in zip("ab", drives.X_next.T, strict=True)}
    states = dict(zip("ab", drives.X.T, strict=True))
    return pa.table({**states, "reward": drives.reward, **ahead, "done": ended})


DRIVES = mountain_car(45, 0).part(0, 3 * ROWS)
PARTS = [DRIVES.part(start, start + ROWS) for start in range(0, 3 * ROWS, ROWS)]


def standardized(part: Transitions) -> Transitions:
    """As the job standardizes: by the first partition, x and x′ alike."""
    mean, scale = PARTS[0].X.mean(axis=0), PARTS[0].X.std(axis=0)
    return Transitions((part.X - mean) / scale, part.reward, (part.X_next - mean) / scale, part.done)


def run(folder: Path, nights: list[int], changes: Settings = POLICY, **options: Any) -> Workplace:
    work, done = Workplace.new(folder), 0
    for stop in nights:
        for number in range(done, stop):
            work.put(number, table_of(PARTS[number]))
        work.run_here(changes, **options)
        done = stop
    return work


def predictions(work: Workplace, changes: Settings = POLICY) -> Floats:
    """The values of the first partition's states, which are all that is read."""
    work.put(0, table_of(PARTS[0]).select(["b", "a"]), where="states")
    return np.asarray(work.predict_here("states", changes)["prediction"].to_numpy())


@pytest.mark.parametrize("selection", ["novelty", pytest.param("supervised", marks=pytest.mark.thorough)])
def test_nights_are_one_run_and_the_learner_on_arrays(tmp_path: Path, selection: Any) -> None:
    changes = POLICY | {"model.lstd.selection": selection}
    work = run(tmp_path / "straight", [3], changes)
    assert_same_model(run(tmp_path / "nights", [1, 3], changes).model(), work.model())
    learner = OnlineLSTD(RBF(0.5), discount=0.9, regularization=1e-4, max_basis=25, selection=selection)
    for part in map(standardized, PARTS):
        learner.partial_fit(*part.arguments).refresh()
    record = work.model()
    assert record.counters["rows_seen"] == 3 * ROWS
    assert record.arrays["basis_rows"].tolist() == learner.basis_rows.tolist()
    np.testing.assert_allclose(predictions(work, changes), learner.predict(standardized(PARTS[0]).X)[:, 0], rtol=1e-6)


def test_passes_sum_over_the_states_that_efvs_chooses(tmp_path: Path) -> None:
    work = run(tmp_path / "straight", [3], BATCH)
    record = work.model()
    alone = KernelLSTD(RBF(0.5), discount=0.9, regularization=1e-4, dictionary=record.arrays["basis_vectors"])
    for part in map(standardized, PARTS):
        alone.partial_fit(*part.arguments)
    states = standardized(PARTS[0]).X
    np.testing.assert_allclose(predictions(work, BATCH), alone.predict(states)[:, 0], rtol=1e-6)
    nights = run(tmp_path / "nights", [2, 3], BATCH).model()
    assert (nights.counters["rows_seen"], len(nights.arrays["basis_vectors"])) == (3 * ROWS, 25)


@pytest.mark.parametrize("changes", [POLICY, BATCH], ids=["online", "batch"])
def test_workers_change_no_bit(tmp_path: Path, changes: dict[str, Any]) -> None:
    there = run(tmp_path / "there", [3], changes, executor=PicklingExecutor()).model()
    assert_same_model(there, run(tmp_path / "here", [3], changes).model())


class StopsAfterTwo(Notes):
    """A reporter that stops a training after two partitions."""

    learned = 0

    def advance(self, rows: int, **facts: Fact) -> None:
        super().advance(rows, **facts)
        self.learned += rows if "swaps" in facts else 0
        if self.learned == 2 * ROWS:
            raise Stopped(15)


def test_a_stopped_training_resumes_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_checkpoint, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(pass_checkpoint, "WORTH_BYTES", 2**62)
    with pytest.raises(Stopped):
        run(tmp_path / "stopped", [3], report=StopsAfterTwo())
    work, notes = Workplace(tmp_path / "stopped"), Notes()
    work.run_here(POLICY, report=notes)
    assert ("train.started_from_checkpoint", {"rows": 2 * ROWS}) in [(code, facts) for code, facts in notes.events]
    assert_same_model(work.model(), run(tmp_path / "straight", [3]).model())


def test_held_out_transitions_are_compared_with_what_came_of_them(tmp_path: Path) -> None:
    changes = POLICY | {"evaluate.path": "held-out", "report": "reports"}
    work = Workplace.new(tmp_path / "rows")
    work.put(0, table_of(PARTS[0]))
    work.put(0, table_of(PARTS[1]), where="held-out")
    summary = work.run_here(changes)
    values, part = values_of(work.model()), standardized(PARTS[1])
    ahead = part.reward + 0.9 * (1 - part.done) * values.predict(part.X_next)[:, 0]
    error = float(np.mean((values.predict(part.X)[:, 0] - ahead) ** 2))
    assert summary["test_mse"] == pytest.approx(error, rel=1e-6)
    assert len(list((work.folder / "reports").rglob("*0001.*"))) == 2
    show_inspection(run_inspect(StoreLocation(str(work.store))))
    work.put(1, table_of(PARTS[1]))
    planned = run_plan(read_job(work.job(changes), {}), InProcess(), new_model=False)
    assert planned["rows_to_learn"] == ROWS
    work.put(0, set_column(table_of(PARTS[1]).select(["a", "b"]), "value", ahead), where="held-out")
    known = work.evaluate_here(changes | {"evaluate.values": "value"})
    assert known["test_mse"] == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["b_next"]), r"no column 'b_next', which is 'b' after the step, by source.next"),
        (lambda t: set_column(t, "done", [2.0] + [0.0] * (ROWS - 1)), r"'done' has the value 2.0 in row 0; .*1 or 0"),
        (lambda t: set_column(t, "a_next", pa.nulls(ROWS, pa.float64())), r"'a_next' has the value null in row 0"),
        (lambda t: set_column(t, "a", ["x"] * ROWS), r"'a' is categorical, and states are numbers and booleans"),
        (lambda t: t.drop_columns(["done"]), r"no column 'done'"),
        (lambda t: set_column(t, "done", ["yes"] * ROWS), r"column 'done'"),
        (lambda t: set_column(t, "done", pa.nulls(ROWS, pa.bool_())), r"'done' has the value null in row 0"),
        (lambda t: set_column(t, "reward", [0.0, np.nan] + [0.0] * (ROWS - 2)), r"'reward' has the value nan in row 1"),
    ],
    ids=["no next", "done", "missing", "categorical", "no done", "done in words", "done missing", "reward missing"],
)
def test_what_is_no_transition_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    work = Workplace.new(tmp_path / "rows")
    work.put(0, change(table_of(PARTS[0])))
    with pytest.raises(PartitionError, match=message):
        work.run_here(POLICY)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"source.next.a": "a_next", "source.next.b": "a_next", "source.ignore": ["b_next"]}, "a_next"),
        ({"source.next.a": "a_next", "source.next.b": "reward", "source.ignore": ["b_next"]}, "reward"),
        ({"source.next.a": "a_next", "source.next.b": "b_next", "source.ignore": ["b_next"]}, "b_next"),
        ({"source.done": "b_next", "source.ignore": ["done"]}, "b_next"),
        ({"source.done": "reward", "source.ignore": ["done"]}, "reward"),
    ],
)
def test_a_column_of_the_step_has_one_role(tmp_path: Path, changes: Settings, name: str) -> None:
    work = Workplace.new(tmp_path / "rows")
    work.put(0, table_of(PARTS[0]))
    pattern = {"source.next": None} if "source.next.a" in changes else {}
    with pytest.raises(PartitionError, match=f"column {name!r} is named by source.next or source.done, and a second"):
        work.run_here({**POLICY, **pattern, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source.next": None, "source.done": None}, "method lstd learns transitions: it needs source.next"),
        ({"source.next": None}, "done says where episodes end: give next"),
        ({"source.next": "next"}, 'next is a pattern with one "\\*"'),
        ({"source.positive": 1}, "the target of transitions is the reward"),
        ({"source.lags.a": [1]}, "transitions have no lags"),
        ({"source.done": None, "model.lstd.discount": 1.0}, "with discount 1 episodes must end"),
        ({"model.metric": "full"}, "method lstd learns no metric"),
        ({"model.refit": True}, "method lstd takes no refit"),
        ({"model.experts": 4}, "method lstd takes no experts"),
        ({"model.regularization": [1e-3, 1e-4]}, "method lstd takes a single regularization"),
        ({"model.max_basis": "unlimited"}, "method lstd takes a number for max_basis"),
        (
            {"model.method": "ols", "model.lstd.discount": None, "evaluate.path": "new", "evaluate.values": "v"},
            "evaluate.values are those of method lstd",
        ),
    ],
)
def test_what_does_not_go_with_a_value_function_is_refused_in_words(
    tmp_path: Path, changes: Settings, message: str
) -> None:
    with pytest.raises(JobFileError, match=message):
        read_job(Workplace.new(tmp_path / "rows").job({**POLICY, **changes}), {})


def test_another_discount_and_other_columns_are_refused_and_error_bars_too(tmp_path: Path) -> None:
    work = run(tmp_path / "rows", [1])
    with pytest.raises(ModelError, match=r"lstd\.discount was 0\.9, is 0\.5"):
        work.run_here(POLICY | {"model.lstd.discount": 0.5})
    with pytest.raises(StoreError, match=r"other columns after a step: source\.next = a_next, b_next"):
        work.run_here({**POLICY, "source.next": None, "source.next.a": "b_next", "source.next.b": "a_next"})
    work.put(0, table_of(PARTS[0]), where="states")
    with pytest.raises(ModelError, match="is a value function, which has no error bars"):
        work.predict_here("states", POLICY, with_std=True)
