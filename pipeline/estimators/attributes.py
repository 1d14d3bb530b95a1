"""What an estimator has learned, as attributes: dictionary, coefficients, metric, and how they were chosen."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers

if TYPE_CHECKING:
    from ridgestream.pipeline.models.predictor import ExpansionModel, Model
    from ridgestream.stores.schema.schema import Feature


class Learned:
    """The learned attributes, read from the served model and from the record of its training."""

    _served: Any
    _features: "tuple[Feature, ...]"

    @property
    def basis_vectors_(self) -> Floats:
        """The dictionary in the standardized features, (n_basis, n_features); of experts, cell after cell."""
        return np.concatenate([expansion.basis.vectors for expansion in self._expansions()])

    @property
    def coefficients_(self) -> Floats:
        """The coefficients of the dictionary, a bias last, (n_functions, n_outputs), in standardized targets."""
        return np.concatenate([expansion.coefficients for expansion in self._expansions()])

    @property
    def metric_(self) -> Floats | None:
        """R of the learned metric, (n_features, n_features), or its diagonal, (n_features,); None without one.

        It multiplies standardized rows from the right.
        """
        metric = self._model.feature_map.metric
        return metric.root if metric else None

    @property
    def feature_importances_(self) -> Floats:
        """The share of each column in the learned metric, summing to one; without a metric, equal shares."""
        from ridgestream.pipeline.features.metric_summary import column_shares

        shares = column_shares(self._model.feature_map)
        return np.array([shares.get(feature.name, 0.0) for feature in self._features])

    @property
    def basis_rows_(self) -> Integers:
        """The number of the row that each basis vector was, −1 for a vector that is no row, (n_basis,)."""
        return np.concatenate([record.arrays["basis_rows"] for record in self._records()])

    @property
    def cost_(self) -> float:
        """The regularized squared error Σ w(y − f)² + λn βᵀKβ of the learned rows, in squared standardized targets."""
        return sum(_cost_of(record) for record in self._records())

    @property
    def selection_(self) -> "npt.NDArray[Any]":
        """The models that a batch method compared, one a row: n_basis, regularization, value of the criterion, chosen.

        Of a method that compares none, and of the online learner, the rows of the dictionary. Structured, so that
        `pandas.DataFrame(estimator.selection_)` is a table.
        """
        arrays = next(self._records()).arrays
        if "path_value" not in arrays:
            return _as_table(row=self.basis_rows_)
        is_chosen = np.arange(len(arrays["path_value"])) == self._record.parameters["learner"]["chosen"]
        path = {name: arrays[f"path_{name}"] for name in ("n_basis", "regularization", "value")}
        return _as_table(**path, chosen=is_chosen)

    @property
    def _fitted(self) -> Any:
        """What is served; raises NotFittedError, which is an AttributeError, before there is a model."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, msg="this %(name)s is not fitted yet: call fit or partial_fit first")
        return self._served

    @property
    def _model(self) -> "Model":
        model: Model = self._fitted.plain
        return model

    def _expansions(self) -> "tuple[ExpansionModel, ...]":
        model: Any = self._model
        return tuple(getattr(model, "experts", (model,)))

    @property
    def _record(self) -> Any:
        if not hasattr(self._fitted, "course"):
            raise AttributeError("an estimator that was made of a stored model has no record of its training")
        return self._fitted.course.trained_record

    def _records(self) -> "Iterator[Any]":
        from ridgestream.pipeline.models.experts_record import is_local, served_experts_of
        from ridgestream.pipeline.models.model_record import of_cell

        if not is_local(self._record):
            yield self._record
            return
        state = served_experts_of(self._record)
        yield from (of_cell(self._record, state, cell) for cell in state.answering.tolist())


def _cost_of(record: Any) -> float:
    from ridgestream.pipeline.models.model_record import is_batch, is_refitted, state_of

    arrays = record.arrays
    if is_batch(record) or is_refitted(record):
        square, products = arrays["refit_target_square"], arrays["refit_rhs"]
    else:
        state = state_of(record)
        square, products = state.target_square, state.normal_rhs
    return float(np.trace(square) - np.sum(products * arrays["coefficients"]))


def _as_table(**columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return columns of equal length as a structured array."""
    first = next(iter(columns.values()))
    table: npt.NDArray[Any] = np.empty(len(first), [(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        table[name] = column
    return table
