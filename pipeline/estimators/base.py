"""What the estimators share: parameters, rows in, a training of the pipeline, and predictions of its served model."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
)

from ridgestream.pipeline.base.array_checks import Floats, check_weights
from ridgestream.pipeline.base.errors import InputError, errors_renamed
from ridgestream.pipeline.estimators.attributes import Learned
from ridgestream.pipeline.estimators.callbacks import CallbackSupport, fit_task, heard_by_callbacks, with_callbacks
from ridgestream.pipeline.estimators.notices import NAMES, warn_of_range, warn_of_times

if TYPE_CHECKING:
    from ridgestream.pipeline.estimators.course import Course, Limits
    from ridgestream.pipeline.estimators.pieces.pieces import Piece, Pieces
    from ridgestream.pipeline.estimators.tables import Table
    from ridgestream.pipeline.models.predictor import Model
    from ridgestream.pipeline.training.request import Request
    from ridgestream.stores.schema.schema import Feature, Schema

_WEIGHT = "sample_weight"
_LARGEST_SEED = 2**31 - 1

_BLOCK_SIZES = 2, 3
"""The lengths of a block of an iterator, without and with weights."""


class KernelEstimator(Learned, CallbackSupport, BaseEstimator):
    """An estimator over a training of the pipeline; its fitted state is a served model, `model_`."""

    _learns_once: ClassVar[bool] = False
    """Whether rows are learned one after another, so that an iterator of blocks will do."""

    def _request(self, seed: int) -> "Request":
        raise NotImplementedError

    def _begin_targets(self, pieces: "Pieces", classes: Any) -> int:
        """Learn of the targets of a first training what reading them needs, and return their number."""
        raise NotImplementedError

    def _read_targets(self, y: Any) -> Floats:
        """Return the targets (rows, n_targets) as a store keeps them."""
        raise NotImplementedError

    def _labels(self) -> tuple[Any, ...]:
        """Return the classes, which a store keeps as codes; none for numbers."""
        raise NotImplementedError

    @with_callbacks
    def _fit(self, X: Any, y: Any, sample_weight: Any, *, continues: bool = False, classes: Any = None) -> Self:
        """Learn rows after those before, or begin with these."""
        with errors_renamed(NAMES), fit_task(self, X, y, sample_weight):
            return self._learn(X, y, sample_weight, continues=continues, classes=classes)

    def _learn(self, X: Any, y: Any, sample_weight: Any, *, continues: bool, classes: Any) -> Self:
        from ridgestream.pipeline.estimators.array_segments import ArraySegment
        from ridgestream.pipeline.estimators.course import Course, Served
        from ridgestream.pipeline.estimators.pieces.piece_reader import PieceReader
        from ridgestream.pipeline.estimators.pieces.pieces import pieces_of

        if isinstance(X, Iterator):
            return self._fit_blocks(X, classes)
        before = self._course_to_continue() if continues else None
        request, limits = self._request(self._seed(before)), self._limits()
        _require(self, y)
        known = self._features if before else None
        pieces = pieces_of(X, y, sample_weight, _names_of(known) if known else None)
        reader = PieceReader(pieces, self._table, known)
        self._features = reader.table(0).features
        if before is None:
            warn_of_times(self._features, self.timestamps)
            self._n_targets = self._begin_targets(pieces, classes)
            before = Course.of(self._schema(weighted=sample_weight is not None))
        reader = reader.with_targets(partial(self._targets_of, before.schema), self._labels())
        segment = ArraySegment.of(reader, before.schema)
        if known:
            self._check_categories(segment.facts().categories)
        heard = replace(limits, report=heard_by_callbacks(self, limits.report))
        course = before.learned(segment, request, heard, refits=self._refits(continues=continues))
        self._served = Served(course.forgetting(), limits)
        return self

    def _fit_blocks(self, blocks: Iterator[tuple[Any, ...]], classes: Any) -> Self:
        """Learn blocks (X, y) or (X, y, sample_weight) as they come, each as by `partial_fit`."""
        if not self._learns_once:
            raise InputError(
                "an iterator of blocks can be read once, and a batch method reads rows several times: take an online "
                "estimator, or give a dask or Zarr array, a dask frame or a pyarrow dataset"
            )
        self.__dict__.pop("_served", None)
        for block in blocks:
            if not isinstance(block, tuple) or len(block) not in _BLOCK_SIZES:
                raise InputError(f"a block must be (X, y) or (X, y, sample_weight), it is {type(block).__name__}")
            X, y, *weights = block
            self._learn(X, y, weights[0] if weights else None, continues=True, classes=classes)
        if not hasattr(self, "_served"):
            raise InputError("the iterator has no block: there are no rows to learn")
        return self

    def _table(self, X: Any, known: "Sequence[Feature] | None") -> "Table":
        """Return the features of rows in memory; `known` are their columns, None for the first rows."""
        from ridgestream.pipeline.estimators.tables import in_order, read_table

        if known is not None and getattr(self, "_finds_columns", False):
            X = in_order(X, known)
        return read_table(self, X, known, missing=self.missing == "impute")

    def _targets_of(self, schema: "Schema", piece: "Piece", table: "Table") -> tuple[Floats, Floats | None]:
        """Return targets and weights of a piece; weights of one where others have some."""
        check_consistent_length(table.numeric, piece.y)
        targets, weights = self._read_targets(piece.y), _weights_of(piece.weights, table)
        if schema.weight is None and weights is not None:
            raise InputError("the rows learned had no sample_weight: begin with weights, ones if need be, or give none")
        return targets, np.ones(len(targets)) if weights is None and schema.weight else weights

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
        from ridgestream.pipeline.base.reporter import RenamingReporter, warn_of_doubt
        from ridgestream.pipeline.estimators.course import Limits
        from ridgestream.stores.segments.available_memory import available_bytes

        return Limits(
            available_bytes() if self.memory_limit is None else int(self.memory_limit),
            RenamingReporter(NAMES, warn_of_doubt),
        )

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

    def _course_to_continue(self) -> "Course | None":
        """Return what was learned; raises InputError for a model that was trained elsewhere."""
        if hasattr(self, "_served") and self._course is None:
            raise InputError(
                "this estimator was made of a stored model, and what continues its training is in its store alone: "
                "`ridgestream.run` learns further rows there, `fit` begins a new model"
            )
        return self._course

    def taking(self, model: "Model", features: "Sequence[Feature] | None" = None) -> Self:
        """Return the estimator, fitted by a stored model, with its columns in the order in which an array has them."""
        from ridgestream.pipeline.estimators.course import Given

        self._served, self._features = Given(model), tuple(features or _features_of(model))
        self._finds_columns = features is None
        self.n_features_in_ = len(self._features)
        self.feature_names_in_ = np.array([feature.name for feature in self._features], dtype=object)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether rows were learned, or a model was taken over."""
        return hasattr(self, "_served")

    def _apply(self, X: Any, function: "Callable[[Table], Any]") -> Any:
        """Return `function` of rows: of those in pieces, piece by piece, and of dask arrays and frames lazily."""
        from ridgestream.pipeline.estimators.pieces.pieces import apply_to_pieces, is_in_pieces

        check_is_fitted(self)
        if is_in_pieces(X):
            self._check_columns(X)
            apply = partial(self._apply, function=function)
            return apply_to_pieces(X, apply, function(self._example(X)), _names_of(self._features))
        return function(self._table(X, self._features))

    def _check_columns(self, X: Any) -> None:
        """Raise ValueError, as for rows in memory, where an array or a frame in pieces has other columns."""
        if hasattr(X, "chunks"):
            _check_n_features(self, X, reset=False)
        elif hasattr(X, "to_delayed") and not getattr(self, "_finds_columns", False):
            _check_feature_names(self, X._meta, reset=False)  # noqa: SLF001 (the columns of a dask frame, as pandas has them)

    def _score(self, metric: "Callable[..., float]", X: Any, y: Any, sample_weight: Any) -> float:
        """Return the metric of all rows, predicted piece by piece; their targets and predictions are in memory."""
        from ridgestream.pipeline.estimators.pieces.pieces import pieces_of

        check_is_fitted(self)
        pieces = list(map(self._judged, pieces_of(X, y, sample_weight, _names_of(self._features))))
        truth, predictions, weights = zip(*pieces, strict=True)
        together = None if sample_weight is None else np.concatenate(weights)
        return float(metric(np.concatenate(truth), np.concatenate(predictions), sample_weight=together))

    def _judged(self, piece: "Piece") -> tuple[Any, Any, Any]:
        check_consistent_length(piece.X, piece.y, piece.weights)
        return np.asarray(piece.y), self.predict(piece.X), piece.weights

    def _example(self, X: Any) -> "Table":
        """Return a row without values, in the precision of some rows."""
        from ridgestream.pipeline.estimators.tables import Table

        feature_map = self._served.plain.feature_map
        is_single = getattr(X, "dtype", None) == np.float32
        dtype: np.dtype[np.floating] = np.dtype(np.float32) if is_single else np.dtype(np.float64)
        codes = np.full((1, len(feature_map.categorical)), -1, np.int32)
        tables = ((),) * len(feature_map.categorical)
        return Table(self._features, np.zeros((1, len(feature_map.numeric)), dtype), codes, tables, dtype)

    def _rows(self, table: "Table") -> tuple[Any, Any, Any]:
        """Return rows as `Model.predict` takes them."""
        self._check_categories(table.categories)
        feature_map = self._served.plain.feature_map
        return table.numeric, table.codes, feature_map.code_maps(table.categories)

    def _check_categories(self, tables: "Sequence[Sequence[str]]") -> None:
        """Raise InputError for categories that the model does not know, unless it may ignore them."""
        if self.unseen_categories == "error":
            self._served.plain.feature_map.check_categories(
                tables, 'correct the rows, or fit with unseen_categories="ignore" or "extend"'
            )

    def _outputs(self, table: "Table") -> Floats:
        """Return f of rows in the user's units, (rows, n_outputs); raises InputError where it is no number."""
        outputs: Floats = self._served.plain.predict(*self._rows(table))
        self._warn_of_range(table)
        if not np.isfinite(outputs).all():
            row = int(np.argmin(np.isfinite(outputs).all(axis=1)))
            raise InputError(f"row {row} lies so far from the rows learned that its prediction leaves float64")
        return outputs

    def _warn_of_range(self, table: "Table") -> None:
        """Warn of rows outside of the range learned, where they are more than chance explains."""
        if self._course is not None:
            warn_of_range(self._course.ranges, table.numeric)


def _require(estimator: Any, y: Any) -> None:
    if y is None:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target y is None."
        )


def _names_of(features: "Sequence[Feature]") -> list[str]:
    return [feature.name for feature in features]


def _free_name(name: str, taken: set[str]) -> str:
    return name if name not in taken else _free_name(f"{name}_", taken)


def _weights_of(sample_weight: Any, table: "Table") -> Floats | None:
    if sample_weight is None:
        return None
    weights = _check_sample_weight(sample_weight, table.numeric, dtype=np.float64)
    return check_weights(weights, len(table.numeric))


def _features_of(model: "Model") -> "tuple[Feature, ...]":
    """Return the columns that a model takes, numbers before categories."""
    from ridgestream.stores.schema.column_types import CATEGORICAL, NUMERIC, TIMESTAMP
    from ridgestream.stores.schema.schema import Feature

    columns = model.feature_map.numeric
    numbers = [Feature(column.name, TIMESTAMP if column.cycles else NUMERIC) for column in columns]
    return (*numbers, *(Feature(column.name, CATEGORICAL) for column in model.feature_map.categorical))
