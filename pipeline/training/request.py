"""Requests: the model that a job asks for, and the parameters that the model's record keeps."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, cast

from ridgestream.pipeline.base.policies import ERROR
from ridgestream.pipeline.batch.method import PlanTask
from ridgestream.pipeline.batch.registry import METHODS, section_of
from ridgestream.pipeline.batch.shared_settings import MethodSettings, own_settings, shared_settings
from ridgestream.pipeline.features.class_weights import ClassWeight
from ridgestream.pipeline.metric.settings import MetricSettings
from ridgestream.stores.files.paths import FileLocation

FULL_FEATURES = 256
"""With "auto", the metric is a full matrix for at most so many features, and diagonal for more."""


@dataclass(frozen=True)
class MetricRequest:
    """A metric to be learned at a model's first training."""

    name: str
    """diagonal, full, or auto."""
    options: MetricSettings
    """How it is learned."""

    def is_diagonal(self, n_features: int) -> bool:
        """Return whether the metric weighs each feature by itself."""
        return self.name == "diagonal" or (self.name == "auto" and n_features > FULL_FEATURES)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the record keeps."""
        return {"metric": self.name, "metric_options": asdict(self.options)}


class Request(Protocol):
    """The part of a request that every method has."""

    @property
    def name(self) -> str:
        """The model's name in the store."""

    @property
    def method(self) -> str:
        """The method's name, a key of TRAINERS."""

    @property
    def max_basis(self) -> int | None:
        """The largest dictionary; None for no limit."""

    @property
    def scaling_rows(self) -> int | None:
        """The first partitions with this many rows fix the standardization; None for all partitions."""

    @property
    def unseen_categories(self) -> str:
        """The policy for categories that the model has not seen."""

    @property
    def metric(self) -> MetricRequest | None:
        """The metric to learn; None for that of the standardized features."""

    @property
    def kernel(self) -> str:
        """rbf, polynomial or linear."""

    @property
    def kernel_grid(self) -> tuple[dict[str, float], ...]:
        """gamma, degree and coef0, as far as given, of every kernel to compare."""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the record keeps: a change of one makes it another model."""


@dataclass(frozen=True, kw_only=True)
class OnlineRequest:
    """A model of the online learner."""

    name: str
    """The model's name in the store."""
    method: str = "online"
    """The method's name."""
    kernel: str
    """rbf, polynomial or linear."""
    kernel_parameters: dict[str, float]
    """gamma, degree and coef0, as far as given."""
    regularization: float
    """λ per row."""
    max_basis: int | None
    """The largest dictionary; None for no limit."""
    novelty_threshold: float
    """TOL1."""
    usefulness_threshold: float
    """TOL2."""
    scaling_rows: int | None
    """The first partitions with this many rows fix the standardization; None for all partitions."""
    selection: str = "supervised"
    """Which rows enter the dictionary: a key of SELECTIONS."""
    dictionary: FileLocation | None = None
    """The rows of a fixed dictionary; None if it is selected or drawn."""
    random_seed: int | None = None
    """The seed with which a fixed dictionary is drawn; None if it is selected or given."""
    unseen_categories: str = ERROR
    """The policy for categories that the model has not seen; may change between trainings."""
    metric: MetricRequest | None = None
    """The metric to learn; None for that of the standardized features."""
    class_weight: ClassWeight | None = None
    """The weights of classes; None if all are 1."""

    @property
    def kernel_grid(self) -> tuple[dict[str, float], ...]:
        """The parameters of its one kernel."""
        return (self.kernel_parameters,)

    @property
    def first_categories(self) -> str:
        """The policy for a new model: a dictionary drawn from all rows needs indicators for all of their categories."""
        return ERROR if self.random_seed is not None else self.unseen_categories

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the record keeps: a change of one makes it another model."""
        return {
            "method": "online",
            "kernel": {"name": self.kernel, **self.kernel_parameters},
            "regularization": self.regularization,
            "max_basis": self.max_basis,
            "novelty_threshold": self.novelty_threshold,
            "usefulness_threshold": self.usefulness_threshold,
            "scaling_rows": self.scaling_rows,
            "selection": self.selection,
            "dictionary": "given" if self.dictionary else None,
            "random_seed": self.random_seed,
            **(self.metric.parameters() if self.metric else {}),
            **({"class_weight": self.class_weight} if self.class_weight else {}),
        }


@dataclass(frozen=True, kw_only=True)
class BatchRequest:
    """A model of a batch method."""

    name: str
    """The model's name in the store."""
    method: str
    """A key of METHODS."""
    kernel: str
    """rbf, polynomial or linear."""
    kernels: tuple[dict[str, float], ...]
    """gamma, degree and coef0, as far as given, of every kernel to compare."""
    settings: MethodSettings
    """The method's settings, of its settings class."""
    others: dict[str, MethodSettings] = field(default_factory=dict)
    """The settings of other methods that this one uses, by the names of their sections."""
    scaling_rows: int | None
    """The first partitions with this many rows fix the standardization; None for all partitions."""
    dictionary: FileLocation | None = None
    """The rows of a given initial dictionary; None without one."""
    unseen_categories: str = ERROR
    """The policy for categories that the model has not seen; may change between trainings."""
    given_basis: int = 0
    """The number of rows of a given initial dictionary, by the footers of its files; 0 without one."""
    metric: MetricRequest | None = None
    """The metric to learn; None for that of the standardized features."""
    class_weight: ClassWeight | None = None
    """The weights of classes; None if all are 1."""

    @property
    def kernel_grid(self) -> tuple[dict[str, float], ...]:
        """The parameters of every kernel to compare."""
        return self.kernels

    @property
    def max_basis(self) -> int | None:
        """The largest dictionary; None for no limit."""
        limit: int | None = self._shared("max_basis")
        return limit

    @property
    def folds(self) -> int:
        """The number of folds; 1 for a method without."""
        return int(getattr(self.settings, "folds", 1))

    @property
    def reselect(self) -> str:
        """Whether a night with new partitions selects a new dictionary: never, always, or on drift."""
        return str(self._shared("reselect"))

    @property
    def drift_margin(self) -> float:
        """By which share the error on new rows must exceed that on the rows selected from, to count as drift."""
        return float(self._shared("drift_margin"))

    @property
    def regularization(self) -> Any:  # noqa: ANN401
        """λ per row as the record keeps it: one number, or a list of several."""
        value = self._shared("regularization")
        return _one_or_all(list(value)) if isinstance(value, tuple) else value

    def plan_task(self, n_rows: int) -> PlanTask[Any]:
        """Return what memory and passes of a fit to this many rows depend on."""
        return PlanTask(
            settings=self.settings,
            others=self.others,
            n_rows=n_rows,
            n_kernels=len(self.kernels),
            given_basis=self.given_basis,
        )

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the record keeps: a change of one makes it another model.

        Keys of `[model]` that the method does not take are there with their defaults.
        """
        names = sorted({name for kernel in self.kernels for name in kernel})
        own = {section_of(self.method): self.settings, **self.others}
        sections = {name: _own_values(own[name]) for name in map(section_of, METHODS) if name in own}
        return {
            "method": self.method,
            "kernel": {"name": self.kernel, **{n: _one_or_all([k[n] for k in self.kernels]) for n in names}},
            "regularization": self.regularization,
            "max_basis": self.max_basis,
            "folds": self._shared("folds"),
            "random_seed": self._shared("random_seed"),
            "scaling_rows": self.scaling_rows,
            "dictionary": "given" if self.dictionary else None,
            **{name: values for name, values in sections.items() if values},
            **(self.metric.parameters() if self.metric else {}),
            **({"class_weight": self.class_weight} if self.class_weight else {}),
        }

    def _shared(self, name: str) -> Any:  # noqa: ANN401
        defaults = {setting.name: setting.default for setting in shared_settings()}
        return getattr(self.settings, name, defaults[name])


def _own_values(settings: MethodSettings) -> dict[str, Any]:
    return {setting.name: getattr(settings, setting.name) for setting in own_settings(type(settings))}


def _one_or_all(values: list[Any]) -> Any:  # noqa: ANN401
    return values[0] if len(set(values)) == 1 else values


def without_metric(request: Request) -> Request:
    """Return the request for the same model with the metric of the standardized features."""
    return cast("Request", replace(cast("Any", request), metric=None))
