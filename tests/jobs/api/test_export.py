"""The command `export`: what it writes answers as `predict` does, and its errors say what to do."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pytest
import skops.io
from pandas.api.types import is_numeric_dtype
from support.jobs.jobs import ROWS, Workplace, draw_rows, run_command

import ridgestream
from ridgestream.jobs.api.export import ExportRequest, run_export
from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import JobFileError
from ridgestream.stores.errors.exceptions import ModelError


def trained(folder: Path, changes: dict[str, Any] | None = None) -> Workplace:
    work = Workplace(folder)
    work.put_all(range(1))
    work.run_here(changes)
    return work


def inputs_of(table: pa.Table, names: list[str]) -> dict[str, Any]:
    columns = {name: table[name].to_pandas() for name in names}
    return {n: c.to_numpy() if is_numeric_dtype(c) else c.fillna("").to_numpy(object) for n, c in columns.items()}


def answer_of(file: Path, table: pa.Table) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(file)
    inputs = inputs_of(table, [each.name for each in session.get_inputs()])
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def test_a_job_s_model_as_onnx_and_skops(tmp_path: Path) -> None:
    work, rows = trained(tmp_path), draw_rows(7)
    work.put(0, rows, where="new")
    predicted = work.predict_here("new", with_std=True, with_probabilities=True)
    done = run_command("export", work.job(), tmp_path / "model.onnx", "--std", "--json")
    file = tmp_path / "model.onnx"
    assert done.result == {
        "model": "model", "snapshot": work.snapshot(), "output": str(file), "bytes": file.stat().st_size,
    }  # fmt: skip
    answer = answer_of(file, rows)
    assert answer["prediction"].tolist() == predicted["prediction"].to_pylist()
    assert answer["scores"][:, 1] == pytest.approx(predicted["score"].to_numpy(), abs=1e-9)
    assert answer["probabilities"][:, 1] == pytest.approx(predicted["probability_2"].to_numpy(), abs=1e-9)
    assert answer["std"][:, 1] == pytest.approx(predicted["std"].to_numpy(), abs=1e-7)
    assert {each.key: each.value for each in onnx.load(file).metadata_props}["snapshot"] == work.snapshot()
    assert run_command("export", work.store, tmp_path / "model.skops").code == 0
    pipeline = skops.io.load(tmp_path / "model.skops")
    assert pipeline.predict(rows.to_pandas()).tolist() == predicted["prediction"].to_pylist()


def test_a_stored_model_in_python_is_exported_as_it_is(tmp_path: Path) -> None:
    work, rows = trained(tmp_path), draw_rows(7)
    model = ridgestream.open(work.store).models["model"]
    onnx.save(ridgestream.to_onnx(model, std=True), tmp_path / "model.onnx")
    answer, predicted = answer_of(tmp_path / "model.onnx", rows), model.predict(rows, std=True, proba=True)
    assert answer["prediction"].tolist() == predicted["prediction"].to_pylist()
    assert answer["std_observed"][:, 1] == pytest.approx(predicted["std_observed"].to_numpy(), abs=1e-7)
    assert ridgestream.to_sklearn(model).classes_.tolist() == [-1, 1]


def test_the_policies_are_the_job_s_unless_given(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "source.missing": "impute",
        "source.categorical": ["x0"],
        "source.unseen_categories": "ignore",
    }
    changes |= {"evaluate.path": None}
    table = draw_rows(0)
    colours = pa.array(np.array(["red", "blue", None], dtype=object)[np.arange(ROWS) % 3])
    work = Workplace(tmp_path)
    work.put(0, table.set_column(0, "x0", colours))
    work.run_here(changes)
    rows = draw_rows(5).set_column(0, "x0", pa.array(["red", None, "green", "blue"] * (ROWS // 4)))
    work.put(0, rows, where="new")
    predicted = work.predict_here("new", changes)["score"].to_numpy()
    assert run_command("export", work.job(changes), tmp_path / "model.onnx").code == 0
    assert answer_of(tmp_path / "model.onnx", rows)["scores"][:, 1] == pytest.approx(predicted, abs=1e-9)
    assert run_command("export", work.job(changes), tmp_path / "model.onnx", "--set", "source.missing=error").code == 0
    with pytest.raises(Exception, match="column 'x0' lacks a value, or has a category"):
        answer_of(tmp_path / "model.onnx", rows)


def test_errors_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = trained(tmp_path)
    job = read_job(work.job(), {})
    for request, error, message in [
        (
            ExportRequest("m.pmml"),
            JobFileError,
            "m.pmml has no format .* or give --format, onnx",
        ),
        (ExportRequest("m.skops", std=True), JobFileError, "--std is for onnx: a pipeline of scikit-learn"),
        (ExportRequest("m.onnx", snapshot="7"), ModelError, "night"),
    ]:
        with pytest.raises(error, match=message):
            run_export(job, request)
    monkeypatch.setattr("ridgestream.pipeline.exports.export_errors.find_spec", lambda name: None)  # noqa: ARG005
    with pytest.raises(ImportError, match=r"pip install 'ridgestream\[skops\]'"):
        run_export(job, ExportRequest("m.skops"))


def test_a_model_that_a_format_cannot_hold_has_the_exit_code_of_models(tmp_path: Path) -> None:
    work = trained(tmp_path, {"model.experts": 2})
    failed = run_command("export", work.store, tmp_path / "model.skops")
    assert failed.code == exit_codes.MODEL
    assert "no part for local experts: export the model as ONNX" in failed.err
    assert not (tmp_path / "model.skops").exists()
