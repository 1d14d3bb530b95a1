"""Every error is reported with a constant's: in results, records, reports and events; noise is called so."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import classification_report, mean_squared_error, r2_score, zero_one_loss
from support.jobs.jobs import REGRESSION, Workplace, assert_same_model, draw_regression, draw_rows, set_column
from support.jobs.recording import Notes

from ridgestream.jobs.commands.evaluate import run_evaluate
from ridgestream.jobs.commands.history import run_rollback
from ridgestream.jobs.commands.status import run_status
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.stores.catalog.models import TARGET_MOMENTS

SINGLE: dict[str, Any] = dict(REGRESSION)
EACH: dict[str, Any] = {"source.positive": None, "source.classes": "all"}
NO_BETTER = "evaluate.no_better_than_constant"
WITHIN_CHANCE = "evaluate.not_better_beyond_chance"
Draw = Callable[[int, int], pa.Table]


def put(work: Workplace, draw: Draw, sizes: tuple[int, ...] = (200, 150), held_out: int = 120) -> None:
    for number, rows in enumerate(sizes):
        work.put(number, draw(number, rows))
    if held_out:
        work.put(0, draw(1000, held_out), where="held-out")


def read_rows(work: Workplace, folder: str) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted((work.folder / folder).iterdir())])


def report_of(result: dict[str, Any]) -> dict[str, Any]:
    facts = json.loads(Path(result["report"]["json"]).read_text())
    assert isinstance(facts, dict)
    return facts


def evaluated(work: Workplace, changes: dict[str, Any]) -> tuple[dict[str, Any], Notes]:
    notes = Notes()
    return run_evaluate(read_job(work.job(changes), {}), InProcess(), notes), notes


def weighted(draw: Draw) -> Draw:
    def of(seed: int, rows: int) -> pa.Table:
        return set_column(draw(seed, rows), "w", np.random.default_rng(seed).integers(0, 4, rows) / 2)

    return of


def several(seed: int, rows: int) -> pa.Table:
    table = draw_regression(seed, rows)
    noise = np.random.default_rng(seed).normal(size=rows)
    return set_column(table, "rent", np.asarray(table["price"]) / 1000 + 0.1 * noise)


BOTH = SINGLE | {"source.target": ["price", "rent"]}


@pytest.mark.samples(2)
@pytest.mark.parametrize(
    ("draw", "changes", "targets"),
    [
        (draw_regression, SINGLE, ("price",)),
        (weighted(draw_regression), SINGLE | {"source.weight": "w"}, ("price",)),
        (several, BOTH, ("price", "rent")),
        (draw_regression, SINGLE | {"model.method": "ols"}, ("price",)),
    ],
    ids=["one", "weights", "several", "batch"],
)
def test_mean_squared_errors_stand_beside_those_of_the_mean_of_the_learned_rows(
    tmp_path: Path, draw: Draw, changes: dict[str, Any], targets: tuple[str, ...]
) -> None:
    work = Workplace(tmp_path)
    put(work, draw)
    result = work.run_here(changes)
    learned, rows = (read_rows(work, folder) for folder in ("rows", "held-out"))
    truth = np.column_stack([rows[name] for name in targets])
    w, v = (np.asarray(t["w"]) if "w" in t.column_names else np.ones(len(t)) for t in (learned, rows))
    dummy = DummyRegressor().fit(np.zeros(len(learned)), np.column_stack([learned[name] for name in targets]), w)
    trivial = dummy.predict(truth).reshape(truth.shape)
    errors = mean_squared_error(truth, trivial, sample_weight=v, multioutput="raw_values")
    assert result["trivial_error"] == pytest.approx(errors.mean(), rel=1e-10)
    assert result["skill"] == pytest.approx(1 - result["test_mse"] / errors.mean(), rel=1e-10)
    assert result["skill"] > 0.5
    if len(targets) > 1:
        skills = 1 - np.array([*result["test_mse_of"].values()]) / errors
        assert [*result["skill_of"].values()] == pytest.approx(skills, rel=1e-9)
    own, notes = evaluated(work, changes)
    names = [name for name in ("trivial_error", "skill", "skill_of") if name in result]
    assert [own[name] for name in names] == [result[name] for name in names]
    assert NO_BETTER not in notes.codes


def test_progressive_errors_stand_beside_those_of_the_constant_of_all_rows_learned_so_far(tmp_path: Path) -> None:
    work, changes = Workplace(tmp_path), SINGLE | {"evaluate.path": None}
    put(work, draw_regression, held_out=0)
    first = work.run_here(changes)
    truth = np.asarray(read_rows(work, "rows")["price"])
    assert first["progressive_trivial_error"] == pytest.approx(truth.var(), rel=1e-10)
    predicted = np.full(len(truth), truth.mean())
    assert r2_score(truth, predicted) == pytest.approx(0.0, abs=1e-12)
    assert first["progressive_skill"] == pytest.approx(1 - first["progressive_error"] / truth.var(), rel=1e-10)
    assert "trivial_error" not in first
    work.put(2, draw_regression(2, 90))
    second, new = work.run_here(changes), np.asarray(draw_regression(2, 90)["price"])
    mean = np.concatenate([truth, new]).mean()
    assert second["progressive_trivial_error"] == pytest.approx(np.mean((new - mean) ** 2), rel=1e-10)


def test_nights_and_one_run_have_the_same_constant_to_the_last_bit_and_a_rollback_takes_it_back(tmp_path: Path) -> None:
    straight, nights = Workplace(tmp_path / "straight"), Workplace(tmp_path / "nights")
    sizes, changes = (60, 0, 40), SINGLE | {"model.scaling_rows": 60}
    put(straight, draw_regression, sizes)
    straight.run_here(changes)
    put(nights, draw_regression, sizes[:1])
    first = nights.run_here(changes)
    put(nights, draw_regression, sizes)
    last = nights.run_here(changes)
    assert_same_model(straight.model(), nights.model())
    assert TARGET_MOMENTS in nights.model().arrays
    assert last["trivial_error"] != first["trivial_error"]
    run_rollback(read_job(nights.job(changes), {}), 1, 0.0, replay=False)
    assert evaluated(nights, changes)[0]["trivial_error"] == first["trivial_error"]
    assert nights.model().history[-1].progressive_trivial_error is None


@pytest.mark.samples
@pytest.mark.parametrize("changes", [{}, EACH, EACH | {"source.weight": "w"}], ids=["binary", "classes", "weights"])
def test_classes_have_the_skill_recall_and_precision_of_another_library(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    work = Workplace(tmp_path)
    put(work, weighted(draw_rows))
    changes = {"source.ignore": ["w"]} | changes if "source.weight" not in changes else changes
    result, (own, _) = work.run_here(changes), evaluated(work, changes)
    learned, rows = (read_rows(work, folder) for folder in ("rows", "held-out"))
    w, v = (np.asarray(t["w"]) if "source.weight" in changes else np.ones(len(t)) for t in (learned, rows))
    names = ["2", "all others"] if changes.get("source.classes") is None else [1, 2, 3]
    labels, truth = (np.asarray(t["label"]) for t in (learned, rows))
    predicted = np.asarray(work.predict_here("held-out", changes)["prediction"])
    if len(names) == 2:
        labels, truth, predicted = (
            np.where(each, "2", "all others") for each in (labels == 2, truth == 2, predicted > 0)
        )
    dummy = DummyClassifier().fit(np.zeros(len(labels)), labels, w)
    trivial = zero_one_loss(truth, dummy.predict(truth), sample_weight=v)
    assert result["trivial_error"] == own["trivial_error"] == pytest.approx(trivial, rel=1e-12)
    assert result["skill"] == own["skill"] == pytest.approx(1 - result["test_error"] / trivial, rel=1e-10)
    expected = classification_report(truth, predicted, sample_weight=v, output_dict=True, zero_division=0)
    assert [each["class"] for each in own["by_class"]] == names
    for each in own["by_class"]:
        figures = expected[str(each["class"])]
        ours = [each["recall"], each["precision"] or 0.0, each["support"]]
        assert ours == pytest.approx([figures["recall"], figures["precision"], figures["support"]], rel=1e-10)
    macro = expected["macro avg"]
    ours = [own["macro_recall"], own["macro_precision"]]
    assert ours == pytest.approx([macro["recall"], macro["precision"]], rel=1e-10)


def noise(kind: str) -> Draw:
    def draw(seed: int, rows: int) -> pa.Table:
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(rows, 2)), rng.normal(3000.0, 100.0, rows)
        label = np.where(rng.random(rows) < 0.4, 2, 1) if kind == "classes" else y
        return pa.table({"size": X[:, 0], "age": X[:, 1], "price" if kind == "regression" else "label": label})

    return draw


@pytest.mark.samples(2)
@pytest.mark.parametrize("held_out", [120, 0], ids=["held-out", "progressive"])
@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_of_a_target_of_noise_the_report_says_that_the_model_is_no_better_than_a_constant(
    tmp_path: Path, kind: str, held_out: int
) -> None:
    work = Workplace(tmp_path)
    put(work, noise(kind), held_out=held_out)
    changes = (SINGLE if kind == "regression" else EACH) | ({} if held_out else {"evaluate.path": None})
    facts = report_of(work.run_here(changes | {"report": None}))
    words, (said,) = facts["words"], [each for each in facts["said"] if each["code"] in (NO_BETTER, WITHIN_CHANCE)]
    skill = facts["figures"]["skill" if held_out else "progressive_skill"]
    verdict = "no better than a constant" if skill <= 0 else "not better than a constant beyond chance"
    assert said["code"] == (NO_BETTER if skill <= 0 else WITHIN_CHANCE)
    assert (words["state"], words["headline"]) == ("look", verdict.capitalize())
    assert sum(f"is {verdict}: " in sentence for sentence in words["sentences"]) == 1
    status = run_status(read_job(work.job(changes), {}), None)
    assert (status["status"], f"the model of night 1 is {verdict}: " in status["message"]) == ("quality", True)
    assert said["measured_on"] == ("held-out rows" if held_out else "new rows")
    figures = facts["figures"]
    pair = figures["skill"], figures["progressive_skill"]
    assert (pair[0] is None) == (not held_out)
    assert max(skill for skill in pair if skill is not None) < 0.2
    if held_out:
        assert said["code"] in evaluated(work, changes)[1].codes


def test_of_several_targets_those_of_noise_are_named(tmp_path: Path) -> None:
    def draw(seed: int, rows: int) -> pa.Table:
        return set_column(draw_regression(seed, rows), "rent", np.random.default_rng(seed + 50).normal(size=rows))

    work = Workplace(tmp_path)
    put(work, draw)
    facts = report_of(work.run_here(BOTH | {"report": None}))
    assert facts["words"]["headline"] == "No better than a constant in rent"
    assert facts["figures"]["no_better_in"] == ["rent"]
    assert facts["figures"]["skill_of"]["price"] > 0.8 > 0.2 > facts["figures"]["skill_of"]["rent"]


def test_a_constant_target_says_nothing_of_the_model(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    put(work, lambda seed, rows: set_column(draw_regression(seed, rows), "price", np.full(rows, 0.1)))
    facts = report_of(work.run_here(SINGLE | {"report": None}))
    assert [each["columns"] for each in facts["said"] if each["code"] == "train.target_constant"] == ["price"]
    assert (facts["figures"]["trivial_error"], facts["figures"]["skill"]) == (0.0, None)
    assert facts["figures"]["no_better_in"] == []


def test_a_class_that_is_never_predicted_is_named(tmp_path: Path) -> None:
    def draw(seed: int, rows: int) -> pa.Table:
        table = draw_rows(seed, rows)
        label = np.where(np.arange(rows) % 40 == 0, "rare", np.asarray(table["label"]).astype(str))
        return set_column(table, "label", label)

    work = Workplace(tmp_path)
    put(work, draw)
    facts = report_of(work.run_here(EACH | {"report": None}))
    assert facts["evaluation"]["never_found"] == evaluated(work, EACH)[0]["never_found"] == ["rare"]
    assert any(each.startswith("Never found: rare;") for each in facts["words"]["sentences"])


def test_models_of_older_releases_get_their_constant_from_the_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Workplace(tmp_path)
    put(work, draw_regression)
    with monkeypatch.context() as older:
        older.setattr("ridgestream.pipeline.training.trainer._with_targets", lambda trained, _: trained)
        work.run_here(SINGLE)
    assert TARGET_MOMENTS not in work.model().arrays

    def expected() -> float:
        learned, rows = (np.asarray(read_rows(work, folder)["price"]) for folder in ("rows", "held-out"))
        return float(np.mean((rows - learned.mean()) ** 2))

    assert evaluated(work, SINGLE)[0]["trivial_error"] == pytest.approx(expected(), rel=1e-10)
    work.put(2, draw_regression(2))
    assert work.run_here(SINGLE)["trivial_error"] == pytest.approx(expected(), rel=1e-10)
    assert TARGET_MOMENTS in work.model().arrays
