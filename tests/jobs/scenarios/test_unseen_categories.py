"""Unseen categories and missing values over several nights: several runs give the bits of one run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.kernel_ridge import KernelRidge
from support.data.missing_values import draw_with_missing
from support.jobs.jobs import Settings, Workplace, assert_same_model, open_store, run_command
from support.jobs.recording import Notes
from support.points import points

from ridgestream.jobs.commands.evaluate import run_evaluate
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.models.model_record import expansion_of, state_of
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.errors.exceptions import PartitionError

ROWS = 150
COLOURS = (("red", "green"), ("red", "green"), ("red", "green", "blue"), ("grey", "green"), ("blue", "black", "red"))
"""The colours of each partition."""

JOB: Settings = {
    "source.target": "y",
    "source.positive": None,
    "model.scaling_rows": 60,
    "model.max_basis": 15,
    "evaluate.path": None,
}
POLICIES, MISSING = ("ignore", "extend"), ("error", "drop", "impute")
METHODS: dict[str, Settings] = {
    "online": {},
    "novelty": {"model.selection": "novelty"},
    "classes": {"source.target": "kind", "source.classes": "all", "source.ignore": ["y"]},
    "kernel-ridge": {"model.method": "kernel-ridge", "model.max_basis": None, "model.regularization": 1e-3},
    "always reselected": {
        "model.method": "ols",
        "model.reselect": "always",
        "model.regularization": 1e-3,
        "model.max_basis": 8,
        "model.folds": 1,
    },
}
"""Jobs whose dictionary does not depend on where a night ends."""


def draw(number: int, share: float = 0.0, rows: int = ROWS) -> pa.Table:
    colours = COLOURS[number % len(COLOURS)]
    table = draw_with_missing(rows, number, share=share, colours=colours)
    kind = np.where(np.array(table["y"]) > np.median(np.array(table["y"])), "high", "low")
    return table.append_column("kind", pa.array(kind))


def put_all(work: Workplace, numbers: Sequence[int], share: float = 0.0) -> None:
    for number in numbers:
        work.put(number, draw(number, share))


def run(work: Workplace, changes: Settings, notes: Notes | None = None) -> dict[str, Any]:
    return run_job(read_job(work.job({**JOB, **changes}), {}), InProcess(), notes or Notes(), 0.0, new_model=False)


def new_workplace(path: Path, name: str) -> Workplace:
    (path / name).mkdir()
    return Workplace(path / name)


CASES = [
    *(("online", unseen, missing) for unseen in POLICIES for missing in MISSING),
    *(("kernel-ridge", "extend", missing) for missing in MISSING),
    *(
        (method, *pair)
        for method in METHODS
        if method != "online"
        for pair in (("ignore", "drop"), ("extend", "impute"))
    ),
]


ORDINARY = [("online", "extend", "impute"), ("online", "ignore", "drop"), ("kernel-ridge", "extend", "impute")]


@pytest.mark.at_most(5)
@pytest.mark.samples
@pytest.mark.parametrize(("method", "unseen", "missing"), points(CASES, ORDINARY))
def test_the_model_does_not_depend_on_where_nights_end(tmp_path: Path, method: str, unseen: str, missing: str) -> None:
    share = 0.0 if missing == "error" else 0.1
    changes = {**METHODS[method], "source.unseen_categories": unseen, "source.missing": missing}
    if method != "classes":
        changes["source.ignore"] = ["kind"]
    straight, nights = new_workplace(tmp_path, "straight"), new_workplace(tmp_path, "nights")
    put_all(straight, range(5), share)
    summary = run(straight, changes)
    dropped = 0
    for ended in ([0], [1, 2], [3], [4]):
        put_all(nights, ended, share)
        dropped += run(nights, changes)["dropped_rows"]
    one, several = straight.model(), nights.model()
    assert_same_model(several, one)
    extended = 3 if unseen == "extend" else 0
    assert one.encoding.get("extended_by", 0) == extended
    assert one.arrays["basis_vectors"].shape[1] == 3 + 2 + extended
    assert summary["dropped_rows"] == dropped
    assert (dropped > 0) == (missing == "drop")
    predictions = [work.predict_here("rows", {**JOB, **changes})["prediction"] for work in (straight, nights)]
    assert predictions[0].equals(predictions[1])
    assert (predictions[0].null_count > 0) == (missing == "drop")


@pytest.mark.thorough
def test_policies_do_not_change_a_model_without_missing_values_or_new_categories(tmp_path: Path) -> None:
    works = [new_workplace(tmp_path, name) for name in ("error", "ignore", "extend")]
    for work in works:
        for number in range(3):
            work.put(number, draw(0, rows=100 + number))
        run(work, {"source.ignore": ["kind"], "source.unseen_categories": work.folder.name, "source.missing": "drop"})
    for work in works[1:]:
        assert_same_model(work.model(), works[0].model())


def raw_features(table: pa.Table, feature_map: FeatureMap) -> npt.NDArray[np.float64]:
    """Return rows, one-hot encoded with all categories of the map and standardized by it."""
    names = [column.name for column in feature_map.numeric]
    numbers = [np.array(table[name].to_pylist(), dtype=np.float64) for name in names]
    (colours,) = feature_map.categorical
    values = table["colour"].to_pylist()
    indicators = [np.array([v == known for v in values], dtype=np.float64) for known in colours.categories]
    return np.asarray((np.column_stack([*numbers, *indicators]) - feature_map.centre) / feature_map.scale)


def scaled(table: pa.Table, feature_map: FeatureMap) -> Floats:
    return feature_map.target.standardize(np.array(table["y"])[:, np.newaxis])


def test_an_extended_learner_equals_one_with_every_feature_from_the_first_row_on(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    put_all(work, range(5))
    run(work, {"source.unseen_categories": "extend", "source.ignore": ["kind"], "model.kernel.gamma": 1 / 5})
    record = work.model()
    feature_map = FeatureMap.from_dict(record.encoding)
    seen = [colour for number in range(5) for colour in draw(number)["colour"].to_pylist()]
    assert feature_map.categorical[0].categories == tuple(dict.fromkeys(seen))
    assert (feature_map.n_features, feature_map.n_fitted) == (8, 5)
    learner = OnlineLSSVM(RBF(1 / 5), regularization=1e-4, max_basis=15, centre=np.zeros(8))
    for number in range(5):
        learner.partial_fit(raw_features(draw(number), feature_map), scaled(draw(number), feature_map))
        learner.refresh()
    state, learned = learner.state(), state_of(record)
    np.testing.assert_array_equal(state.basis_rows, learned.basis_rows)
    np.testing.assert_allclose(learned.basis_vectors, state.basis_vectors, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(learned.normal_matrix, state.normal_matrix, rtol=1e-9, atol=1e-9)
    held = pa.concat_tables([draw(number, rows=20) for number in (2, 3, 4)])
    work.put(0, held, where="new")
    predictions = work.predict_here("new", {**JOB, "source.ignore": ["kind"]})["prediction"].to_numpy()
    expected = feature_map.target.restore(learner.predict(raw_features(held, feature_map)))[:, 0]
    np.testing.assert_allclose(predictions, expected, rtol=1e-6)
    with_blue = learned.basis_rows >= 2 * ROWS
    assert not learned.basis_vectors[~with_blue][:, 5:].any()


@pytest.mark.samples
@pytest.mark.parametrize("unseen", POLICIES)
def test_kernel_ridge_equals_that_of_scikit_learn_on_one_hot_rows(tmp_path: Path, unseen: str) -> None:
    work = Workplace(tmp_path)
    changes = {**METHODS["kernel-ridge"], "source.unseen_categories": unseen, "source.ignore": ["kind"]}
    changes |= {"model.kernel.gamma": 1 / 5}
    for number in range(3):
        put_all(work, [number])
        run(work, changes)
    feature_map = FeatureMap.from_dict(work.model().encoding)
    everything = pa.concat_tables([draw(number) for number in range(3)])
    reference = KernelRidge(kernel="rbf", gamma=1 / 5, alpha=1e-3 * 3 * ROWS)
    reference.fit(raw_features(everything, feature_map), scaled(everything, feature_map))
    held = draw(2, rows=50)
    work.put(0, held, where="new")
    predictions = work.predict_here("new", {**JOB, **changes})["prediction"].to_numpy()
    expected = feature_map.target.restore(reference.predict(raw_features(held, feature_map)))[:, 0]
    np.testing.assert_allclose(predictions, expected, rtol=1e-6)


def test_a_batch_model_keeps_its_dictionary_and_adds_the_sums_of_rows_with_a_new_feature(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    changes: dict[str, Any] = {
        "model.method": "subset-of-regressors",
        "model.max_basis": None,
        "model.subset_of_regressors": None,
        "model.regularization": 1e-3,
        "model.subset_of_regressors.start_basis": 12,
        "source.ignore": ["kind"],
        "source.unseen_categories": "extend",
    }
    del changes["model.subset_of_regressors"]
    put_all(work, [0, 1])
    run(work, changes)
    before = work.model()
    put_all(work, [2])
    run(work, changes)
    after = work.model()
    feature_map = FeatureMap.from_dict(after.encoding)
    np.testing.assert_array_equal(after.arrays["basis_vectors"][:, :5], before.arrays["basis_vectors"])
    assert not after.arrays["basis_vectors"][:, 5].any()
    basis = expansion_of(after).basis
    values = basis.values(raw_features(pa.concat_tables([draw(n) for n in range(3)]), feature_map))
    np.testing.assert_allclose(after.arrays["refit_products"], values.T @ values, rtol=1e-7)


@pytest.mark.thorough
def test_a_refit_over_rows_from_before_and_after_an_extension_is_the_exact_solution(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    changes = {"source.unseen_categories": "extend", "source.ignore": ["kind"], "model.refit": True}
    for number in range(4):
        put_all(work, [number])
        run(work, changes)
    record = work.model()
    feature_map, basis = FeatureMap.from_dict(record.encoding), expansion_of(record).basis
    everything = pa.concat_tables([draw(number) for number in range(4)])
    values = basis.values(raw_features(everything, feature_map))
    normal = values.T @ values + 1e-4 * 4 * ROWS * basis.penalty()
    expected = np.linalg.solve(normal, values.T @ scaled(everything, feature_map))
    np.testing.assert_allclose(record.arrays["coefficients"], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.thorough
def test_a_user_chooses_a_policy_after_the_error(tmp_path: Path) -> None:
    work, notes = Workplace(tmp_path), Notes()
    ignoring: Settings = {"source.ignore": ["kind"]}
    put_all(work, [0, 1])
    run(work, ignoring)
    before = work.snapshot()
    put_all(work, [2])
    with pytest.raises(
        PartitionError,
        match=r"part-02.*column 'colour' has the category 'blue'.*source\.unseen_categories = \"ignore\"",
    ):
        run(work, ignoring)
    assert work.snapshot() == before
    run(work, {**ignoring, "source.unseen_categories": "extend"}, notes)
    blue = float(sum(v == "blue" for v in draw(2)["colour"].to_pylist()))
    facts = {"column": "colour", "categories": 1, "weight": blue, "first": "blue"}
    assert ("features.new_categories_added", facts) in notes.events
    record = work.model()
    assert record.encoding["categories"] == [["green", "red", "blue"]]
    put_all(work, [3])  # grey
    run(work, {**ignoring, "source.unseen_categories": "ignore"}, notes)
    assert "features.new_categories_ignored" in notes.codes
    assert work.model().encoding == record.encoding
    put_all(work, [4])  # black, blue
    with pytest.raises(PartitionError, match="has the category 'black'"):
        run(work, ignoring)
    work.put(4, draw(2))
    run(work, {**ignoring, "model.refit": True})  # reads the grey rows again
    assert work.model().history[-1].refitted


def test_ingest_accepts_new_categories_and_training_applies_the_policy(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    put_all(work, [0])
    job = work.job({**JOB, "source.ignore": ["kind"]})
    run_command("run", job)
    put_all(work, [2])
    assert run_command("ingest", job).code == 0  # another model of the store may know it
    refused = run_command("train", job)
    assert (refused.code, "the category 'blue'" in refused.err) == (3, True)
    trained = run_command("train", job, "--set", "source.unseen_categories=extend", "--json").result
    assert trained["new_partitions"] == 1


@pytest.mark.parametrize("unseen", POLICIES)
def test_rows_with_an_unseen_category_are_predicted_and_evaluated_by_policy(tmp_path: Path, unseen: str) -> None:
    work = Workplace(tmp_path)
    changes: Settings = {**JOB, "source.ignore": ["kind"], "evaluate.path": "held-out"}
    put_all(work, [0])
    held = draw(2)
    work.put(0, draw(0, rows=40), where="held-out")
    run(work, changes)
    work.put(0, held, where="held-out")
    advice = "correct the rows, or pass over such categories by --set source.unseen_categories=ignore"
    with pytest.raises(PartitionError, match=rf"part-00.*column 'colour' has the category 'blue'.*; {advice}"):
        work.predict_here("held-out", changes)
    with pytest.raises(PartitionError, match=r"part-00.*column 'colour' has the category 'blue'.*unseen_categories"):
        work.evaluate_here(changes)
    job = work.job({**changes, "source.unseen_categories": unseen})
    outcome = run_command("predict", job, work.folder / "held-out", work.folder / "out", "--json")
    blue = [v == "blue" for v in held["colour"].to_pylist()]
    assert outcome.result["unseen_categories"] == {"colour": sum(blue)}
    assert f"colour ({sum(blue)})" in outcome.err
    predictions = pq.read_table(work.folder / "out")["prediction"].to_numpy()
    model = expansion_of(work.model())
    features = raw_features(held, model.feature_map)
    expected = model.feature_map.target.restore(model.basis.values(features) @ model.coefficients)[:, 0]
    np.testing.assert_allclose(predictions, expected, rtol=1e-9)
    notes = Notes()
    evaluation = run_evaluate(read_job(job, {}), InProcess(), notes)
    assert evaluation["test_mse"] == pytest.approx(float(np.mean((expected - np.array(held["y"])) ** 2)), rel=1e-9)
    assert {"rows": f"colour ({sum(blue)})"} in [facts for _, facts in notes.events]


def test_a_given_dictionary_may_only_have_known_categories(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    put_all(work, range(3))
    changes: dict[str, Any] = {
        "source.ignore": ["kind"],
        "source.unseen_categories": "extend",
        "model.selection": "fixed",
        "model.max_basis": None,
        "model.dictionary": "dictionary/part-00.parquet",
    }
    work.put(0, draw(2, rows=10), where="dictionary")
    with pytest.raises(InputError, match=r"the dictionary .*'blue'.*model\.scaling_rows"):
        run(work, changes)
    work.put(0, draw(0, rows=10), where="dictionary")
    run(work, changes)
    put_all(work, [3])
    run(work, changes)  # the dictionary is that of the first night, in more features
    assert work.model().arrays["basis_vectors"].shape == (10, 3 + 4)


def test_a_drawn_dictionary_has_indicators_for_all_rows_that_it_is_drawn_from(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    put_all(work, range(3))
    changes: dict[str, Any] = {
        "source.ignore": ["kind"],
        "source.unseen_categories": "extend",
        "model.selection": "fixed",
        "model.max_basis": None,
        "model.random_basis": 40,
    }
    run(work, changes)
    record = work.model()
    feature_map = FeatureMap.from_dict(record.encoding)
    everything = raw_features(pa.concat_tables([draw(number) for number in range(3)]), feature_map)
    np.testing.assert_allclose(record.arrays["basis_vectors"], everything[record.arrays["basis_rows"]], rtol=1e-6)
    assert (record.arrays["basis_vectors"][:, 5] > 0).any()


def test_partitions_that_lack_categories_leave_the_table_unchanged(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    changes: Settings = {"source.ignore": ["kind"], "source.missing": "impute"}
    work.put(0, draw(2))
    run(work, changes)
    only_red = draw(0).set_column(3, "colour", [pa.array(["red"] * ROWS)])
    work.put(1, only_red)
    work.put(2, only_red.set_column(3, "colour", [pa.nulls(ROWS, pa.string())]))
    work.put(3, only_red.set_column(3, "colour", [pa.nulls(ROWS)]))
    work.put(4, only_red.set_column(3, "colour", [pa.nulls(ROWS, pa.dictionary(pa.int8(), pa.string()))]))
    before = work.model().encoding
    assert run(work, changes)["partitions_consumed"] == 5
    assert work.model().encoding == before
    assert read_ledger(open_store(work.store).root()).categories == (tuple(before["categories"][0]),)


def test_a_touched_partition_is_unchanged_under_another_policy(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    ignoring: Settings = {"source.ignore": ["kind"]}
    path = work.put(0, draw(0, share=0.1))
    summary = run(work, {**ignoring, "source.missing": "drop"})
    assert summary["dropped_rows"] > 0
    path = path.rename(path.with_name("part-99.parquet"))
    assert run(work, ignoring)["new_partitions"] == 0
    assert [e.name for e in read_ledger(open_store(work.store).root()).entries] == ["part-99.parquet"]
    for missing in ("error", "impute"):
        table = pq.read_table(path)
        pq.write_table(table, path, compression="gzip", row_group_size=20 + len(missing))
        summary = run(work, {**ignoring, "source.missing": missing})
        assert (summary["new_partitions"], summary["partitions_consumed"]) == (0, 1)


def test_left_out_rows_are_reported_everywhere(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    table = draw(0, share=0.1).append_column("message", pa.array([None, *range(ROWS - 1)], pa.float64()))
    work.put(0, table)
    changes = {**JOB, "source.ignore": ["kind"], "source.missing": "drop"}
    outcome = run_command("run", work.job(changes), "--json")
    incomplete = int(table.drop_columns("y").to_pandas().isna().any(axis=1).sum())
    assert (outcome.result["dropped_rows"], outcome.result["new_rows"]) == (incomplete, ROWS - incomplete)
    assert f"dropped={incomplete}" in outcome.err
    assert "rows that lack a value were left out" in outcome.err
    assert "message (1)" in outcome.err
    inspected = run_command("inspect", work.store, "--json").result
    assert [(e["rows"], e["dropped"]) for e in inspected["partitions"]] == [(ROWS - incomplete, incomplete)]
    assert f" {incomplete} " in run_command("inspect", work.store).out
    work.put(0, table, where="new")
    prediction = run_command("predict", work.job(changes), work.folder / "new", work.folder / "out", "--std", "--json")
    assert prediction.result["left_out"] == incomplete
    predictions = pq.read_table(work.folder / "out")
    assert predictions.num_rows == ROWS
    assert [predictions[name].null_count for name in predictions.column_names] == [incomplete] * 3
    assert "rows lack a value and have no prediction" in prediction.err


@pytest.mark.parametrize("classes", ["all", None])
def test_classes_scores_and_error_bars_are_null_where_a_row_is_left_out(tmp_path: Path, classes: str | None) -> None:
    work = Workplace(tmp_path)
    changes: Settings = {
        **JOB,
        "source.target": "kind",
        "source.ignore": ["y"],
        "source.classes": classes,
        "source.positive": None if classes else "high",
        "source.missing": "drop",
    }
    put_all(work, [0, 1], share=0.1)
    work.run_here(changes)
    work.put(0, draw(0, share=0.3), where="new")
    predictions = work.predict_here("new", changes, with_std=True, with_scores=True)
    incomplete = draw(0, share=0.3).to_pandas().isna().any(axis=1).to_numpy()
    assert len(predictions.column_names) >= 4
    for name in predictions.column_names:
        np.testing.assert_array_equal(np.asarray(predictions[name].is_null()), incomplete)


@pytest.mark.parametrize("key", ["missing", "unseen_categories"])
def test_an_unknown_policy_is_refused(tmp_path: Path, key: str) -> None:
    work = Workplace(tmp_path)
    put_all(work, [0])
    refused = run_command("run", work.job({**JOB, f"source.{key}": "guess"}))
    assert (refused.code, f"source.{key}" in refused.err) == (2, True)
