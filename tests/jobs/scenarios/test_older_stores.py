"""Stores of earlier releases, kept as they were written: they open, are known again, and are continued."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import REGRESSION, Workplace, draw_regression, draw_rows, open_store

from ridgestream.jobs.commands.history import run_history, run_rollback
from ridgestream.jobs.commands.inspect import run_inspect
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.report.report_files import run_report
from ridgestream.stores.repository.store_format import FORMAT_VERSION, read_root_record
from ridgestream.stores.repository.store_location import StoreLocation

LEFT_OPEN = {"model.metric": None, "model.kernel.gamma": None}
"""What a model of an older release keeps as it is."""

STORES = Path(__file__).parents[2] / "data" / "stores"


def unpack(folder: Path, kind: str) -> Workplace:
    """Two partitions of 40 rows, held-out rows, and the store that release 0.1.0 made of them with max_basis 8."""
    with zipfile.ZipFile(STORES / f"0.1.0-{kind}.zip") as archive:
        archive.extractall(folder)
    return Workplace(folder)


@pytest.mark.samples
@pytest.mark.parametrize("kind", ["binary", "regression"])
def test_a_store_of_release_0_1_0_can_be_continued(tmp_path: Path, kind: str) -> None:
    work = unpack(tmp_path, kind)
    changes = {
        **({} if kind == "binary" else REGRESSION),
        "model.max_basis": 8,
        "model.metric": None,
        "model.kernel.gamma": None,
    }
    result = run_inspect(StoreLocation(str(work.store)))
    (night,) = work.model().history
    assert (result["format_version"], result["rows"], night.progressive_mse_of, night.test_mse_of) == (
        1,
        80,
        None,
        None,
    )
    assert "confusion" not in result["models"][0]
    report = run_report(read_job(work.job({**changes, "report": "out"}), {}), None)
    facts = json.loads(Path(report["json"]).read_text())
    assert (facts["night"], facts["recorded"], facts["figures"]["rows_seen"]) == (0, False, 80)
    assert "an older release ran it" in Path(report["html"]).read_text()
    same = work.run_here(changes)  # unpacked files have new time stamps: each is read again and its hash compared
    assert (same["new_partitions"], same["snapshot"]) == (0, result["snapshot"])
    judged = work.evaluate_here(changes)
    name = "test_error" if kind == "binary" else "test_mse"
    assert judged[name] == pytest.approx(getattr(night, name), rel=1e-9)
    prediction = work.predict_here("held-out", changes)["prediction"].to_numpy()
    assert set(np.unique(prediction)) == {-1, 1} if kind == "binary" else (prediction > 1000).all()
    drift = result["models"][0]["drift"]
    assert [part["progressive_error"] for part in drift] == [None, None]
    assert {column["compared"] for part in drift for column in part["columns"].values()} == {"moments"}
    assert not any(part["suspect"] for part in drift)
    work.put(2, (draw_rows if kind == "binary" else draw_regression)(2, 40))
    assert work.run_here(changes)["partitions_consumed"] == 3
    assert work.model().history[0] == night
    store = open_store(work.store)
    assert store.format_version == FORMAT_VERSION
    record = read_root_record(store.root())
    assert record is not None
    assert record.hashes is not None
    assert record.hashes.keys() == {"ledger", "models/model", "models/model/arrays"}


FORMAT_3 = {
    **LEFT_OPEN,
    "model.max_basis": 8,
    "model.scaling_rows": 40,
    "model.guard": 0.0,
    "source.missing": "impute",
    "source.unseen_categories": "extend",
    "source.on_bad": "quarantine",
}


def test_a_store_of_format_3_can_be_continued(tmp_path: Path) -> None:
    """Five nights: a bad partition, a new category, a model held back, a rollback, another one held back; a tag."""
    with zipfile.ZipFile(STORES / "format-3.zip") as archive:
        archive.extractall(tmp_path)
    work = Workplace(tmp_path)
    job = read_job(work.job(FORMAT_3), {})
    (model,) = run_history(StoreLocation(str(work.store)), "model")["models"]
    assert [night["event"] for night in model["nights"]] == [None, None, None, "rollback to 2", None]
    assert [night["held"] for night in model["nights"]] == [None, None, True, None, True]
    assert (model["served_night"], model["excluded"]) == (4, ["part-04.parquet"])
    assert model["nights"][1]["tags"] == ["sample"]
    result = run_inspect(StoreLocation(str(work.store)))
    assert (result["format_version"], result["rows"], len(result["partitions"])) == (3, 200, 5)
    assert result["models"][0]["counters"].keys() >= {"rounding_error", "largest_rounding_error"}
    assert [each["name"] for each in result["quarantined"]] == ["part-03.parquet"]
    expected = pq.read_table(tmp_path / "expected.parquet")
    predictions = work.predict_here("held-out", FORMAT_3)
    assert predictions["prediction"].equals(expected["prediction"])
    np.testing.assert_allclose(predictions["score"].to_numpy(), expected["score"].to_numpy(), rtol=1e-9, atol=1e-12)
    same = work.run_here(FORMAT_3)  # what is in quarantine has a new time stamp: it is tried again, and refused again
    assert (same["new_partitions"], same["rows_seen"]) == (0, 160)
    assert run_rollback(job, 3, 0.0, replay=True)["to_learn"] == 1
    work.put(6, pq.read_table(work.folder / "rows" / "part-00.parquet"))
    assert work.run_here({**FORMAT_3, "model.guard": None})["rows_seen"] == 240
