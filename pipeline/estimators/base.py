"""What the estimators share: parameters, rows in, a training of the pipeline, and predictions of its served model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from ridgestream.pipeline.base.array_checks import Floats, check_weights
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.estimators.attributes import Learned

if TYPE_CHECKING:
    from ridgestream.pipeline.estimators.course import Course, Limits
    from ridgestream.pipeline.estimators.tables import Table
    from ridgestream.pipeline.models.predictor import Model
    from ridgestream.pipeline.training.request import Request
    from ridgestream.stores.schema.row_batch import Rows
    from ridgestream.stores.schema.schema import Feature, Schema

_WEIGHT = "sample_weight"
_LARGEST_SEED = 2**31 - 1


class KernelEstimator(Learned, BaseEstimator):
    """An estimator over a training of the pipeline; its fitted state is a served model, `model_`."""

    def _request(self, seed: int) -> "Request":
        raise NotImplementedError

    def _read_targets(self, y: Any, classes: Any, *, resets: bool) -> Floats:
        """Return the targets (rows, n_targets) as a store keeps them; `resets` where they are the first ones."""
        raise NotImplementedError

    def _labels(self) -> tuple[Any, ...]:
        """Return the classes, which a store keeps as codes; none for numbers."""
        raise NotImplementedError

    def _fit(self, X: Any, y: Any, sample_weight: Any, *, continues: bool = False, classes: Any = None) -> Self:
        """Learn rows after those before, or begin with these."""
        from ridgestream.pipeline.estimators.array_segments import ArrayReader, ArraySegment
        from ridgestream.pipeline.estimators.course import Course, Served
        from ridgestream.pipeline.estimators.tables import read_table

        before = self._course if continues else None
        known = self._features if before else None
        request = self._request(self._seed(before))
        _require(self, y)
        table = read_table(self, X, known, missing=self.missing == "impute")
        targets = self._read_targets(y, classes, resets=before is None)
        check_consistent_length(table.numeric, targets)
        weights = _weights_of(sample_weight, table)
        if before is None:
            self._features, self._n_targets = table.features, targets.shape[1]
            before = Course.of(self._schema(weighted=weights is not None))
        rows = _rows_of(table, targets, weights)
        schema = before.schema
        reader = ArrayReader(_weighted_as(schema, rows), table.categories, self._labels())
        segment = ArraySegment.of(reader, schema)
        limits = self._limits()
        course = before.learned(segment, request, limits, refits=self._refits(continues=continues))
        self._served = Served(course.forgetting(), limits)
        return self

    def _refits(self, *, continues: bool) -> bool | str:
        """Return whether the coefficients are fitted once more: not where earlier rows are gone."""
        return False if continues else getattr(self, "refit", False)

    def _schema(self, *, weighted: bool) -> "Schema":
        from ridgestream.stores.schema.schema import DOUBLE, Schema

        names = {feature.name for feature in self._features}
        own = [_free_name(name, names) for name in ("y", _WEIGHT)]
        several = tuple(f"{own[0]}{number}" for number in range(self._n_targets))
        labels = self._labels()
        return Schema(
            target=own[0] if self._n_targets == 1 else several,
            positive=None,
            features=self._features,
            weight=own[1] if weighted else None,
            classes=labels or None,
            class_kind="text" if labels else None,
            precision=DOUBLE,
        )

    def _seed(self, before: "Course | None") -> int:
        if before is None:
            given = self.random_state
            is_number = isinstance(given, int | np.integer)
            self._random_seed = int(given) if is_number else int(check_random_state(given).randint(_LARGEST_SEED))
        return self._random_seed

    def _limits(self) -> "Limits":
        from ridgestream.pipeline.estimators.course import Limits
        from ridgestream.pipeline.estimators.notices import Notices
        from ridgestream.stores.segments.available_memory import available_bytes

        return Limits(available_bytes() if self.memory_limit is None else int(self.memory_limit), Notices())

    @property
    def model_(self) -> "Model":
        """The served model, calibrated; made when it is first asked for after rows were learned."""
        check_is_fitted(self)
        model: Model = self._served.calibrated
        return model

    @property
    def _course(self) -> "Course | None":
        """What was learned; None before the first rows, and by a model that was trained elsewhere."""
        return getattr(getattr(self, "_served", None), "course", None)

    def taking(self, model: "Model", features: "Sequence[Feature] | None" = None) -> Self:
        """Return the estimator, fitted by a stored model, with its columns in the order in which an array has them."""
        from ridgestream.pipeline.estimators.course import Given

        self._served, self._features = Given(model), tuple(features or _features_of(model))
        self.n_features_in_ = len(self._features)
        self.feature_names_in_ = np.array([feature.name for feature in self._features], dtype=object)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether rows were learned, or a model was taken over."""
        return hasattr(self, "_served")

    def _encoded(self, X: Any) -> "tuple[Table, tuple[Any, Any, Any]]":
        """Return rows to be predicted, and what `Model.predict` takes of them."""
        from ridgestream.pipeline.estimators.tables import read_table

        check_is_fitted(self)
        model = self._served.plain
        table = read_table(self, X, self._features, missing=self.missing == "impute")
        if self.unseen_categories == "error":
            model.feature_map.check_categories(
                table.categories, 'correct the rows, or fit with unseen_categories="ignore" or "extend"'
            )
        return table, (table.numeric, table.codes, model.feature_map.code_maps(table.categories))

    def _outputs(self, X: Any) -> "tuple[npt.NDArray[np.floating], Table]":
        """Return f of rows in the user's units (rows, n_outputs), in their own precision."""
        table, rows = self._encoded(X)
        return finite(self._served.plain.predict(*rows)).astype(table.dtype, copy=False), table


def _require(estimator: Any, y: Any) -> None:
    if y is None:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target y is None."
        )


def _free_name(name: str, taken: set[str]) -> str:
    return name if name not in taken else _free_name(f"{name}_", taken)


def _weights_of(sample_weight: Any, table: "Table") -> Floats | None:
    if sample_weight is None:
        return None
    weights = _check_sample_weight(sample_weight, table.numeric, dtype=np.float64)
    return check_weights(weights, len(table.numeric))


def _rows_of(table: "Table", targets: Floats, weights: Floats | None) -> "Rows":
    from ridgestream.stores.schema.row_batch import Rows

    return Rows(table.numeric, table.codes, targets, weights)


def _weighted_as(schema: "Schema", rows: "Rows") -> "Rows":
    """Return the rows with weights if those before had some; raises InputError if only these have some."""
    from ridgestream.stores.schema.row_batch import Rows

    if (schema.weight is None) == (rows.weights is None):
        return rows
    if schema.weight is None:
        raise InputError("the rows learned had no sample_weight: begin with weights, ones if need be, or give none")
    return Rows(rows.numeric, rows.codes, rows.targets, np.ones(len(rows)))


def finite(outputs: Floats) -> Floats:
    """Return predictions; raises InputError for a row whose prediction is none."""
    if not np.isfinite(outputs).all():
        row = int(np.argmin(np.isfinite(outputs).all(axis=1)))
        raise InputError(f"row {row} lies so far from the rows learned that its prediction leaves float64; correct it")
    return outputs


def _features_of(model: "Model") -> "tuple[Feature, ...]":
    """Return the columns that a model takes, numbers before categories."""
    from ridgestream.stores.schema.column_types import CATEGORICAL, NUMERIC, TIMESTAMP
    from ridgestream.stores.schema.schema import Feature

    columns = model.feature_map.numeric
    numbers = [Feature(column.name, TIMESTAMP if column.cycles else NUMERIC) for column in columns]
    return (*numbers, *(Feature(column.name, CATEGORICAL) for column in model.feature_map.categorical))
