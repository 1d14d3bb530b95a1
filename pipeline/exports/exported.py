"""What is exported: a served model, what its outputs mean, and how it treats rows that are not as it has learned."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.policies import ERROR, EXTEND, IGNORE
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.one_vs_rest import Label
from ridgestream.pipeline.models.predictor import Model

DROP, IMPUTE = "drop", "impute"
MISSING, UNSEEN = (ERROR, IMPUTE, DROP), (ERROR, IGNORE, EXTEND)
"""The policies, as in job files. A category that a finished model does not know is ignored or extended alike."""

SIGNS = (-1, 1)
"""The classes of one class against the rest, as `predict` names them: 1 is the positive one."""


@dataclass(frozen=True)
class Exported:
    """A served model as it answers outside."""

    model: Model
    """The model."""
    classes: tuple[Label, ...]
    """The classes in the order of their scores; empty for numbers."""
    missing: str = ERROR
    """What a missing value does, one of MISSING."""
    unseen: str = ERROR
    """What a category does that the model does not know, one of UNSEEN."""

    def __post_init__(self) -> None:
        for name, value, known in (("missing", self.missing, MISSING), ("unseen_categories", self.unseen, UNSEEN)):
            if value not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}, it is {value!r}")

    @classmethod
    def of(cls, source: Any, classes: Sequence[Label] | None, missing: str, unseen: str) -> Self:  # noqa: ANN401
        """Return what is exported of a model, or of an object whose `model_` is one; O(1).

        Without `classes`, they are those of the model, or of the object's `classes_`.
        """
        model = getattr(source, "model_", source)
        if not isinstance(model, Model):
            raise InputError(f"only a served model or a fitted estimator is exported, this is {type(source).__name__}")
        known = model.feature_map.target.classes or tuple(getattr(source, "classes_", ()))
        signs = SIGNS if model.probabilities is not None else ()
        labels = (known or signs) if classes is None else classes
        return cls(model, tuple(_plain(label) for label in labels), missing, unseen)

    @property
    def columns(self) -> list[str]:
        """The names of the raw columns: numbers, then categories."""
        return [*(c.name for c in self.feature_map.numeric), *(c.name for c in self.feature_map.categorical)]

    @property
    def feature_map(self) -> FeatureMap:
        """Maps raw columns to the model's features."""
        return self.model.feature_map


def _plain(label: Label | np.generic) -> Label:
    return cast("Label", label.item()) if isinstance(label, np.generic) else label
