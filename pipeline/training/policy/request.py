"""The request for a value function."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from ridgestream.pipeline.base.policies import ERROR
from ridgestream.pipeline.kernels import Kernel, make_kernel
from ridgestream.pipeline.metric.settings import MetricRequest, MetricSettings
from ridgestream.pipeline.models.model_record import LSTD
from ridgestream.pipeline.policy.online_lstd import OnlineLSTD
from ridgestream.pipeline.policy.value_function import LSTDSettings, PolicySettings
from ridgestream.pipeline.training.request import Choice
from ridgestream.stores.files.paths import FileLocation
from ridgestream.stores.schema.column_rules import OF_NEW_MODELS, SOURCE, ColumnRules, rules_of

POLICY_BASIS = 500
"""The largest dictionary where max_basis is "auto"."""


@dataclass(frozen=True, kw_only=True)
class PolicyRequest:
    """A value function, learned from transitions."""

    name: str
    """The model's name in the store."""
    method: str = LSTD
    """The method's name."""
    kernel: str
    """rbf, polynomial or linear."""
    kernel_parameters: dict[str, float]
    """gamma, degree and coef0, as far as given."""
    regularization: float
    """λ per row."""
    max_basis: int
    """The largest dictionary."""
    novelty_threshold: float
    """TOL1, online."""
    usefulness_threshold: float
    """TOL2, online with supervised selection."""
    settings: PolicySettings
    """Those of the method alone."""
    scaling_rows: int | None
    """The first partitions with this many rows fix the standardization; None for all partitions."""
    unseen_categories: str = ERROR
    """States have no categories."""
    rules: ColumnRules = ColumnRules()  # noqa: RUF009 (frozen)
    """What is said of how columns become features."""
    metric: MetricRequest | None = None
    """No metric is learned."""
    dictionary: FileLocation | None = None
    """No dictionary is given."""
    chooses: frozenset[str] = frozenset()
    """Nothing is left to a pilot."""
    pilot_options: MetricSettings = field(default_factory=MetricSettings)
    """Those of no pilot."""

    @property
    def pilot(self) -> MetricSettings | None:
        """None: there is no pilot."""
        return None

    @property
    def kernel_grid(self) -> tuple[dict[str, float], ...]:
        """The parameters of its one kernel."""
        return (self.kernel_parameters,)

    @property
    def is_online(self) -> bool:
        """Whether one pass chooses the dictionary and sums."""
        return self.settings.update == "online"

    @property
    def lstd(self) -> LSTDSettings:
        """What the value function is, apart from its dictionary."""
        return LSTDSettings(self.settings.discount, self.regularization)

    def make_kernel(self, n_features: int) -> Kernel:
        """Return the kernel of states with so many features."""
        return make_kernel(self.kernel, self.kernel_parameters, n_features)

    def learner(self, n_features: int) -> OnlineLSTD:
        """Return the online learner before the first transition."""
        return OnlineLSTD(
            self.make_kernel(n_features),
            discount=self.settings.discount,
            regularization=self.regularization,
            max_basis=self.max_basis,
            novelty_threshold=self.novelty_threshold,
            usefulness_threshold=self.usefulness_threshold,
            selection=self.settings.selection,
        )

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the record keeps: a change of one makes it another model."""
        names = ("method", "regularization", "max_basis", "novelty_threshold", "usefulness_threshold", "scaling_rows")
        return {
            **{name: getattr(self, name) for name in names},
            "kernel": {"name": self.kernel, **self.kernel_parameters},
            LSTD: asdict(self.settings),
            SOURCE: self.rules.within(OF_NEW_MODELS).parameters(),
        }

    def with_choice(self, choice: Choice) -> Self:  # noqa: ARG002
        """Return the request: nothing is left open."""
        return self

    def adopting(self, parameters: dict[str, Any]) -> Self:
        """Return the request with the rules of an existing model where this one says nothing of them."""
        return replace(self, rules=self.rules.within(rules_of(parameters)))
