"""What becomes of partitions and rows that are not as they should be."""

from dataclasses import dataclass

ERROR, IGNORE, REBUILD, QUARANTINE, EXTEND = "error", "ignore", "rebuild", "quarantine", "extend"


@dataclass(frozen=True)
class Policies:
    """What is to become of partitions that are not as they should be."""

    on_changed: str = ERROR
    """Of one that was taken in with other values: error, ignore (its rows stay as they were), or rebuild (it is taken
    in anew, in its place, and the models that have learned it begin anew).
    """
    on_bad: str = ERROR
    """Of a new one that cannot be used: error, or quarantine (it is put aside, and the rest goes on)."""
    missing: str = ERROR
    """Of missing values: error, drop (a row that lacks one is left out), or impute (they are filled where rows are
    learned or predicted).
    """
    unseen_categories: str = ERROR
    """Of categories that a model has not seen: error, ignore (no indicator is one), or extend (they get one of their
    own, zero in all rows before).
    """
