"""MLflow loads an exported model, which answers as the product does, with the snapshot in its metadata."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.data.mixed_model import draw, mixed_model, predicted

from ridgestream.pipeline.exports.mlflow_model import log_mlflow, save_mlflow
from ridgestream.pipeline.features.target_map import TargetMap

mlflow = pytest.importorskip("mlflow", reason="the extra [mlflow] has it")
pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore")]
MODEL = mixed_model(TargetMap.of_classes(("a", "b", "c")))
STORED = SimpleNamespace(model_=MODEL, name="shells", snapshot="1CECHNKREP0F1RSTCMT0", missing="impute")


def frame_of(columns: dict[str, Any]) -> pd.DataFrame:
    """The columns as a user has them: whole numbers, time stamps, and None for missing text."""
    frame = pd.DataFrame(columns).replace({"sex": {"": None}, "site": {"": None}})
    whole = frame["born_at"].round().astype("Int64")
    return frame.assign(born_at=whole, sold_at=pd.to_datetime(frame["sold_at"].round(), unit="s"))


def check_answer(uri: Any) -> None:
    columns = draw(50)
    columns["sold_at"] = columns["sold_at"].round()
    loaded = mlflow.pyfunc.load_model(str(uri))
    answer = loaded.predict(frame_of(columns))
    outputs = predicted(MODEL, columns)[0]
    assert answer["prediction"].tolist() == ["abc"[place] for place in outputs.argmax(axis=1)]
    assert answer[["scores_0", "scores_1", "scores_2"]].to_numpy() == pytest.approx(outputs, abs=1e-9)
    assert loaded.metadata.metadata["snapshot"] == STORED.snapshot
    assert [each.name for each in loaded.metadata.signature.inputs] == list(columns)
    assert [each.name for each in loaded.metadata.signature.outputs] == list(answer.columns)


def test_a_saved_model(tmp_path: Path) -> None:
    save_mlflow(STORED, tmp_path / "saved")
    check_answer(tmp_path / "saved")


def test_a_logged_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # what mlflow-skinny has; a database takes all of MLflow
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("shells", str(tmp_path / "artifacts")))
    logged = log_mlflow(STORED, "shells", input_example=None)
    check_answer(logged.model_uri)


def test_a_number_is_one_column(tmp_path: Path) -> None:
    model, columns = mixed_model(TargetMap((3.0,), (0.5,))), draw(20, missing=0.0)
    save_mlflow(model, tmp_path / "saved", std=True)
    answer = mlflow.pyfunc.load_model(str(tmp_path / "saved")).predict(pd.DataFrame(columns))
    assert answer["prediction"].to_numpy() == pytest.approx(predicted(model, columns)[0][:, 0], abs=1e-9)
    assert list(answer.columns) == ["prediction", "std", "std_observed"]
    assert np.isfinite(answer).all(axis=None)


def test_columns_that_are_missing_are_named(tmp_path: Path) -> None:
    save_mlflow(STORED, tmp_path / "saved")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    with pytest.raises(Exception, match="the rows lack columns of those learned: length, site"):
        loaded.predict(frame_of(draw(5)).drop(columns=["site", "length"]))
