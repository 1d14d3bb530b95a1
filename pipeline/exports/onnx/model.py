"""A served model as an ONNX model in double precision, from raw columns to predictions."""

import json
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgestream.pipeline.base.errors import InputWarning
from ridgestream.pipeline.base.policies import ERROR
from ridgestream.pipeline.exports.export_errors import NotExportable, require
from ridgestream.pipeline.exports.exported import MISSING_TEXT, Exported
from ridgestream.pipeline.features.one_vs_rest import Label

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, ML_OPSET, IR_VERSION = 18, 3, 8
"""The versions of ONNX that a file states, those of 2022: runtimes since then read it."""

LARGEST_BYTES = 2**31 - 2**20
"""What the constants of a file may take: no file of ONNX is larger than 2 GiB."""

OUTPUTS = ("prediction", "scores", "probabilities", "std", "std_observed")


def to_onnx(
    model: Any,  # noqa: ANN401
    *,
    std: bool = False,
    classes: Sequence[Label] | None = None,
    missing: str | None = None,
    unseen_categories: str | None = None,
) -> "ModelProto":
    """Return a served model, or a fitted estimator's, as an ONNX model of opset 18; `onnx.save` writes it.

    It has an input for each raw column, under its name, of shape (rows,): numbers, booleans (0 and 1) and time stamps
    (seconds since 1970 in UTC) as double, NaN where missing; categories as text, "" where missing. Outputs are
    `prediction` (rows,), a number or the label of a class, or (rows, n_targets) for several targets; for classes
    `scores`, and `probabilities` if the model is calibrated, (rows, n_classes) in the order of `classes`; and with
    `std`, the standard deviations `std` and `std_observed`, of f and of a new observation, for each target or class.

    `classes` are those of the estimator or model if None. `missing` ("error", "impute", "drop") and
    `unseen_categories` ("error", "ignore", "extend") are the policies of job files, by default the estimator's, or
    "error": such a row makes the run fail with the column's name. A row that is dropped has NaN in all outputs.

    Where "" is a category that the model knows, a missing value is taken for it, of which an InputWarning says so.

    Raises NotExportable for a model that ONNX cannot hold, InputError if it has no uncertainty, MissingExtra if the
    package onnx is not installed.
    """
    require("onnx", "onnx")
    exported = Exported.of(model, classes, missing, unseen_categories)
    _check_names(exported.columns)
    _warn_of_empty_texts(exported)
    return _model_proto(exported, std=std)


def _check_names(columns: Sequence[str]) -> None:
    taken = next((name for name in columns if name in OUTPUTS), None)
    if taken is not None:
        raise NotExportable(f"the column {taken!r} has the name of an output of the ONNX file; rename the column")


def _warn_of_empty_texts(exported: Exported) -> None:
    """Warn of the first column whose missing values the file cannot tell from one of its categories."""
    columns = exported.feature_map.categorical
    name = next((column.name for column in columns if MISSING_TEXT in column.categories), None)
    if name is not None and exported.missing != ERROR:
        message = (
            f"column {name!r} has the category {MISSING_TEXT!r}, which in an ONNX file is also a missing text: the "
            "file takes one for the other"
        )
        warnings.warn(message, InputWarning, stacklevel=3)


def _check_size(size: int) -> None:
    if size > LARGEST_BYTES:
        raise NotExportable(
            f"the model's arrays take {size / 2**30:.1f} GiB, an ONNX file at most 2: leave out the deviations, or "
            "train with a smaller max_basis or fewer experts"
        )


def _model_proto(exported: Exported, *, std: bool) -> "ModelProto":
    from onnx import helper

    from ridgestream.pipeline.exports.onnx.cells import add_moments
    from ridgestream.pipeline.exports.onnx.features import add_features
    from ridgestream.pipeline.exports.onnx.graph import ML, ROWS, Graph, Kind
    from ridgestream.pipeline.exports.onnx.outputs import add_outputs

    graph, feature_map = Graph(), exported.feature_map
    moments = add_moments(graph, exported.model, add_features(graph, exported), bars=std)
    outputs = add_outputs(graph, exported, moments)
    _check_size(sum(len(constant.raw_data) for constant in graph.constants))
    inputs: dict[str, Kind] = {column.name: (np.float64, [ROWS]) for column in feature_map.numeric}
    inputs |= {column.name: (np.str_, [ROWS]) for column in feature_map.categorical}
    whole = graph.close("ridgestream", inputs, outputs, initializer=graph.constants)
    versions = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)]
    proto = helper.make_model(whole, opset_imports=versions, ir_version=IR_VERSION, producer_name="ridgestream")
    helper.set_model_props(proto, {**exported.origin, "classes": json.dumps(exported.classes)})
    return proto
