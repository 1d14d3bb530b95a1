"""Settings that several methods share, the keys of `[model]`: a method's settings class inherits those that it takes.

Defaults of what the online learner has too are the online learner's.
"""

from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar, Literal, Self

from annotated_types import Ge

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.settings import Count, NotNegative, Positive, Setting, settings_of
from ridgestream.pipeline.online.settings import OnlineSettings


@dataclass(frozen=True)
class MethodSettings:
    """The settings of a batch method."""

    also_takes: ClassVar[frozenset[str]] = frozenset()
    """Keys of `[model]` that the method takes besides its fields: `dictionary`, or the section of another method."""


@dataclass(frozen=True)
class SharedRegularization(MethodSettings):
    """A method with a single λ."""

    regularization: Positive = OnlineSettings.regularization
    """λ per row: the penalty is λ times the sum of weights."""

    @property
    def regularizations(self) -> tuple[float, ...]:
        """λ per row, as a tuple of one."""
        return (self.regularization,)


@dataclass(frozen=True)
class SharedRegularizations(MethodSettings):
    """A method that compares several λ."""

    regularization: Positive | tuple[Positive, ...] = OnlineSettings.regularization
    """λ per row: the penalty is λ times the sum of weights. Of several, the one of least validation error is used."""

    @property
    def regularizations(self) -> tuple[float, ...]:
        """Every λ per row to compare."""
        return self.regularization if isinstance(self.regularization, tuple) else (self.regularization,)


@dataclass(frozen=True)
class SharedSize(MethodSettings):
    """A method that limits its dictionary."""

    max_basis: Count | None = OnlineSettings.max_basis
    """The largest dictionary; without a limit, as many vectors as there are rows to choose from."""

    @property
    def limit(self) -> int:
        """`max_basis` as a number; raises InputError without one, see `bounded`."""
        if self.max_basis is None:
            raise InputError("max_basis must be a whole number here; `bounded` sets it to the number of rows")
        return self.max_basis

    def bounded(self, n_rows: int) -> Self:
        """Return the settings with a largest dictionary of no more vectors than rows."""
        return replace(self, max_basis=self.most_basis(n_rows))

    def most_basis(self, n_rows: int) -> int:
        """Return the largest dictionary that this many rows allow, at least one."""
        return max(n_rows, 1) if self.max_basis is None else min(self.max_basis, max(n_rows, 1))


@dataclass(frozen=True)
class SharedFolds(MethodSettings):
    """A method that assigns rows to folds."""

    folds: Count = 5
    """The number of folds by whose errors models are compared; 1 compares nothing, or by GCV in shard-merge-select."""
    random_seed: Annotated[int, Ge(0)] = 0
    """The seed with which rows are drawn and assigned to folds."""


@dataclass(frozen=True)
class SharedReselection(MethodSettings):
    """A method whose dictionary stays when new partitions come, or is selected again."""

    reselect: Literal["never", "always", "on drift"] = "never"
    """Whether a night with new partitions selects a new dictionary."""
    drift_margin: NotNegative = 0.1
    """With "on drift": by which share the error on new rows must exceed that on the rows selected from."""


SHARED = (SharedRegularizations, SharedSize, SharedFolds, SharedReselection)
"""The shared settings, each key once."""


def shared_settings() -> tuple[Setting, ...]:
    """Return every setting that batch methods share, each once."""
    return tuple(setting for kind in SHARED for setting in settings_of(kind))


def shared_names() -> frozenset[str]:
    """Return the keys of the settings that batch methods share."""
    return frozenset(item.name for kind in SHARED for item in fields(kind))


def own_settings(kind: type) -> tuple[Setting, ...]:
    """Return the settings of a method's own, those of its section in job files."""
    return tuple(setting for setting in settings_of(kind) if setting.name not in shared_names())
