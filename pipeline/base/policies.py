"""Policies for partitions and rows that differ from what was expected."""

from dataclasses import dataclass

ERROR, IGNORE, REBUILD, QUARANTINE, EXTEND = "error", "ignore", "rebuild", "quarantine", "extend"


@dataclass(frozen=True)
class Policies:
    """What to do about changed or unusable partitions, missing values and unseen categories."""

    on_changed: str = ERROR
    """A partition that holds other values than when it was ingested: error, ignore (its rows in the store stay), or
    rebuild (it is ingested again, at its position, and models that have learned it are trained from the start).
    """
    on_bad: str = ERROR
    """A new partition that cannot be used: error, or quarantine (it is left out, and the run continues)."""
    missing: str = ERROR
    """Missing values: error, drop (rows that lack a value are left out), or impute (they are filled in training and
    prediction).
    """
    unseen_categories: str = ERROR
    """Categories that a model has not seen: error, ignore (all indicators of the column are zero), or extend (they get
    an indicator, which is zero in all earlier rows).
    """
