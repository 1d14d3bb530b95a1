"""What is exported: a served model, what its outputs mean, and how it treats rows that are not as it has learned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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

MISSING_TEXT = ""
"""The text that is a missing category in an ONNX file, unless it is a category itself."""

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
    is_named: bool = True
    """Whether rows have the names of columns; those of an estimator that was fitted to an array have none."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Where it is from: the model's name and the snapshot of its store."""

    def __post_init__(self) -> None:
        for name, value, known in (("missing", self.missing, MISSING), ("unseen_categories", self.unseen, UNSEEN)):
            if value not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}, it is {value!r}")

    @classmethod
    def of(
        cls,
        source: Any,  # noqa: ANN401
        classes: Sequence[Label] | None = None,
        missing: str | None = None,
        unseen: str | None = None,
    ) -> Self:
        """Return what is exported of a model, or of an object whose `model_` is one; O(1).

        Classes are the object's `classes_`, or the model's, and policies those of the object, or errors, if not given.
        """
        model = getattr(source, "model_", source)
        if not isinstance(model, Model):
            raise InputError(f"only a served model or a fitted estimator is exported, this is {type(source).__name__}")
        own = getattr(source, "classes_", model.feature_map.target.classes or _signs_of(model))
        labels = tuple(_plain(label) for label in (own if classes is None else classes))
        missing = str(missing or getattr(source, "missing", ERROR))
        unseen = str(unseen or getattr(source, "unseen_categories", ERROR))
        names = {"model": getattr(source, "name", None), "snapshot": getattr(source, "snapshot", None)}
        is_named = hasattr(source, "feature_names_in_") or not hasattr(source, "n_features_in_")
        origin = {key: name for key, name in names.items() if isinstance(name, str)}
        return cls(model, labels, missing, unseen, is_named, origin)

    @property
    def columns(self) -> list[str]:
        """The names of the raw columns: numbers, then categories."""
        return [*(c.name for c in self.feature_map.numeric), *(c.name for c in self.feature_map.categorical)]

    @property
    def feature_map(self) -> FeatureMap:
        """Maps raw columns to the model's features."""
        return self.model.feature_map


def _signs_of(model: Model) -> tuple[Label, ...]:
    """Return the classes of a model that separates one class from the rest, as far as it is known to be one."""
    return () if model.probabilities is None else SIGNS


def _plain(label: Label | np.generic) -> Label:
    return cast("Label", label.item()) if isinstance(label, np.generic) else label
