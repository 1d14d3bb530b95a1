"""ONNX files answer as the product does: all kinds of columns, kernels, classes, cells, missing and unknown values."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pandas as pd
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from support.data.forest import read_forest
from support.data.mixed_model import draw, mixed_model, predicted, some_probabilities, stored

from ridgestream.pipeline.base.errors import InputError, InputWarning
from ridgestream.pipeline.estimators.sparse import SparseKernelClassifier
from ridgestream.pipeline.exports.export_errors import MissingExtra, NotExportable
from ridgestream.pipeline.exports.onnx.model import to_onnx
from ridgestream.pipeline.exports.sklearn_pipeline import to_sklearn
from ridgestream.pipeline.features.columns import CategoricalColumn, NumericColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.kernels import RBF, Kernel, Linear, Polynomial
from ridgestream.pipeline.models.experts_model import ExpertsModel, sharing_noise
from ridgestream.pipeline.models.predictor import ExpansionModel
from ridgestream.pipeline.models.uncertainty import Uncertainty
from ridgestream.pipeline.online.experts.cells import Cells
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.moments import Moments
from ridgestream.pipeline.sums.normal_equations import BlockStatistics

NUMBER = TargetMap((3.0,), (0.5,))


def run(proto: Any, columns: dict[str, Any]) -> dict[str, npt.NDArray[Any]]:
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == list(columns)
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, columns), strict=True))


def served(model: Any, columns: dict[str, Any], **options: Any) -> dict[str, npt.NDArray[Any]]:
    return run(to_onnx(model, std=True, **options), columns)


@pytest.mark.parametrize("metric", ["full", "diagonal", "none"])
@pytest.mark.parametrize("bias", [True, False])
def test_numbers_and_deviations_of_all_kinds_of_columns(metric: str, bias: bool) -> None:
    model, columns = mixed_model(NUMBER, metric=metric, bias=bias), draw(2000, unseen=0.1)
    answer = served(model, columns, missing="impute", unseen_categories="ignore")
    mean, std, observed = (each[:, 0] for each in predicted(model, columns))
    assert list(answer) == ["prediction", "std", "std_observed"]
    assert answer["prediction"] == pytest.approx(mean, abs=1e-9, rel=0)
    assert answer["std"] == pytest.approx(std, abs=1e-7, rel=0)
    assert answer["std_observed"] == pytest.approx(observed, abs=1e-7, rel=0)


@pytest.mark.parametrize("kernel", [RBF(0.3), Polynomial(0.01, 2, 0.5), Linear()])
def test_every_kernel(kernel: Kernel) -> None:
    model, columns = mixed_model(NUMBER, kernel), draw(200)
    answer = served(model, columns, missing="impute")
    mean, std, _ = (each[:, 0] for each in predicted(model, columns))
    assert answer["prediction"] == pytest.approx(mean, abs=1e-9)
    assert answer["std"] == pytest.approx(std, abs=1e-7)


CLASSES: list[tuple[Any, ...]] = [("no", "yes"), ("a", "b", "c"), (1, 2, 7), (False, True), (0.5, 1.0)]


@pytest.mark.parametrize("classes", CLASSES)
def test_classes_scores_and_probabilities(classes: tuple[Any, ...]) -> None:
    target = TargetMap.of_classes(classes)
    probabilities, columns = some_probabilities(target.n_outputs), draw(300)
    model = mixed_model(target).having(probabilities=probabilities)
    answer = served(model, columns, missing="impute")
    outputs, std, _ = predicted(model, columns)
    scores = target.class_scores(outputs)
    assert answer["scores"] == pytest.approx(scores, abs=1e-9)
    assert answer["prediction"].tolist() == [classes[place] for place in scores.argmax(axis=1)]
    assert answer["probabilities"] == pytest.approx(probabilities.of(outputs), abs=1e-9)
    assert answer["std"] == pytest.approx(target.class_deviations(std), abs=1e-7)


def test_one_class_against_the_rest_is_minus_one_or_one() -> None:
    model, columns = mixed_model(TargetMap((0.0,), (1.0,))), draw(300)
    outputs = predicted(model, columns)[0][:, 0]
    for answer in (
        served(model, columns, missing="impute", classes=(-1, 1)),
        served(model.having(probabilities=some_probabilities(1)), columns, missing="impute"),
    ):
        assert answer["prediction"].tolist() == np.where(outputs > 0, 1, -1).tolist()
        assert answer["scores"][:, 1] == pytest.approx(outputs, abs=1e-9)


def test_several_targets_are_columns() -> None:
    model, columns = mixed_model(TargetMap((3.0, -1.0), (0.5, 20.0))), draw(300)
    answer = served(model, columns, missing="impute")
    mean, std, _ = predicted(model, columns)
    assert answer["prediction"] == pytest.approx(mean, abs=1e-9)
    assert answer["std"] == pytest.approx(std, abs=1e-7)


@pytest.mark.parametrize("policy", ["impute", "drop"])
def test_a_text_that_is_also_a_missing_one_is_warned_of(policy: str) -> None:
    model = mixed_model(NUMBER)
    site = CategoricalColumn.plain("site", ("north", "", "3"), {"north": 2.0, "": 5.0})
    taken = model.having(feature_map=replace(model.feature_map, categorical=(model.feature_map.categorical[0], site)))
    with pytest.warns(InputWarning, match="column 'site' has the category '', which in an ONNX file is also a missing"):
        to_onnx(taken, missing=policy)
    to_onnx(taken)  # a missing value is an error, and the text is what it was
    to_onnx(model, missing=policy)


def test_rows_that_are_dropped_have_nan_and_no_label() -> None:
    columns = draw(300)
    numeric, codes, _ = stored(columns)
    lacking = np.isnan(numeric).any(axis=1) | (codes < 0).any(axis=1)
    assert 0 < lacking.sum() < 300
    numbers = served(mixed_model(NUMBER), columns, missing="drop")
    assert np.isnan(numbers["prediction"]).tolist() == np.isnan(numbers["std"]).tolist() == lacking.tolist()
    labels = served(mixed_model(TargetMap.of_classes(("a", "b", "c"))), columns, missing="drop")
    assert (labels["prediction"] == "").tolist() == np.isnan(labels["scores"][:, 1]).tolist() == lacking.tolist()


@pytest.mark.parametrize(("name", "value"), [("length", np.nan), ("born_at", np.nan), ("sex", ""), ("site", "south")])
def test_what_the_product_refuses_fails_with_the_name_of_the_column(name: str, value: Any) -> None:
    model, columns = mixed_model(NUMBER), draw(5, missing=0.0)
    assert np.isfinite(served(model, columns)["prediction"]).all()
    columns[name][3] = value
    with pytest.raises(InvalidArgument, match=f"column '{name}' "):
        served(model, columns)


def test_each_cell_answers_for_its_rows() -> None:
    experts = sharing_noise([mixed_model(NUMBER, n_basis=n) for n in (20, 30, 25)])
    feature_map, centres = experts[0].feature_map, experts[1].basis.vectors[[3, 1, 4, 2]]
    model, columns = ExpertsModel(Cells.of(centres), np.array([0, 1, 3]), experts, feature_map), draw(400)
    answer = served(model, columns, missing="impute")
    mean, std, _ = (each[:, 0] for each in predicted(model, columns))
    assert answer["prediction"] == pytest.approx(mean, abs=1e-9)
    assert answer["std"] == pytest.approx(std, abs=1e-7)


def test_cells_that_have_learned_nothing_are_refused() -> None:
    feature_map = mixed_model(NUMBER).feature_map
    model = ExpertsModel(Cells.of(np.zeros((1, feature_map.n_features))), np.array([], np.int64), (), feature_map)
    with pytest.raises(NotExportable, match="has learned no rows yet"):
        to_onnx(model)


def test_rows_far_from_the_origin_lose_no_digits() -> None:
    model, columns = mixed_model(NUMBER, metric="none"), draw(100, missing=0.0)
    shift = np.zeros(model.feature_map.n_features)
    shift[1], columns["is_old"] = 1e5, columns["is_old"] + 1e5 * model.feature_map.scale[1]
    far = replace(model, basis=replace(model.basis, vectors=model.basis.vectors + shift))
    mean = predicted(far, columns)[0][:, 0]
    assert np.ptp(mean) > 0.01
    assert served(far, columns)["prediction"] == pytest.approx(mean, abs=1e-9)


def test_a_column_that_is_called_as_an_output_is_refused() -> None:
    model = mixed_model(NUMBER)
    columns = (replace(model.feature_map.numeric[0], name="std"), *model.feature_map.numeric[1:])
    with pytest.raises(NotExportable, match="the column 'std' has the name of an output of the ONNX file; rename"):
        to_onnx(model.having(feature_map=replace(model.feature_map, numeric=columns)))


def test_a_model_too_large_for_a_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ridgestream.pipeline.exports.onnx.model.LARGEST_BYTES", 1000)
    with pytest.raises(NotExportable, match=r"take 0.0 GiB, an ONNX file at most 2: leave out the deviations"):
        to_onnx(mixed_model(NUMBER))


def test_deviations_take_a_model_that_has_them() -> None:
    model = mixed_model(NUMBER).having(uncertainty=None)
    assert [each.name for each in to_onnx(model).graph.output] == ["prediction"]
    with pytest.raises(InputError, match="the model was created without uncertainty"):
        to_onnx(model, std=True)


def test_an_estimator_gives_its_model_and_nothing_else_is_taken() -> None:
    model = mixed_model(TargetMap((0.0,), (1.0,)))
    estimator = SimpleNamespace(model_=model, classes_=np.array(["no", "yes"]))
    columns = draw(20)
    assert set(served(estimator, columns, missing="impute")["prediction"]) <= {"no", "yes"}
    with pytest.raises(InputError, match="only a served model or a fitted estimator is exported, this is dict"):
        to_onnx({})
    with pytest.raises(InputError, match="missing must be one of error, impute, drop, it is 'ignore'"):
        to_onnx(model, missing="ignore")


def test_without_the_package_the_error_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ridgestream.pipeline.exports.export_errors.find_spec", lambda name: None)  # noqa: ARG005
    with pytest.raises(MissingExtra, match=r"takes the package onnx, .*: pip install 'ridgestream\[onnx\]'"):
        to_onnx(mixed_model(NUMBER))


def forest_model(n_basis: int = 500) -> tuple[ExpansionModel, dict[str, Any]]:
    """Return a model of rows of the forest, and 10,000 rows by column."""
    X, y = (part[:10_000] for part in read_forest("test", 10_000))
    moments = Moments.of(X)
    scales = zip(moments.mean.tolist(), moments.deviation().tolist(), strict=True)
    columns = tuple(NumericColumn(f"x{i}", mean, scale, mean) for i, (mean, scale) in enumerate(scales))
    feature_map = FeatureMap(columns, (), TargetMap((0.0,), (1.0,)))
    features = feature_map.features(X, np.empty((len(X), 0), np.int32), [])
    basis = Basis(RBF(1 / 54), features[::20][:n_basis], np.zeros(54))
    values, targets = basis.values(features), y[:, np.newaxis]
    sums = BlockStatistics(values.T @ values, values.T @ targets, targets.T @ targets, len(X), len(X))
    bars = Uncertainty.from_sums(sums, basis.penalty(), n_basis, 1e-5)
    model = ExpansionModel(basis, bars.normal.solve(sums.rhs), feature_map, bars)
    return model, {column.name: X[:, i].copy() for i, column in enumerate(columns)}


def test_forest_rows_agree_to_nine_digits() -> None:
    model, columns = forest_model()
    answer = served(model, columns, classes=(-1, 1))
    X = np.column_stack(list(columns.values()))
    rows: Any = X, np.empty((len(X), 0), np.int32), []
    outputs, std = model.predict(*rows)[:, 0], model.deviations(*rows)[0][:, 0]
    assert np.abs(answer["scores"][:, 1] - outputs).max() <= 1e-9
    assert np.abs(answer["std"][:, 1] - std).max() <= 1e-7
    assert answer["prediction"].tolist() == np.where(outputs > 0, 1, -1).tolist()


def test_an_estimator_s_model_classes_and_policies() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"length": rng.random(200), "sex": rng.choice(["F", "M"], 200)})
    labels = np.where(frame["length"] + (frame["sex"] == "M") > 1, 7, 3)
    estimator = SparseKernelClassifier(max_basis=20, missing="impute").fit(frame, labels)
    proto = to_onnx(estimator)
    answer = run(proto, {"length": frame["length"].to_numpy(), "sex": frame["sex"].to_numpy(object)})
    assert answer["prediction"].tolist() == estimator.predict(frame).tolist()
    assert answer["scores"][:, 1] == pytest.approx(estimator.decision_function(frame), abs=1e-9)
    assert answer["probabilities"] == pytest.approx(estimator.predict_proba(frame), abs=1e-4)  # steep between ties
    assert {each.key: each.value for each in proto.metadata_props} == {"classes": "[3, 7]"}
    assert to_sklearn(estimator).predict(frame).tolist() == estimator.predict(frame).tolist()
    filled = run(proto, {"length": np.array([np.nan]), "sex": np.array([""], dtype=object)})
    assert np.isfinite(filled["scores"]).all()
