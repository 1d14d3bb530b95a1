"""The section `[model]` of a job file: what every model has, and the settings of its method."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import Field, create_model, model_validator

from ridgestream.jobs.config.kernel_section import KernelSection
from ridgestream.jobs.config.method_sections import (
    AUTO,
    CHOOSABLE,
    METHOD_SECTIONS,
    UNLIMITED,
    MetricSection,
    keys_of,
    model_keys,
    online_settings,
)
from ridgestream.jobs.config.section import Count, NotNegative, Section, Text
from ridgestream.pipeline.base.settings import settings_of
from ridgestream.pipeline.batch.method import Method
from ridgestream.pipeline.batch.registry import METHODS, section_of
from ridgestream.pipeline.batch.shared_settings import MethodSettings, SharedRegularizations, own_settings
from ridgestream.pipeline.metric.settings import STANDARDIZED, MetricName
from ridgestream.pipeline.models.model_record import LSTD, ONLINE
from ridgestream.pipeline.policy.value_function import PolicySettings
from ridgestream.pipeline.training.pilot import bounding_values
from ridgestream.pipeline.training.request import EXPERTS, GAMMA, MAX_BASIS, THRESHOLDS
from ridgestream.stores.catalog.models import NAME_PATTERN

AUTO_REFIT = "auto"
"""The value of `refit` that leaves it to the rows."""

_ALWAYS = {"name", "method", "kernel", "scaling_rows", "metric", "metric_options", "guard"}
"""Keys that every method takes."""

_DICTIONARY = {"dictionary", "random_basis", "random_seed"}
"""Keys of the online learner with a fixed dictionary."""

_UNTAKEN = {
    "supervised": _DICTIONARY,
    "novelty": _DICTIONARY | {"usefulness_threshold"},
    "fixed": {"max_basis", "novelty_threshold", "usefulness_threshold"},
}
"""Keys that the online learner does not take with each selection rule."""


class ModelKeys(Section):
    """The model to train."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)] = "model"
    """Its name in the store."""
    method: str = ONLINE
    """The single-pass online LS-SVM, a batch method, or "lstd", the value function of a policy from transitions."""
    kernel: KernelSection = KernelSection()
    """The kernel."""
    dictionary: Text | None = None
    """The rows of a given dictionary: a Parquet file, or a folder of them, with the feature columns of the source."""
    random_basis: Count | None = None
    """With selection = "fixed": the number of rows that are drawn at the first training to be the dictionary."""
    scaling_rows: Count | Literal["all"] = 10_000
    """The first partitions with this many rows fix the standardization; "all": every one at the first training."""
    metric: MetricName = AUTO
    """How the kernel measures distances: all standardized columns alike, or by a metric learned at the first training:
    "diagonal" weighs each column, "full" their combinations, "auto" is either, as rows left out prefer ("diagonal" for
    more than 256 features), and compresses numbers with values far out. A model that exists keeps what it has under
    "auto"."""
    metric_options: MetricSection | None = None
    """How the metric is learned, and settings are chosen."""
    experts: Count | Literal["auto"] = 1
    """The number of cells of space that have an online learner each, with a dictionary of up to max_basis vectors. The
    first training makes cells of the first rows, those of metric_options.rows, by k-means. The "auto" of max_basis is
    200 then. "auto": as many as have the smallest error on rows left out of these, scaled to the rows of the first
    training, at least 128 or 5 for each vector in a cell; 1 where one dictionary is as good. It stays as it is."""
    refit: bool | Literal["auto"] = "auto"
    """Whether one more pass fits the online learner's coefficients to all learned rows; "auto" tries it where there are
    at most 512 rows a vector, 512,000 with experts, and keeps it if that lowers the error on rows left out. May change
    between nights."""
    guard: NotNegative | None = None
    """By which share the error on held-out rows may rise before the model of an earlier night is served instead."""

    @property
    def is_online(self) -> bool:
        """Whether the method is the online learner."""
        return self.method == ONLINE

    def values(self, names: "set[str] | frozenset[str]") -> dict[str, Any]:
        """Return the values of these keys: None for "unlimited", and for "auto" the one that bounds the plan."""
        given = {name: getattr(self, name) for name in names}
        values = {name: None if value == UNLIMITED else value for name, value in given.items()}
        bounding = bounding_values(has_cells=self._has_cells)
        return values | {name: bounding[name] for name in given if given[name] == AUTO}

    @property
    def chooses(self) -> frozenset[str]:
        """The settings that the pilot of a new model chooses."""
        if self.method == LSTD:
            return frozenset()
        taken = CHOOSABLE & (_ONLINE_KEYS if self.is_online else keys_of(self.method))
        open_keys = {name for name in taken - self._untaken if getattr(self, name) == AUTO}
        if self._has_cells or (not self.is_online and METHODS[self.method].chooses_size):
            open_keys -= {MAX_BASIS}
        open_keys |= {EXPERTS} if self.experts == AUTO else set()
        open_keys -= THRESHOLDS if self.experts == 1 else set()
        return frozenset(open_keys | ({GAMMA} if self.kernel.is_open else set()))

    @property
    def fixed_experts(self) -> int:
        """The number of cells, 1 if it is chosen."""
        return 1 if self.experts == AUTO else self.experts

    @property
    def _has_cells(self) -> bool:
        """Whether the job gives a number of cells."""
        return self.fixed_experts > 1

    @property
    def _untaken(self) -> set[str]:
        """The keys that the online learner does not take with its selection rule."""
        return _UNTAKEN[cast("str", getattr(self, "selection"))] if self.is_online else set()  # noqa: B009 (made at run time)

    def method_settings(self, method: str, *, only_selects: bool = False) -> MethodSettings:
        """Return the settings of a batch method; raise InputError for values that do not fit together.

        A method that `only_selects` the initial dictionary of the job's method uses no λ: those are for the job's.
        """
        kind = METHODS[method].settings
        own = {setting.name for setting in own_settings(kind)}
        unused = {"regularization"} if only_selects else set()
        shared = self.values({setting.name for setting in settings_of(kind)} - own - unused)
        section = getattr(self, section_of(method), None)
        if section is None and own:
            section = METHOD_SECTIONS[section_of(method)]()
        return cast("MethodSettings", kind(**shared, **(section.model_dump() if section else {})))

    @model_validator(mode="after")
    def _check_metric(self) -> Self:
        is_used = self.metric != STANDARDIZED or self.chooses or self._has_cells
        if self.metric_options is not None and not is_used:
            raise ValueError('metric_options goes with a metric to learn, with experts or settings that are "auto"')
        return self

    @model_validator(mode="after")
    def _check_method(self) -> Self:
        self._check_taken(_ONLINE_KEYS if self.is_online else keys_of(self.method))
        if self.is_online:
            self._check_single("regularization", getattr(self, "regularization"))  # noqa: B009 (made at run time)
            self._check_single("kernel.gamma", self.kernel.gamma)
            self._check_selection()
        elif self.method == LSTD:
            self._check_policy()
        else:
            self._check_batch(METHODS[self.method])
        return self

    def _check_taken(self, taken: frozenset[str]) -> None:
        untaken = sorted(self.model_fields_set - _ALWAYS - taken)
        if untaken:
            raise ValueError(f"method {self.method} takes no {', '.join(untaken)}")

    def _check_single(self, key: str, value: object) -> None:
        if isinstance(value, tuple):
            raise ValueError(f"method {self.method} takes a single {key}, not a list")  # noqa: TRY004 (Pydantic reports ValueError)

    def _check_policy(self) -> None:
        self._check_single("regularization", getattr(self, "regularization"))  # noqa: B009 (made at run time)
        self._check_single("kernel.gamma", self.kernel.gamma)
        if self.metric not in (AUTO, STANDARDIZED) or self.metric_options is not None:
            raise ValueError(
                "method lstd learns no metric, since rewards do not show how values vary: leave out metric and "
                "metric_options, and give kernel.gamma"
            )
        if getattr(self, "max_basis") == UNLIMITED:  # noqa: B009 (made at run time)
            raise ValueError("method lstd takes a number for max_basis: sums of its square are kept")

    def _check_batch(self, method: Method[Any]) -> None:
        if not method.compares_kernels:
            self._check_single("kernel.gamma", self.kernel.gamma)
        if not issubclass(method.settings, SharedRegularizations):
            self._check_single("regularization", getattr(self, "regularization"))  # noqa: B009 (made at run time)
        settings = self.method_settings(self.method)
        starts_given = getattr(settings, "start", None) == "given"
        if starts_given != (self.dictionary is not None):
            raise ValueError('start = "given" and model.dictionary, a Parquet file of its rows, go together')
        if isinstance(self.kernel.gamma, tuple) and getattr(settings, "folds", 2) < 2:
            raise ValueError("several gammas are compared by folds: folds must be 2 or more")

    def _check_selection(self) -> None:
        selection = cast("str", getattr(self, "selection"))  # noqa: B009 (made at run time)
        untaken = sorted(self._untaken & self.model_fields_set)
        if untaken:
            raise ValueError(f"selection {selection} takes no {', '.join(untaken)}")
        if self.experts != 1:
            self._check_experts(selection)
        if selection == "fixed" and (self.dictionary is None) == (self.random_basis is None):
            raise ValueError(
                "selection fixed takes one of dictionary, a Parquet file, and random_basis, a number of rows"
            )
        if self.dictionary is not None and "random_seed" in self.model_fields_set:
            raise ValueError("random_seed goes with random_basis, not with a dictionary")

    def _check_experts(self, selection: str) -> None:
        if selection == "fixed" or getattr(self, "max_basis") == UNLIMITED:  # noqa: B009 (made at run time)
            raise ValueError(
                "experts select dictionaries of their own: selection is not fixed, max_basis not unlimited"
            )


_ONLINE_KEYS = frozenset({setting.name for setting in online_settings()} | _DICTIONARY | {"refit", "experts"})


if TYPE_CHECKING:

    class ModelSection(ModelKeys):
        """The section with the settings of every method."""

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            """Return the value of a method's setting."""

else:
    ModelSection = create_model(
        "ModelSection",
        __base__=ModelKeys,
        method=(Literal[(ONLINE, *METHODS, LSTD)], ONLINE),
        **model_keys(),
    )
    """The section with the settings of every method."""


def policy_settings(model: ModelSection) -> PolicySettings:
    """Return the settings of policy evaluation alone."""
    section = getattr(model, LSTD)
    return PolicySettings(**(section.model_dump() if section else {}))
