"""Classifiers and regressors over kernel models, whatever trains them."""

from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils._missing import is_pandas_na, is_scalar_nan
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from ridgestream.pipeline.base.array_checks import Floats, check_targets
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.estimators.base import KernelEstimator

if TYPE_CHECKING:
    from ridgestream.pipeline.estimators.pieces.pieces import Pieces
    from ridgestream.pipeline.estimators.tables import Table
    from ridgestream.pipeline.models.predictor import Model
    from ridgestream.stores.schema.schema import Feature

_NAMED = 10
"""Rows that are named at most."""


class KernelClassifier(ClassifierMixin, KernelEstimator):
    """A classifier: each class is learned against the rest, of two classes the second against the first."""

    def decision_function(self, X: Any) -> Any:
        """Return each class's score (rows, n_classes), of two classes that of the second, (rows,)."""
        return self._apply(X, self._scores)

    def predict(self, X: Any) -> Any:
        """Return the class of the largest score of each row, (rows,); O(n_basis) a row."""
        return self._apply(X, self._winners)

    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class, (rows, n_classes), from rows that were left out.

        It is calibrated by the score of the class, so the most probable class need not be the one that `predict` gives,
        which has the largest score. Raises InputError if the model could not be calibrated.
        """
        return self._apply(X, self._shares)

    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of `predict_proba`, (rows, n_classes)."""
        return np.log(self.predict_proba(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose class is predicted; rows may be anything that `fit` takes, but an iterator."""
        from sklearn.metrics import accuracy_score

        return self._score(accuracy_score, X, y, sample_weight)

    def _scores(self, table: "Table") -> npt.NDArray[np.floating]:
        outputs = self._outputs(table).astype(table.dtype, copy=False)
        return outputs[:, 0] if len(self.classes_) == 2 else outputs

    def _winners(self, table: "Table") -> npt.NDArray[Any]:
        scores = self._scores(table)
        places = np.argmax(scores, axis=1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
        return np.asarray(self.classes_[places])

    def _shares(self, table: "Table") -> npt.NDArray[np.floating]:
        probabilities = self.model_.probabilities
        if probabilities is None:
            raise InputError("the model has no probabilities: it could not be calibrated by the rows learned")
        return probabilities.of(self._outputs(table)).astype(table.dtype, copy=False)

    @classmethod
    def from_model(
        cls,
        model: "Model",
        *,
        classes: Any = None,
        features: "tuple[Feature, ...] | None" = None,
    ) -> Self:
        """Return a fitted estimator that predicts by a stored model.

        `classes` are those of the target, by default the model's own, or −1 and 1; `features` the columns in the order
        in which an array has them, by default numbers before categories. Raises InputError for a model of numbers.
        """
        estimator = cls().taking(model, features)
        own = model.feature_map.target.classes or (-1, 1)
        estimator.classes_ = np.asarray(own if classes is None else classes)
        if len(estimator.classes_) != len(own):
            raise InputError(f"the model has {len(own)} classes, {len(estimator.classes_)} are given")
        return estimator

    def _begin_targets(self, pieces: "Pieces", classes: Any) -> int:
        if classes is None:
            classes = np.concatenate([np.unique(_labels_of(y)) for y in pieces.targets()])
        self.classes_ = np.unique(classes)
        if len(self.classes_) < 2:
            raise InputError(f"Classifier needs two classes or more, y has one class: {self.classes_.tolist()[0]!r}")
        return 1

    def _read_targets(self, y: Any) -> Floats:
        labels = _labels_of(y)
        codes = np.minimum(np.searchsorted(self.classes_, labels), len(self.classes_) - 1)
        foreign = labels[self.classes_[codes] != labels]
        if len(foreign):
            known = ", ".join(map(repr, self.classes_.tolist()))
            raise InputError(f"y has the class {foreign.tolist()[0]!r}, which is none of {known}; name all in classes")
        return np.asarray(codes[:, np.newaxis], dtype=np.float64)

    def _labels(self) -> tuple[Any, ...]:
        return tuple(self.classes_.tolist())


class KernelRegressor(RegressorMixin, KernelEstimator):
    """A regressor of one target or several, which are standardized."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return f, (rows,) or (rows, n_targets), and with `return_std` its standard deviation; O(n_basis) a row.

        The deviation is that of f, not of a new observation, whose range `predict_interval` gives; O(n_basis²) a row.
        """
        means = self._apply(X, self._means)
        return (means, self._apply(X, self._deviations)) if return_std else means

    def predict_interval(self, X: Any, alpha: float = 0.1) -> Any:
        """Return the bounds between which a new observation lies with probability 1 − alpha, (rows, [n_targets,] 2).

        They come from rows that were left out. Raises InputError if the rows learned are too few for this alpha.
        """
        if not (isinstance(alpha, float | int | np.number) and 0 < alpha < 1):
            raise InputError(f"alpha is the share of values outside, a number between 0 and 1, it is {alpha!r}")
        return self._apply(X, partial(self._bounds, level=1 - alpha))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R², of several targets their mean; rows may be anything that `fit` takes, but an iterator."""
        from sklearn.metrics import r2_score

        return self._score(r2_score, X, y, sample_weight)

    def _means(self, table: "Table") -> npt.NDArray[np.floating]:
        return self._shaped(self._outputs(table).astype(table.dtype, copy=False))

    def _deviations(self, table: "Table") -> npt.NDArray[np.floating]:
        deviations, _ = self.model_.deviations(*self._rows(table))
        return self._shaped(deviations.astype(table.dtype, copy=False))

    def _bounds(self, table: "Table", level: float) -> npt.NDArray[np.floating]:
        outputs, model = self._outputs(table), self.model_
        radius = model.radius(model.deviations(*self._rows(table))[1], level)
        return self._shaped(np.stack([outputs - radius, outputs + radius], axis=-1).astype(table.dtype, copy=False))

    @classmethod
    def from_model(cls, model: "Model", *, features: "tuple[Feature, ...] | None" = None) -> Self:
        """Return a fitted estimator that predicts by a stored model.

        `features` are the columns in the order in which an array has them, by default numbers before categories.
        """
        return cls().taking(model, features)

    @property
    def _is_vector(self) -> bool:
        """Whether targets are returned as a vector, as they were given."""
        n_outputs = self._served.plain.feature_map.target.n_outputs
        return bool(getattr(self, "_y_dimensions", n_outputs) == 1)

    def _begin_targets(self, pieces: "Pieces", classes: Any) -> int:  # noqa: ARG002
        first = _numbers_of(next(pieces.targets()))
        self._y_dimensions = first.ndim
        return 1 if first.ndim == 1 else int(first.shape[1])

    def _read_targets(self, y: Any) -> Floats:
        numbers = _numbers_of(y)
        return check_targets(numbers, len(numbers), self._n_targets)

    def _labels(self) -> tuple[Any, ...]:
        return ()

    def _shaped(self, values: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        return values[:, 0] if self._is_vector else values

    def __sklearn_tags__(self) -> Any:
        """Return the tags: several targets are taken."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _labels_of(y: Any) -> npt.NDArray[Any]:
    labels = np.asarray(column_or_1d(y, warn=True))
    absent = np.flatnonzero(_is_absent(labels))
    if len(absent):
        more = f" and {len(absent) - _NAMED:,} more" if len(absent) > _NAMED else ""
        named = ", ".join(map(str, absent[:_NAMED]))
        raise InputError(f"y lacks labels in rows {named}{more}: leave these rows out, or name a class of their own")
    if labels.dtype == object and len({isinstance(label, str) for label in labels}) > 1:
        raise InputError("y has texts and numbers as labels: give all of them as one or the other")
    check_classification_targets(labels)
    return labels


def _is_absent(labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if labels.dtype != object:
        return np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(len(labels), np.bool_)
    absent = (label is None or is_scalar_nan(label) or is_pandas_na(label) for label in labels)
    return np.fromiter(absent, np.bool_, len(labels))


def _numbers_of(y: Any) -> Floats:
    given = np.asarray(y)
    if given.dtype.kind in "mM" or any(isinstance(value, date | timedelta) for value in np.ravel(given[:1])):
        raise InputError("y holds dates or times, and a regressor learns numbers: give a number, such as seconds")
    text = next((value for value in np.ravel(given[:1]) if isinstance(value, str)), None)
    if text is not None:
        raise InputError(
            f"y holds text, such as {str(text)!r}, and a regressor learns numbers: classes need a classifier"
        )
    return np.asarray(check_array(y, ensure_2d=False, dtype=np.float64, order="C", input_name="y"))
