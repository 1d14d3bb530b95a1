"""The columns of a file of predictions: their names and types, and their values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.dataset.range_checks import check_predictions
from ridgestream.pipeline.features.one_vs_rest import winners_of
from ridgestream.pipeline.models.predictor import Model
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.schema.class_labels import Label, arrow_class_type, class_name
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Extras:
    """The columns that are asked for in addition to the predictions."""

    scores: bool = False
    """The score of each class."""
    std: bool = False
    """The standard deviations of f and of a new observation; the model has uncertainty."""
    level: float | None = None
    """The level of intervals; the model has uncertainty and intervals."""
    probabilities: bool = False
    """The probability of each class; the model has probabilities."""


def prediction_fields(schema: Schema, model: Model, file: str, extras: Extras) -> "list[pa.Field]":
    """Return the names and types of the prediction columns; raises PartitionError if two have the same name."""
    import pyarrow as pa

    columns: list[tuple[str, pa.DataType]] = []
    endings = [f"_{name}" for name in schema.targets] if len(schema.targets) > 1 else [""]
    if schema.class_kind is not None:
        endings = [f"_{class_name(label)}" for label in model.feature_map.target.classes]
        columns = [("prediction", arrow_class_type(schema.class_kind))]
        columns += [(f"score{ending}", pa.float64()) for ending in endings if extras.scores]
    elif schema.positive is not None:
        columns = [("prediction", pa.int8()), ("score", pa.float64())]
    else:
        columns = [(f"prediction{ending}", pa.float64()) for ending in endings]
    if extras.std:
        columns += [(f"{std}{ending}", pa.float64()) for ending in endings for std in ("std", "std_observed")]
    if extras.level is not None:
        columns += [(f"{bound}{ending}", pa.float64()) for ending in endings for bound in ("lower", "upper")]
    if extras.probabilities:
        columns += [(f"probability_{class_name(label)}", pa.float64()) for label in _told_classes(schema, model)]
    _check_distinct([name for name, _ in columns], file)
    return [pa.field(name, kind) for name, kind in columns]


def _check_distinct(names: list[str], file: str) -> None:
    """Raise PartitionError if two prediction columns have the same name, as for the targets `a` and `observed_a`."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PartitionError(
            f"{file}: two columns of its predictions would be called {twice!r}; rename a target or class, or leave "
            "out --std, --interval or --proba"
        )


def _told_classes(schema: Schema, model: Model) -> Sequence[Label]:
    """Return the classes whose probability is reported: all, or of one class against the rest that one."""
    return model.feature_map.target.classes if schema.positive is None else (schema.positive,)


def prediction_columns(outputs: Floats, model: Model, schema: Schema, *, with_scores: bool) -> "list[pa.Array]":
    """Return the winning class and optionally the scores, or the outputs themselves."""
    import pyarrow as pa

    if schema.class_kind is not None:
        labels = pa.array(model.feature_map.target.classes, arrow_class_type(schema.class_kind))
        scores = model.feature_map.target.class_scores(outputs)
        return [labels.take(pa.array(winners_of(scores))), *(_columns(scores.T) if with_scores else ())]
    signs = [] if schema.positive is None else [pa.array(np.where(outputs[:, 0] > 0, 1, -1).astype(np.int8))]
    return [*signs, *_columns(outputs.T)]


def uncertainty_columns(
    model: Model, extras: Extras, outputs: Floats, rows: tuple[Rows, Sequence[Integers]], file: str, numbers: Integers
) -> "list[pa.Array]":
    """Return deviations and bounds of each target or class, and probabilities, as far as they are asked for."""
    columns: list[Floats] = []
    if extras.std or extras.level is not None:
        deviations = _deviations(model, *rows, file, numbers)
        classes = [model.feature_map.target.class_deviations(each) for each in deviations]
        columns += _pairs(*classes) if extras.std else []
        if extras.level is not None:
            radius = model.radius(deviations[1], extras.level)
            columns += _pairs(outputs - radius, outputs + radius)
    if extras.probabilities and model.probabilities is not None:
        probabilities = model.probabilities.of(outputs).T
        columns += list(probabilities if model.feature_map.target.classes else probabilities[1:])
    return _columns(columns)


def _pairs(left: Floats, right: Floats) -> list[Floats]:
    """Return the columns of both by turns."""
    return [column for pair in zip(left.T, right.T, strict=True) for column in pair]


def _deviations(
    model: Model, rows: Rows, maps: Sequence[Integers], file: str, numbers: Integers
) -> tuple[Floats, Floats]:
    with np.errstate(over="ignore", invalid="ignore"):
        deviations = model.deviations(rows.numeric, rows.codes, maps)
    check_predictions(np.hstack(deviations), file, numbers)
    return deviations


def _columns(columns: Iterable[Floats]) -> "list[pa.Array]":
    import pyarrow as pa

    return [pa.array(column) for column in columns]


def mask_rows(answered: npt.NDArray[np.bool_], column: "pa.Array") -> "pa.Array":
    """Return the column with null for rows without a prediction."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pa.array(answered), column, pa.scalar(None, column.type))
