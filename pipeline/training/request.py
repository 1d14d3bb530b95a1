"""Requests: the model that a job asks for, and the parameters that the model's record keeps."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, cast

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.policies import ERROR
from ridgestream.pipeline.batch.method import PlanTask
from ridgestream.pipeline.batch.registry import METHODS, section_of
from ridgestream.pipeline.batch.shared_settings import (
    MethodSettings,
    SharedRegularizations,
    own_settings,
    shared_settings,
)
from ridgestream.pipeline.features.class_weights import ClassWeight
from ridgestream.pipeline.metric.settings import AUTO, MetricRequest, MetricSettings
from ridgestream.pipeline.online.settings import CELL_THRESHOLDS
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.files.paths import FileLocation
from ridgestream.stores.schema.column_rules import OF_NEW_MODELS, SOURCE, ColumnRules, rules_of

GAMMA, REGULARIZATION, MAX_BASIS, EXPERTS = "kernel.gamma", "regularization", "max_basis", "experts"
"""The settings that a pilot can choose, by their keys in `[model]`."""

THRESHOLDS = frozenset(CELL_THRESHOLDS)
"""Those that follow from the number of cells: no row is read for them."""

LARGEST_CHOSEN = 1_000
"""The largest dictionary that a pilot chooses."""

EXPERT_BASIS = 200
"""The largest dictionary of a cell where max_basis is "auto"."""

CHOSEN_FACTORS = (0.1, 1.0, 10.0)
"""A batch method that compares several λ compares these multiples of the pilot's."""

CHOSEN = "chosen"
"""The parameter of a record that names the settings which its pilot chose."""


@dataclass(frozen=True)
class Choice:
    """The settings that the pilot of a new model chooses."""

    gamma: float | None
    """The kernel's γ; None for a kernel without, and where it is part of the metric."""
    regularization: float
    """λ per row."""
    max_basis: int
    """The largest dictionary."""
    experts: int = 1
    """The number of cells that have a learner each."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """TOL1 and TOL2 by their names; those of the request where they are missing."""
    centres: Floats | None = field(default=None, compare=False)
    """The centres of cells that were made for the choice, (n_cells, n_features), measured by the pilot's metric."""
    trials: Floats | None = field(default=None, compare=False)
    """The numbers of cells that were compared, a row each with the values of TRIAL; None where the number is given."""


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
    def rules(self) -> ColumnRules:
        """What is said of how columns become features."""

    @property
    def dictionary(self) -> FileLocation | None:
        """The rows of a given dictionary; None without one."""

    @property
    def chooses(self) -> frozenset[str]:
        """The settings that the pilot of a new model chooses; until then they have the values that bound the plan."""

    @property
    def pilot(self) -> MetricSettings | None:
        """How the pilot of a new model goes; None where it has nothing to choose and nothing to learn."""

    @property
    def pilot_options(self) -> MetricSettings:
        """How a pilot goes that learns no metric."""

    @property
    def kernel(self) -> str:
        """rbf, polynomial or linear."""

    @property
    def kernel_grid(self) -> tuple[dict[str, float], ...]:
        """gamma, degree and coef0, as far as given, of every kernel to compare."""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the record keeps: a change of one makes it another model."""

    def with_choice(self, choice: Choice) -> Self:
        """Return the request with the settings that a pilot chose."""

    def adopting(self, parameters: dict[str, Any]) -> Self:
        """Return the request with the settings of an existing model where this one leaves the choice to a pilot."""


@dataclass(frozen=True, kw_only=True)
class _Piloted:
    """What requests for the models of all methods have."""

    metric: MetricRequest | None = None
    """The metric to learn; None for that of the standardized features."""
    chooses: frozenset[str] = frozenset()
    """The settings that the pilot of a new model chooses; until then they have the values that bound the plan."""
    chosen: frozenset[str] = frozenset()
    """The settings that the model's pilot chose."""
    pilot_options: MetricSettings = field(default_factory=MetricSettings)
    """How a pilot goes that learns no metric."""
    class_weight: ClassWeight | None = None
    """The weights of classes; None if all are 1."""
    rules: ColumnRules = ColumnRules()  # noqa: RUF009 (frozen)
    """What is said of how columns become features."""

    @property
    def pilot(self) -> MetricSettings | None:
        """How the pilot of a new model goes; None where it has nothing to choose and nothing to learn."""
        if self.metric is not None:
            return self.metric.options
        return self.pilot_options if self.chooses - THRESHOLDS else None

    def _own_parameters(self) -> dict[str, Any]:
        """Return the parameters that requests of all methods have: the rules of columns, and what is no default."""
        chosen = {CHOSEN: sorted(self.chosen)} if self.chosen else {}
        weights = {"class_weight": self.class_weight} if self.class_weight else {}
        rules = {SOURCE: self.rules.within(OF_NEW_MODELS).parameters()}
        return rules | chosen | weights | (self.metric.parameters() if self.metric else {})

    def _adopted(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of the request that adopts an existing model's settings."""
        names = frozenset(parameters.get(CHOSEN, ())) & self.chooses
        rules = self.rules.within(rules_of(parameters))
        return {"metric": self._adopted_metric(parameters), "chosen": names, "rules": rules}

    def _adopted_metric(self, parameters: dict[str, Any]) -> MetricRequest | None:
        """Return the metric that the model has, where the request leaves it open."""
        is_open = self.metric is not None and self.metric.name == AUTO and parameters.get("metric") != AUTO
        return MetricRequest.of(parameters) if is_open else self.metric


@dataclass(frozen=True, kw_only=True)
class OnlineRequest(_Piloted):
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
    experts: int = 1
    """The number of cells that have a learner each; 1 until a pilot has chosen it."""
    stream_rows: int | None = None
    """The rows t of the whole stream, if γ is λt from the first row on."""

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
            **({"experts": self.experts} if self.experts > 1 else {}),
            **({"stream_rows": self.stream_rows} if self.stream_rows else {}),
            **self._own_parameters(),
        }

    def with_choice(self, choice: Choice) -> Self:
        """Return the request with the settings that a pilot chose."""
        values: dict[str, Any] = {name: {name: getattr(choice, name)} for name in (REGULARIZATION, MAX_BASIS, EXPERTS)}
        values[GAMMA] = {"kernel_parameters": _with_gamma(self.kernel_parameters, choice.gamma)}
        values |= {name: {name: value} for name, value in choice.thresholds.items()}
        return replace(self, **_only(values, self.chooses), chooses=frozenset(), chosen=self.chooses)

    def adopting(self, parameters: dict[str, Any]) -> Self:
        """Return the request with the settings of an existing model where this one leaves the choice to a pilot."""
        choice = Choice(
            parameters["kernel"].get("gamma"),
            parameters["regularization"],
            parameters["max_basis"],
            parameters.get("experts", 1),
            {name: parameters[name] for name in THRESHOLDS & parameters.keys()},
        )
        return replace(self.with_choice(choice), **self._adopted(parameters))


@dataclass(frozen=True, kw_only=True)
class BatchRequest(_Piloted):
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
            **self._own_parameters(),
        }

    def with_choice(self, choice: Choice) -> Self:
        """Return the request with the settings that a pilot chose; a method that compares several λ gets three."""
        regularization: float | tuple[float, ...] = choice.regularization
        if isinstance(self.settings, SharedRegularizations) and getattr(self.settings, "folds", 2) > 1:
            regularization = tuple(factor * choice.regularization for factor in CHOSEN_FACTORS)
        return self._with(choice.gamma, regularization, choice.max_basis)

    def adopting(self, parameters: dict[str, Any]) -> Self:
        """Return the request with the settings of an existing model where this one leaves the choice to a pilot."""
        regularization = parameters["regularization"]
        given = tuple(regularization) if isinstance(regularization, list) else regularization
        adopted = self._with(parameters["kernel"].get("gamma"), given, parameters["max_basis"])
        return replace(adopted, **self._adopted(parameters))

    def _with(self, gamma: float | list[float] | None, regularization: Any, max_basis: int | None) -> Self:  # noqa: ANN401
        values = {REGULARIZATION: {"regularization": regularization}, MAX_BASIS: {"max_basis": max_basis}}
        settings = replace(self.settings, **_only(values, self.chooses))
        gammas = gamma if isinstance(gamma, list) else [gamma]
        kernels = {GAMMA: {"kernels": tuple(_with_gamma(self.kernels[0], each) for each in gammas)}}
        return replace(
            self, settings=settings, **_only(kernels, self.chooses), chooses=frozenset(), chosen=self.chooses
        )

    def _shared(self, name: str) -> Any:  # noqa: ANN401
        defaults = {setting.name: setting.default for setting in shared_settings()}
        return getattr(self.settings, name, defaults[name])


def _own_values(settings: MethodSettings) -> dict[str, Any]:
    return {setting.name: getattr(settings, setting.name) for setting in own_settings(type(settings))}


def _one_or_all(values: list[Any]) -> Any:  # noqa: ANN401
    return values[0] if len(set(values)) == 1 else values


def _with_gamma(parameters: dict[str, float], gamma: float | None) -> dict[str, float]:
    others = {name: value for name, value in parameters.items() if name != "gamma"}
    return others if gamma is None else {**others, "gamma": gamma}


def _only(values: dict[str, dict[str, Any]], names: frozenset[str]) -> dict[str, Any]:
    """Return the fields that belong to these settings."""
    return {field_name: value for name in sorted(names & values.keys()) for field_name, value in values[name].items()}


def without_pilot(request: Request) -> Request:
    """Return the request without a pilot: no learned metric, and open settings as they bound a plan."""
    return cast("Request", replace(cast("Any", request), metric=None, chooses=frozenset()))


def with_pilot(request: Request) -> Request:
    """Return the request with everything open that a pilot can choose, except what bounds the choice: γ, if given."""
    return cast("Request", replace(cast("Any", request), chooses=frozenset({REGULARIZATION, MAX_BASIS})))


def adopt_settings(request: Request, record: ModelRecord | None) -> Request:
    """Return the request, for an existing model with that model's settings wherever the request leaves them open."""
    return request if record is None else request.adopting(record.parameters)
