"""The sections of a job file other than `[model]`: where rows and object stores are."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from ridgestream.jobs.config.section import Level, Names, Positive, Section, Text
from ridgestream.pipeline.calibration.intervals import COVERAGE_LEVEL
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.files.object_storage import StorageSettings
from ridgestream.stores.parquet.lags import LARGEST_LAG
from ridgestream.stores.requests.time_limit import REQUEST_SECONDS
from ridgestream.stores.schema.class_labels import Label

LagRows = Annotated[tuple[Annotated[int, Field(ge=1, le=LARGEST_LAG)], ...], Field(min_length=1)]
"""How many rows before, each once."""


class SourceSection(Section):
    """Where rows come from, and which column is what."""

    path: Text
    """Folder of Parquet partitions, or one file; a path, or a URL of an object store."""
    target: Text | Names
    """The column to predict, or several to regress on."""
    positive: Label | None = None
    """The class that counts as +1 against all others as −1; without it or classes, the target is a number."""
    classes: Literal["all"] | Annotated[tuple[Label, ...], Field(min_length=1)] | None = None
    """The classes, each learned against the rest: "all" of the first training, or those listed."""
    features: tuple[str, ...] = ()
    """The feature columns; every other column if not given."""
    ignore: tuple[str, ...] = ()
    """Columns that are not features."""
    categorical: tuple[str, ...] = ()
    """Features whose numbers are names; text always is."""
    weight: str | None = None
    """The column of row weights."""
    class_weight: Literal["balanced"] | Annotated[dict[str, Positive], Field(min_length=1)] | None = None
    """The weight of each class in learning: "balanced" by the rows that fix the standardization, or a table by name."""
    ordered: bool | None = None
    """Whether rows are ordered in time, so that the last value is a trivial model; if not given, with time stamps."""
    on_changed: Literal["error", "ignore", "rebuild"] = "error"
    """What to do with a partition whose values have changed since it was ingested."""
    on_bad: Literal["error", "quarantine"] = "error"
    """What to do with a new partition that cannot be used."""
    lags: Annotated[dict[str, LagRows], Field(min_length=1)] | None = None
    """Columns of earlier rows: load = [1, 24] gives load_lag1 and load_lag24; rows without are left out."""
    lag_key: Text | None = None
    """The column whose values have a series each, such as a station; without it all rows are one series."""
    next: Text | Annotated[dict[str, Text], Field(min_length=1)] | None = None
    """Of transitions, the columns after the step: a pattern of all, such as "next_*" of features without "next_", or a
    table of each feature's. The target is the reward."""
    done: Text | None = None
    """Of transitions, the column that is 1 (true) where an episode ended with the step, else 0: columns after such a
    step are not looked at. Without it, no episode ends."""
    missing: Literal["error", "drop", "impute"] = "error"
    """What to do with missing values, null and NaN; may change between runs."""
    unseen_categories: Literal["error", "ignore", "extend"] = "error"
    """What to do with categories that the model has not seen; may change between runs."""
    indicators: Literal["plain", "standardized"] | None = None
    """Indicators of categories: 0 and 1 (plain, that of new models), or standardized like numbers."""
    scaling: Literal["columns", "common"] | None = None
    """Numbers and booleans: each standardized by itself (columns, that of new models), or all by one common scale."""
    timestamps: Literal["calendar", "elapsed", "both"] | None = None
    """Time stamps: circles of hour, weekday and day of the year (calendar, that of new models), the time elapsed, or
    both."""
    columns: dict[str, Literal["plain", "standardized", "common", "raw", "calendar", "elapsed", "both"]] | None = None
    """Columns with a rule of their own, by name: a number "standardized", "common" or "raw", left as it is; categories
    "plain" or "standardized"; a time stamp "calendar", "elapsed" or "both"."""

    precision: Literal["auto", "float64"] = "auto"
    """How numbers are stored: rounded to float32 if that is exact enough in the first rows, or as they are."""

    @field_validator("classes")
    @classmethod
    def _check_classes(cls, value: str | tuple[Label, ...] | None) -> str | tuple[Label, ...] | None:
        if isinstance(value, tuple):
            if len({"number" if type(label) in (int, float) else type(label) for label in value}) > 1:
                raise ValueError("classes are all text, all numbers or all booleans")
            if len(set(value)) < len(value):
                raise ValueError("a class is listed twice")
        return value

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        if self.positive is not None and self.classes is not None:
            raise ValueError("positive learns one class against the rest, classes learns each: give one of the two")
        if self.class_weight is not None and self.positive is None and self.classes is None:
            raise ValueError("class_weight weighs classes, and the target is a number: give positive or classes")
        if len(self.targets) > 1 and (self.positive is not None or self.classes is not None):
            raise ValueError("with positive or classes there is one target; several targets are numbers to regress on")
        return self

    @model_validator(mode="after")
    def _check_lags(self) -> Self:
        if self.lag_key is not None and self.lags is None:
            raise ValueError("lag_key says whose earlier rows lags are, and there are no lags: give lags")
        if self.lags is not None and self.missing == "impute":
            raise ValueError(
                'rows without their lags are left out, not imputed: missing is "error" or "drop" with lags'
            )
        return self

    @model_validator(mode="after")
    def _check_transitions(self) -> Self:
        if self.next is None:
            if self.done is not None:
                raise ValueError("done says where episodes end: give next, the columns after a step, too")
            return self
        if isinstance(self.next, str) and self.next.count("*") != 1:
            raise ValueError('next is a pattern with one "*" for the name of a feature, or a table by feature')
        if self.positive is not None or self.classes is not None:
            raise ValueError("the target of transitions is the reward, a number: leave out positive and classes")
        if self.lags is not None:
            raise ValueError("transitions have no lags: make them columns before and after the step")
        return self

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns to predict."""
        return (self.target,) if isinstance(self.target, str) else self.target


class EvaluateSection(Section):
    """Held-out rows."""

    path: Text
    """Folder of Parquet partitions with the target, or one file; a path, or a URL of an object store."""
    interval: Level = COVERAGE_LEVEL
    """The level of the prediction intervals whose coverage and width are reported, above 0 and below 1."""
    values: Text | None = None
    """With method lstd, the column of true values; without it, held-out transitions are compared with r + γV(x′)."""


class DriftSection(Section):
    """Which columns are watched."""

    exempt: tuple[str, ...] = ()
    """Columns that may drift without an alarm, such as time stamps."""


class PredictSection(Section):
    """Rows to predict."""

    path: Text | None = None
    """Folder of Parquet partitions, or one file; INPUT of the command goes before it."""
    output: Text | None = None
    """Folder for the predictions, one file a partition; OUTPUT of the command goes before it."""
    keep: tuple[str, ...] = ()
    """Columns of the input that the output repeats."""
    interval: Level | None = None
    """The level of intervals to be written, above 0 and below 1; --interval of the command goes before it."""
    proba: bool = False
    """Whether the calibrated probability of each class is written, as by --proba."""


class StorageSection(Section):
    """Object stores: endpoint, region and account, for the store, partitions and predictions alike.

    Credentials are no part of it: each process takes them from its environment.
    """

    endpoint_url: Text | None = None
    """The URL of an S3-protocol server; AWS_ENDPOINT_URL if not given, or else Amazon's."""
    region: Text | None = None
    """The region of S3; AWS_REGION if not given, or that of the profile."""
    anonymous: bool = False
    """Whether requests carry no credentials, for public buckets."""
    account: Text | None = None
    """The account of Azure; AZURE_STORAGE_ACCOUNT_NAME if not given."""
    request_seconds: Positive = REQUEST_SECONDS
    """How long a request to a store in a bucket may take; it is sent three times, and then reported (exit code 4)."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_secrets(cls, keys: object) -> object:
        """Refuse credentials by name, before a message repeats a value."""
        if isinstance(keys, dict):
            named = [key for key in keys if re.search("key|secret|token|password|credential", str(key).lower())]
            if named:
                raise ValueError(
                    f"{', '.join(named)} would be a secret in a job file; each process takes its credentials from its "
                    "environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, AZURE_*"
                )
        return keys

    @model_validator(mode="after")
    def _check_endpoint(self) -> Self:
        """Check a URL of the file; that of the environment is checked where it is used, if it is."""
        try:
            if self.endpoint_url is not None:
                StorageSettings(self.endpoint_url).endpoint  # noqa: B018
        except StoreError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def settings(self) -> StorageSettings:
        """What the stores take of it."""
        return StorageSettings(self.endpoint_url, self.region, self.anonymous, self.account, self.request_seconds)
