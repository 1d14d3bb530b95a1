"""The weights of classes: given, or such that all classes of the rows that fix the feature map weigh the same."""

from collections.abc import Mapping

from ridgestream.pipeline.base.errors import InputError

BALANCED = "balanced"

ClassWeight = str | Mapping[str, float]
"""BALANCED, or the weights of classes by name; 1 for those that are not named."""


def weigh_classes(wanted: ClassWeight, rows: Mapping[str, float]) -> tuple[float, ...]:
    """Return the weight of each class from the weight of its rows, by name, in their order.

    Balanced weights are n / (K nᵢ) for nᵢ of n rows and K classes that have rows: the mean weight of a row is 1. A
    class that has none weighs as much as the rarest that has. Raises InputError for the name of no class.
    """
    if isinstance(wanted, str):
        present = [weight for weight in rows.values() if weight > 0]
        share = sum(present) / max(len(present), 1)
        return tuple(share / (weight if weight > 0 else min(present)) for weight in rows.values()) if present else ()
    unknown = [name for name in wanted if name not in rows]
    if unknown:
        raise InputError(
            f"class_weight names the class {unknown[0]!r}, which the target does not have; its classes: "
            f"{', '.join(rows)}"
        )
    return tuple(float(wanted.get(name, 1.0)) for name in rows)
