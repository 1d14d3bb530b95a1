"""A model of a store, for Python: predictions of frames, its nights, their reports, and what it is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from ridgestream.jobs.api.export import Exportable
from ridgestream.jobs.api.frames import batches_of, like, to_arrow
from ridgestream.jobs.commands.predict import check_extras, model_with
from ridgestream.jobs.config.requests import Served, serve
from ridgestream.jobs.report.facts import night_facts
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.errors import InputError, Names, errors_renamed
from ridgestream.pipeline.base.policies import ERROR, IGNORE, Policies
from ridgestream.pipeline.base.reporter import RenamingReporter, warn_program
from ridgestream.pipeline.dataset.boolean_columns import with_boolean_fill
from ridgestream.pipeline.features.feature_map import UNSEEN_REMEDY
from ridgestream.pipeline.features.metric_summary import summarize_metric
from ridgestream.pipeline.features.one_vs_rest import Label
from ridgestream.pipeline.models.calibration import intervals_of, probabilities_of
from ridgestream.pipeline.models.learned_ranges import LearnedRanges
from ridgestream.pipeline.models.model_record import is_batch, model_of
from ridgestream.pipeline.models.predictor import Model
from ridgestream.pipeline.prediction.batch_predictor import BatchPredictor
from ridgestream.pipeline.prediction.prediction_columns import Extras
from ridgestream.stores.catalog.models import ModelRecord, Night, require_model
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.parquet.column_reader import DROP, IMPUTE
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

    from ridgestream.pipeline.estimators.kinds import KernelClassifier, KernelRegressor

ROWS = "the table"
"""What messages call a frame."""

_NAMED = 10
"""Nights that are named at most, the last ones."""


_NAMES: Names = {
    "--std": "std",
    "--interval": "interval",
    "--proba": "proba",
    "--scores": "scores",
    "set source.missing = ": "give missing=",
    UNSEEN_REMEDY: 'correct the rows, or give unseen_categories="ignore"',
    "write the file again with the type of the earlier ones": "give it the type that was learned",
}


@dataclass(frozen=True)
class StoredModel:
    """A model as it is served at a snapshot of its store; nothing is read before it is asked for."""

    name: str
    """Its name in the store."""
    snapshot: str
    """The snapshot of the store."""
    store: Store = field(repr=False)
    """The store."""
    night: int | None = None
    """The night whose model it is, whether or not that is the one served; None for the one that is served."""
    _loaded: dict[Extras, Model] = field(default_factory=dict, init=False, repr=False, compare=False)

    def at(self, night: int) -> "StoredModel":
        """Return the model as it was after a night, even if the guard held it back; `nights` lists them.

        Raises ModelError if there is no such night.
        """
        record = require_model(self.store.root(self.snapshot), self.name, with_arrays=False)
        numbers = [each.number for each in record.history]
        if night not in numbers:
            raise ModelError(
                f"the model {self.name!r} has no night {night}; its nights: {', '.join(map(str, numbers[-_NAMED:]))}"
            )
        return StoredModel(self.name, self.snapshot, self.store, night)

    @cached_property
    def _served(self) -> Served:
        return serve(self.store, self.name, self.snapshot if self.night is None else str(self.night))

    @property
    def record(self) -> ModelRecord:
        """The model's record, with its arrays."""
        return self._served.record

    @property
    def schema(self) -> Schema:
        """The store's columns: features, targets, classes."""
        return self._served.schema

    @property
    def model(self) -> Model:
        """The predictor: from raw columns to predictions in the user's units."""
        return self._with(Extras())

    @cached_property
    def _exportable(self) -> Exportable:
        return Exportable.of(self._served, std=True)

    @property
    def model_(self) -> Model:
        """The predictor with its uncertainty and probabilities, as the exports take it."""
        return self._exportable.model_

    @property
    def classes_(self) -> tuple[Label, ...]:
        """The classes as `predict` names them, in the order of their scores; empty for numbers."""
        return self._exportable.classes_

    @property
    def importance(self) -> dict[str, float]:
        """How much distances depend on each column, shares in descending order; empty without a learned metric."""
        summary = summarize_metric(self.model.feature_map)
        return {each["column"]: each["share"] for each in summary.get("importance", ())}

    @property
    def nights(self) -> "pa.Table":
        """The nights of the model up to this one, a row each, oldest first; `.to_pandas()` makes a frame of it."""
        return nights_table(self.record.history)

    def report(self, night: int | None = None) -> dict[str, Any]:
        """Return the report of a night, the last one if None, as its JSON has it."""
        return night_facts(self.store, self.name, self.night if night is None else night)

    def report_page(self, night: int | None = None) -> str:
        """Return the report of a night as one page of HTML."""
        from ridgestream.jobs.report.page.html_page import render_page

        return render_page(self.report(night))

    def predict(
        self,
        rows: Any,  # noqa: ANN401
        *,
        std: bool = False,
        interval: float | None = None,
        proba: bool = False,
        scores: bool = False,
        missing: str = "error",
        unseen_categories: str = "error",
    ) -> Any:  # noqa: ANN401
        """Return the predictions of rows, one for one, in the columns of the command `predict`.

        `rows` are a pandas or polars frame, an Arrow table, or a mapping of arrays; columns are found by name, and
        those that are no features are ignored. A frame of pandas, with its index, or of polars comes back as one, all
        else as an Arrow table. `std` adds standard deviations, `interval` the bounds between which this share of
        values lies, `proba` the probability and `scores` the score of each class. `missing` ("error", "drop", "impute")
        and `unseen_categories` ("error", "ignore") are as in a job file; a row that is dropped has null.

        Raises PartitionError naming column, row and value for what cannot be used, InputError for rows that are no
        table, and warns with an InputWarning if more rows are outside of the range learned than chance explains.
        """
        policies = _policies(missing, unseen_categories)
        with errors_renamed(_NAMES):
            extras = check_extras(Extras(scores, std, interval, proba), self.schema)
            return like(rows, self._predicted(to_arrow(rows), extras, policies))

    def _predicted(self, table: "pa.Table", extras: Extras, policies: Policies) -> "pa.Table":
        import pyarrow as pa

        ranges = self._ranges
        predictor = BatchPredictor(
            self._with(extras), self.schema, ROWS, extras=extras, policies=policies, ranges=ranges
        )
        schema = pa.schema(predictor.open(table.schema))
        done = [pa.record_batch(predictor.predict(b), schema=schema) for b in batches_of(table, predictor.columns)]
        predictor.summary.report_to(RenamingReporter(_NAMES, warn_program), events.PREDICT_ROWS_LEFT_OUT, ranges)
        return pa.Table.from_batches(done, schema)

    def estimator(self) -> "KernelClassifier | KernelRegressor":
        """Return the model as a fitted estimator of scikit-learn; an array has its columns in the order of the store.

        It has the error bars, intervals and probabilities that the model has, and the classes that `predict` gives. Its
        parameters are not those of the job, so a clone of it is an estimator by default.
        """
        from ridgestream.pipeline.estimators import online, sparse

        model = model_of(self.record, with_uncertainty=True)
        model = model.having(intervals=intervals_of(self.record), probabilities=probabilities_of(self.record))
        batch, features = is_batch(self.record), self.schema.features
        if self.schema.classifies:
            kind = sparse.SparseKernelClassifier if batch else online.OnlineLSSVMClassifier
            return kind.from_model(model, features=features)
        regressor = sparse.SparseKernelRegressor if batch else online.OnlineLSSVMRegressor
        return regressor.from_model(model, features=features)

    @cached_property
    def _ranges(self) -> LearnedRanges:
        return self._served.ranges()

    def _with(self, extras: Extras) -> Model:
        """Return the model with what these columns take; loaded once."""
        if extras not in self._loaded:
            model = model_with(self.record, extras)
            self._loaded[extras] = model.having(feature_map=with_boolean_fill(model.feature_map, self.schema))
        return self._loaded[extras]


def _policies(missing: str, unseen_categories: str) -> Policies:
    """Return the policies of a prediction; raises InputError for a word that is none."""
    given = {"missing": (missing, (ERROR, DROP, IMPUTE)), "unseen_categories": (unseen_categories, (ERROR, IGNORE))}
    for name, (word, words) in given.items():
        if word not in words:
            raise InputError(f"{name} is one of {', '.join(map(repr, words))}; {word!r} is none")
    return Policies(missing=missing, unseen_categories=unseen_categories)


_KINDS = {str: "string", int: "int64", float: "float64", bool: "bool"}
"""Arrow's name of a field's type."""


def nights_table(nights: tuple[Night, ...]) -> "pa.Table":
    """Return nights as a table: their plain fields, and the partitions learned."""
    import pyarrow as pa

    columns: dict[str, Any] = {"number": pa.array([night.number for night in nights], "int64")}
    finished = [datetime.fromisoformat(night.finished_at) for night in nights]
    columns["finished_at"] = pa.array(finished, pa.timestamp("s", "UTC"))
    for name, kind in _plain_fields().items():
        columns.setdefault(name, pa.array([getattr(night, name) for night in nights], kind))
    columns["partitions"] = pa.array([list(night.partitions) for night in nights], pa.list_(pa.string()))
    return pa.table(columns)


def _plain_fields() -> Mapping[str, str]:
    """Return Arrow's type of each field of a night that is a text, a number or a boolean, or may be None."""
    hints = get_type_hints(Night).items()
    kinds = {name: get_args(kind)[0] if isinstance(kind, UnionType) else kind for name, kind in hints}
    return {name: _KINDS[kind] for name, kind in kinds.items() if kind in _KINDS}
