"""Pipelines of scikit-learn's own parts answer as the product does, and skops trusts all of their types."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from support.data.mixed_model import draw, mixed_model, predicted

from ridgestream import OnlineLSSVMRegressor
from ridgestream.pipeline.exports.export_errors import NotExportable
from ridgestream.pipeline.exports.sklearn_pipeline import to_sklearn
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.kernels import RBF, Kernel, Linear, Polynomial
from ridgestream.pipeline.models.experts_model import ExpertsModel
from ridgestream.pipeline.online.experts.cells import Cells

NUMBER = TargetMap((3.0,), (0.5,))


def frame_of(columns: dict[str, Any], missing: float | None = np.nan) -> pd.DataFrame:
    texts = {name: [text or missing for text in values] for name, values in columns.items() if values.dtype == object}
    return pd.DataFrame({**columns, **texts})


@pytest.mark.parametrize(
    ("kernel", "metric"), [(RBF(0.1), "full"), (Polynomial(0.01, 2, 0.5), "diagonal"), (Linear(), "none")]
)
@pytest.mark.parametrize("target", [NUMBER, TargetMap((3.0, -1.0), (0.5, 20.0))])
def test_numbers(target: TargetMap, kernel: Kernel, metric: str) -> None:
    model, columns = mixed_model(target, kernel, metric=metric, circles=False), draw(300, unseen=0.1)
    pipeline = to_sklearn(model, missing="impute", unseen_categories="ignore")
    for missing in (np.nan, None):
        answer = pipeline.predict(frame_of(columns, missing))
        assert answer.shape == ((300,) if target is NUMBER else (300, 2))
        assert answer.reshape(300, -1) == pytest.approx(predicted(model, columns)[0], abs=1e-9, rel=0)


@pytest.mark.parametrize("classes", [("no", "yes"), ("a", "b", "c"), (False, True), (1, 2, 7)])
def test_classes_and_scores(classes: tuple[Any, ...]) -> None:
    target, columns = TargetMap.of_classes(classes), draw(300)
    model = mixed_model(target, bias=False, circles=False)
    pipeline, frame, outputs = to_sklearn(model, missing="impute"), frame_of(columns), predicted(model, columns)[0]
    assert pipeline.decision_function(frame).reshape(300, -1) == pytest.approx(outputs, abs=1e-9)
    winners = target.class_scores(outputs).argmax(axis=1)
    assert pipeline.predict(frame).tolist() == [classes[winner] for winner in winners]
    assert pipeline[-1].classes_.tolist() == list(classes)


def test_skops_writes_and_reads_it_without_trusting_a_type() -> None:
    model, frame = mixed_model(NUMBER, circles=False), frame_of(draw(50))
    pipeline = to_sklearn(model, missing="impute")
    written = skops.io.dumps(pipeline)
    assert skops.io.get_untrusted_types(data=written) == []
    assert skops.io.loads(written).predict(frame).tolist() == pipeline.predict(frame).tolist()


def test_what_the_product_refuses_is_refused() -> None:
    pipeline, columns = to_sklearn(mixed_model(NUMBER, circles=False)), draw(5, missing=0.0)
    assert np.isfinite(pipeline.predict(frame_of(columns))).all()
    for name, value, message in [
        ("length", np.nan, "Input X contains NaN"),
        ("sex", "", r"Found unknown categories \[nan\]"),
        ("site", "south", r"Found unknown categories \['south'\]"),
    ]:
        changed = {**columns, name: columns[name].copy()}
        changed[name][3] = value
        with pytest.raises(ValueError, match=message):
            pipeline.predict(frame_of(changed))


def test_what_has_no_part_is_refused() -> None:
    model = mixed_model(NUMBER, circles=False)
    cells = ExpertsModel(Cells.of(model.basis.vectors[:1]), np.array([0]), (model,), model.feature_map)
    with pytest.raises(NotExportable, match="no part for local experts: export the model as ONNX"):
        to_sklearn(cells)
    with pytest.raises(NotExportable, match="no part for the circles of the time stamp 'sold_at': export"):
        to_sklearn(mixed_model(NUMBER))
    with pytest.raises(NotExportable, match='answers each row: choose missing = "impute" or "error"'):
        to_sklearn(model, missing="drop")


@pytest.mark.filterwarnings("ignore")
def test_an_estimator_fitted_to_an_array_is_exported_for_arrays() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    estimator = OnlineLSSVMRegressor(gamma=0.5, regularization=1e-4, max_basis=9, metric="standardized")
    estimator.fit(X, X[:, 0] - X[:, 1])
    assert np.allclose(to_sklearn(estimator).predict(X), estimator.predict(X), rtol=0, atol=1e-12)
