"""Requests: what a job asks a model to be, and which parameters a record of the model keeps."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from ridgestream.pipeline.base.policies import ERROR
from ridgestream.stores.files.paths import FileLocation


class Request(Protocol):
    """What every job asks of a model, whatever its method."""

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
    """The rows of a fixed dictionary; None where it is selected or drawn."""
    random_seed: int | None = None
    """The seed with which a fixed dictionary is drawn; None where it is selected or given."""
    unseen_categories: str = ERROR
    """The policy for categories that the model has not seen; may change between trainings."""

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
    regularizations: tuple[float, ...]
    """Every λ per row to compare."""
    max_basis: int | None
    """The largest dictionary; None for no limit."""
    folds: int
    """The number of folds by whose errors models are compared."""
    random_seed: int
    """The seed with which rows are drawn and assigned to folds."""
    scaling_rows: int | None
    """The first partitions with this many rows fix the standardization; None for all partitions."""
    reselect: str = "never"
    """Whether a night with new partitions selects a new dictionary: never, always, or on drift."""
    drift_margin: float = 0.1
    """By which share the error on new rows must exceed that on the rows selected from, to count as drift."""
    dictionary: FileLocation | None = None
    """The rows of a given initial dictionary; None where none is given."""
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The settings of single methods, by the names of their sections."""
    unseen_categories: str = ERROR
    """The policy for categories that the model has not seen; may change between trainings."""
    given_basis: int = 0
    """The rows of a given initial dictionary, by the footers of its files; 0 where none is given."""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the record keeps: a change of one makes it another model."""
        names = sorted({name for kernel in self.kernels for name in kernel})
        return {
            "method": self.method,
            "kernel": {"name": self.kernel, **{n: _one_or_all([k[n] for k in self.kernels]) for n in names}},
            "regularization": _one_or_all(list(self.regularizations)),
            "max_basis": self.max_basis,
            "folds": self.folds,
            "random_seed": self.random_seed,
            "scaling_rows": self.scaling_rows,
            "dictionary": "given" if self.dictionary else None,
            **self.options,
        }


def _one_or_all(values: list[Any]) -> Any:  # noqa: ANN401
    return values[0] if len(set(values)) == 1 else values
