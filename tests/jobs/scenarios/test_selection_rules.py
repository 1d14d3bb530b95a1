"""Jobs with other selection rules, without a cap, with another regularization, and the reported numerics."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import (
    ROWS,
    Settings,
    Workplace,
    assert_same_model,
    draw_rows,
    open_store,
    run_command,
    set_column,
)
from support.jobs.recording import Notes
from support.stores.stores import as_format_3

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.commands.inspect import run_inspect
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import JobFileError
from ridgestream.pipeline.base.errors import InputError, MemoryRefused
from ridgestream.pipeline.base.events import TRAIN_JITTER_ADDED
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Fact
from ridgestream.pipeline.models.model_record import state_of
from ridgestream.stores.catalog.models import list_models
from ridgestream.stores.errors.exceptions import ModelError, PartitionError
from ridgestream.stores.repository.store_location import StoreLocation

GIVEN: Settings = {"model.selection": "fixed", "model.dictionary": "basis.parquet", "model.max_basis": None}
RANDOM: Settings = {"model.selection": "fixed", "model.random_basis": 25, "model.max_basis": None}
NOVELTY: Settings = {"model.selection": "novelty"}
UNLIMITED: Settings = {"model.max_basis": "unlimited", "model.novelty_threshold": 0.3}
RULES = pytest.mark.parametrize("rule", [GIVEN, NOVELTY, UNLIMITED], ids=["given", "novelty", "unlimited"])


def workplace(folder: Path, partitions: int = 3) -> Workplace:
    folder.mkdir(exist_ok=True)
    work = Workplace(folder)
    work.put_all(range(partitions))
    put_dictionary(work, draw_rows(77, 30))
    return work


def put_dictionary(work: Workplace, table: pa.Table) -> None:
    pq.write_table(table, work.folder / "basis.parquet")


def run_and_record(work: Workplace, changes: Settings) -> list[tuple[str, dict[str, Fact]]]:
    """Run the job in this process and return the codes and facts of its events."""
    report = Notes()
    run_job(read_job(work.job(changes), {}), InProcess(), report, 0.0, new_model=False)
    return report.events


def features_of(work: Workplace, table: pa.Table) -> np.ndarray[Any, Any]:
    encoding = work.model().encoding
    raw = np.array([table[name].to_numpy() for name in encoding["numeric"]]).T
    return np.asarray((raw - encoding["centre"]) / encoding["scale"])


@pytest.mark.samples
@RULES
def test_night_by_night_is_all_at_once(tmp_path: Path, rule: Settings) -> None:
    straight, nightly = workplace(tmp_path / "straight", 5), workplace(tmp_path / "nightly", 0)
    summary = straight.run_here(rule)
    for start, stop in pairwise([0, 1, 3, 5]):
        nightly.put_all(range(start, stop))
        nightly.run_here(rule)
    assert_same_model(straight.model(), nightly.model())
    assert summary["test_error"] < 0.5
    assert straight.run_here(rule)["new_partitions"] == 0


def test_a_given_dictionary_is_the_models_dictionary(tmp_path: Path) -> None:
    work = workplace(tmp_path)
    put_dictionary(work, draw_rows(77, 30).select(["x3", "x1", "x0", "x2"]))
    assert work.run_here(GIVEN)["n_basis"] == 30
    record = work.model()
    np.testing.assert_allclose(record.arrays["basis_vectors"], features_of(work, draw_rows(77, 30)), rtol=1e-12)
    assert record.arrays["basis_rows"].tolist() == [-1] * 30
    assert record.parameters["learner"]["selection"] == "fixed"


@pytest.mark.samples
@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (draw_rows(77, 5).drop_columns(["x2"]), PartitionError, r"basis\.parquet has no column 'x2'"),
        (pa.concat_tables([draw_rows(77, 5), draw_rows(77, 1)]), InputError, "row 5 of the dictionary .* equals row 0"),
        (set_column(draw_rows(77, 5), "x1", [0.0, np.nan, 0, 0, 0]), PartitionError, "'x1' has the value nan in row 1"),
        (draw_rows(77, 0), InputError, "the dictionary .*basis.parquet has no row"),
    ],
    ids=["column", "duplicate", "nan", "empty"],
)
def test_a_dictionary_that_cannot_be_used_begins_no_model(
    tmp_path: Path, table: pa.Table, error: type[Exception], message: str
) -> None:
    work = workplace(tmp_path)
    put_dictionary(work, table)
    with pytest.raises(error, match=message) as raised:
        work.run_here(GIVEN)
    assert "basis.parquet" in str(raised.value)
    assert "leave the partition out" not in str(raised.value)
    assert "source.missing" not in str(raised.value)
    assert list_models(open_store(work.store).root()) == ()
    planned = run_command("plan", work.job(GIVEN))
    assert (planned.code, str(raised.value) in planned.err) == (exit_codes.DATA, True)


def test_a_missing_dictionary_is_reported_before_any_ingest(tmp_path: Path) -> None:
    work = workplace(tmp_path)
    (tmp_path / "basis.parquet").unlink()
    with pytest.raises(PartitionError, match=r"basis\.parquet does not exist"):
        work.run_here(GIVEN)
    assert run_inspect(StoreLocation(str(work.store)))["partitions"] == []


def test_another_dictionary_is_another_model(tmp_path: Path) -> None:
    work = workplace(tmp_path, 2)
    work.run_here(GIVEN)
    put_dictionary(work, draw_rows(78, 30))
    message = r"began with another dictionary than .*basis\.parquet holds now; .*--new-model"
    with pytest.raises(ModelError, match=message):  # with nothing new
        work.run_here(GIVEN)
    work.put(2)
    with pytest.raises(ModelError, match=message):  # and before any ingest
        work.run_here(GIVEN)
    assert len(run_inspect(StoreLocation(str(work.store)))["partitions"]) == 2
    put_dictionary(work, draw_rows(77, 31))
    with pytest.raises(ModelError, match="max_basis was 30, is 31"):
        work.run_here(GIVEN)
    put_dictionary(work, draw_rows(77, 30))
    assert work.run_here(GIVEN)["partitions_consumed"] == 3


def test_random_rows_are_rows_of_the_store_drawn_by_the_seed(tmp_path: Path) -> None:
    work = workplace(tmp_path)
    work.run_here(RANDOM)
    drawn = work.model().arrays
    table = pa.concat_tables([draw_rows(number) for number in range(3)])
    np.testing.assert_allclose(
        drawn["basis_vectors"], features_of(work, table.take(drawn["basis_rows"])), rtol=1e-5, atol=1e-5
    )
    assert len(np.unique(drawn["basis_rows"])) == 25
    assert drawn["basis_rows"].max() > 2 * ROWS > ROWS > drawn["basis_rows"].min()
    again, other = workplace(tmp_path / "again"), workplace(tmp_path / "other")
    again.run_here(RANDOM)
    assert_same_model(work.model(), again.model())
    other.run_here({**RANDOM, "model.random_seed": 1})
    assert set(other.model().arrays["basis_rows"]) != set(drawn["basis_rows"])
    work.put(3)
    work.run_here(RANDOM)
    assert np.array_equal(work.model().arrays["basis_rows"], drawn["basis_rows"])
    with pytest.raises(ModelError, match="random_seed was 0, is 1"):
        work.run_here({**RANDOM, "model.random_seed": 1})


def test_random_rows_do_not_depend_on_how_rows_are_cut_into_partitions(tmp_path: Path) -> None:
    numbers = []
    for name, cuts in (("one", [0, 3 * ROWS]), ("many", [0, 10, 11, 300, 3 * ROWS])):
        work = workplace(tmp_path / name, 0)
        table = pa.concat_tables([draw_rows(number) for number in range(3)])
        for number, (start, stop) in enumerate(pairwise(cuts)):
            work.put(number, table.slice(start, stop - start))
        work.run_here({**RANDOM, "model.scaling_rows": "all"})
        numbers.append(work.model().arrays["basis_rows"].tolist())
    assert numbers[0] == numbers[1]


def test_random_rows_leave_out_what_weighs_nothing_or_depends_on_the_others(tmp_path: Path) -> None:
    work = workplace(tmp_path, 0)
    few = draw_rows(0, 12)
    table = pa.concat_tables([few] * 20)
    weights = np.tile(np.where(np.arange(12) < 4, 0.0, 1.0), 20)
    work.put(0, set_column(table, "w", weights))
    work.put(0, set_column(draw_rows(1000), "w", np.ones(ROWS)), where="held-out")
    events = dict(run_and_record(work, {**RANDOM, "source.weight": "w"}))
    assert events["train.basis_smaller_than_asked"] == {"drawn": 8, "asked": 25}
    assert sorted(work.model().arrays["basis_rows"] % 12) == list(range(4, 12))


@pytest.mark.thorough
def test_a_dictionary_without_a_cap_is_refused_in_time_and_the_last_night_stands(tmp_path: Path) -> None:
    work = workplace(tmp_path, 1)
    rule = {"model.max_basis": "unlimited", "model.selection": "novelty", "model.novelty_threshold": 0.01}
    work.run_here({**rule, "model.novelty_threshold": 0.01})
    before = work.model()
    rng = np.random.default_rng(0)
    for number in range(1, 4):
        rows = {f"x{i}": 30 * rng.normal(size=120) for i in range(4)}
        work.put(number, pa.table({**rows, "label": rng.integers(1, 4, size=120)}))
    limit = 462 * 10**6
    done = run_command("run", work.job({**rule, "memory_limit": limit}), "--json")
    assert (done.code, done.out) == (exit_codes.MEMORY, "")
    assert re.search(
        r"cannot grow beyond \d+ basis vectors, reached before row \d+ .* [\d.]+ MB may be used for it; raise memory",
        done.err,
    )
    assert_same_model(work.model(), before)
    summary = run_command("run", work.job({**rule, "memory_limit": "2GB"}), "--json").result
    assert summary["n_basis"] > 380
    assert summary["peak_rss_bytes"] < 2 * 10**9


@pytest.mark.thorough
def test_a_refit_that_does_not_fit_a_grown_dictionary_is_refused_and_what_was_learned_stays(tmp_path: Path) -> None:
    work = workplace(tmp_path, 0)
    rng = np.random.default_rng(0)
    for number in range(4):
        rows = {f"x{i}": 30 * rng.normal(size=120) for i in range(4)}
        work.put(number, pa.table({**rows, "label": rng.integers(1, 4, size=120)}))
    rule = {"model.max_basis": "unlimited", "model.selection": "novelty", "model.novelty_threshold": 1e-4}
    with pytest.raises(MemoryRefused, match=r"refitting with max_basis = .*; the model has learned and is kept"):
        work.run_here({**rule, "model.refit": True, "memory_limit": "489MB"})
    assert work.model().counters["rows_seen"] == 480
    assert not work.model().history[-1].refitted
    assert work.run_here({**rule, "model.refit": True})["refitted"]


def test_an_unlimited_dictionary_needs_memory_for_its_present_size(tmp_path: Path) -> None:
    work = workplace(tmp_path)
    work.run_here(UNLIMITED)
    work.put(3)
    with pytest.raises(MemoryRefused, match=r"needs .* of memory, .* 100 MB may be used"):
        work.run_here({**UNLIMITED, "memory_limit": "100MB"})


@pytest.mark.thorough
def test_another_regularization_is_applied_to_all_rows_reported_and_stored(tmp_path: Path) -> None:
    straight, nightly = workplace(tmp_path / "straight", 1), workplace(tmp_path / "nightly", 1)
    for work in (straight, nightly):
        work.run_here()
        work.put_all(range(1, 3))
    changed = {"model.regularization": 1e-2}
    [(code, facts)] = [event for event in run_and_record(straight, changed) if "regularization" in event[0]]
    assert code == "train.regularization_changed"
    assert facts == {"was": 1e-4, "now": 1e-2}
    (nightly.folder / "rows" / "part-02.parquet").unlink()
    run_and_record(nightly, changed)
    nightly.put(2)
    assert not [code for code, _ in run_and_record(nightly, changed) if "regularization" in code]
    assert_same_model(straight.model(), nightly.model())
    record = straight.model()
    assert record.parameters["regularization"] == record.parameters["learner"]["regularization"] == 1e-2
    assert [night.regularization for night in record.history] == [1e-4, 1e-2]
    assert record.counters["penalty"] == 1e-2 * 512
    excess = 1e-2 * 3 * ROWS - record.counters["penalty"]
    matrix = record.arrays["normal_matrix"] + excess * record.arrays["gram"]
    beta = np.linalg.solve(matrix, record.arrays["normal_rhs"])
    np.testing.assert_allclose(record.arrays["coefficients"], beta, rtol=1e-6, atol=1e-9)


def test_another_regularization_needs_no_new_rows(tmp_path: Path) -> None:
    work = workplace(tmp_path)
    learned = work.run_here()
    summary = work.run_here({"model.regularization": 1e-2})
    assert (summary["new_partitions"], summary["new_rows"], summary["rows_seen"]) == (0, 0, 3 * ROWS)
    assert summary["progressive_error"] == learned["progressive_error"]
    record = work.model()
    assert record.history[-1].progressive_error is None
    assert record.counters["penalty"] == 1e-2 * 512
    assert [(len(n.partitions), n.regularization) for n in record.history] == [(3, 1e-4), (0, 1e-2)]
    snapshot = work.snapshot()
    assert work.run_here({"model.regularization": 1e-2})["snapshot"] == snapshot


def test_numerics_are_reported_by_runs_and_by_inspect(tmp_path: Path) -> None:
    work = workplace(tmp_path)
    summary = work.run_here()
    [model] = run_inspect(StoreLocation(str(work.store)))["models"]
    state = state_of(work.model())
    assert 0.3 < summary["condition"] / np.linalg.cond(state.normal_matrix, 1) < 1.1
    assert summary["condition"] == model["counters"]["normal_condition"]
    assert summary["rounding_error"] == model["counters"]["rounding_error"] < 1e-6
    assert summary["largest_jitter"] == model["counters"]["largest_jitter"] == 0.0
    shown = run_command("inspect", work.store).out
    line = r"λ 0\.0001, condition of P \S+, of K \S+, rounding error \S+ \(largest \S+\), jitter none"
    assert re.search(line, shown)


def test_jitter_is_reported_if_it_was_needed(tmp_path: Path) -> None:
    work = workplace(tmp_path)
    near = draw_rows(77, 30)
    table = pa.concat_tables([near, set_column(near, "x0", near["x0"].to_numpy() + 1e-3)])
    put_dictionary(work, table)
    events = run_and_record(work, {**GIVEN, "model.regularization": 1e-14})
    [facts] = [facts for code, facts in events if code == "train.jitter_added"]
    assert "raise novelty_threshold or regularization" in TRAIN_JITTER_ADDED.sentence
    counters = work.model().counters
    assert facts["times"] == counters["jitter_count"] > 0
    assert facts["largest_ever"] == counters["largest_jitter"] > 0
    assert re.search(r"jitter at most \S+, at \d+ refreshes", run_command("inspect", work.store).out)


@pytest.mark.thorough
def test_a_model_stored_without_a_selection_rule_is_supervised_and_can_be_continued(tmp_path: Path) -> None:
    old, new = workplace(tmp_path / "old", 2), workplace(tmp_path / "new", 2)
    for work in (old, new):
        work.run_here()
    make_old(old)
    assert "condition of P" not in run_command("inspect", old.store).out
    for work in (old, new):
        work.put(2)
    summary = old.run_here()
    new.run_here()
    assert summary["partitions_consumed"] == 3
    assert summary["condition"] > 1
    for name, array in new.model().arrays.items():
        assert np.array_equal(array, old.model().arrays[name]), name
    with pytest.raises(ModelError, match="selection was 'supervised', is 'novelty'"):
        old.run_here(NOVELTY)
    old.run_here({"model.regularization": 1e-3})
    assert [night.regularization for night in old.model().history] == [None, 1e-4, 1e-3]


def make_old(work: Workplace) -> None:
    """Remove from the model the keys that format version 1 lacks."""
    import hashlib
    import json

    with open_store(work.store).write("older") as writing:
        attributes: Any = as_format_3(writing.root)["models/model"].attrs
        parameters, history, counters = (attributes[name] for name in ("parameters", "history", "counters"))
        for key in ("selection", "dictionary", "random_seed"):
            del parameters[key]
        del parameters["learner"]["selection"]
        for night in history:
            del night["regularization"]
        present = ("rows_seen", "weight_seen", "penalty", "swaps")
        attributes["parameters"] = parameters
        attributes["parameters_hash"] = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()
        attributes["history"] = history
        attributes["counters"] = {name: counters[name] for name in present}
        attributes["format_version"] = 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.random_basis": 3}, "selection supervised takes no random_basis"),
        ({**NOVELTY, "model.usefulness_threshold": 1.0}, "selection novelty takes no usefulness_threshold"),
        ({**GIVEN, "model.max_basis": 3}, "selection fixed takes no max_basis"),
        ({**GIVEN, "model.random_basis": 3}, "selection fixed takes one of dictionary, a Parquet file, and random_ba"),
        ({"model.selection": "fixed", "model.max_basis": None}, "selection fixed takes one of dictionary"),
        ({**GIVEN, "model.random_seed": 3}, "random_seed goes with random_basis, not with a dictionary"),
        ({"model.selection": "greedy"}, r'model\.selection: must be "supervised" or "novelty" or "fixed" '),
        ({"model.max_basis": "many"}, r'model\.max_basis: must be a whole number ≥ 1 or "unlimited" '),
        ({"model.max_basis": True}, r"model\.max_basis: a boolean is no value for it"),
        ({"model.regularization": True}, r"model\.regularization: a boolean is no value for it"),
        ({"memory_limit": True}, r"memory_limit: a boolean is no value for it"),
    ],
)
def test_keys_that_a_rule_does_not_take_are_refused(tmp_path: Path, changes: Settings, message: str) -> None:
    with pytest.raises(JobFileError, match=message):
        read_job(Workplace(tmp_path).job(changes), {})


def test_rows_refused_for_the_condition_of_p_are_reported(tmp_path: Path) -> None:
    work = workplace(tmp_path)
    greedy = {"model.selection": "novelty", "model.max_basis": "unlimited", "model.regularization": 1e-13}
    events = run_and_record(work, greedy | {"model.novelty_threshold": 1e-9, "model.kernel.gamma": 0.002})
    [facts] = [facts for code, facts in events if code == "train.rows_refused"]
    refused = work.model().counters["refused"]
    assert facts["rows"] == refused > 0
    assert f"{refused:,} rows refused for the condition of P" in run_command("inspect", work.store).out


@pytest.mark.parametrize(("weight", "warned"), [(1.0, False), (1e-4, True), (1e4, True)])
def test_weights_far_from_one_get_a_warning(tmp_path: Path, weight: float, warned: bool) -> None:
    work = workplace(tmp_path, 0)
    table = draw_rows(0)
    for where in ("rows", "held-out"):
        work.put(0, table.append_column("w", pa.array(np.full(len(table), weight))), where=where)
    events = run_and_record(work, {"source.weight": "w"})
    assert [facts["mean_weight"] for code, facts in events if code == "train.weights_far_from_one"] == [weight] * warned
