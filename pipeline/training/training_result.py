"""What every training has in common: what is to be learned, what is refused, and what there is to tell of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgestream.pipeline.dataset.feature_map_fit import find_scaling
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.training.learning_curve import Course
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry, read_ledger
from ridgestream.stores.catalog.models import ModelRecord, read_model

if TYPE_CHECKING:
    import zarr


@dataclass(frozen=True)
class Trained:
    """What a training did; nothing is in the store yet."""

    record: ModelRecord
    """The model as it would be kept, its history not yet extended."""
    entries: tuple[LedgerEntry, ...]
    """The partitions learned."""
    progressive_error: float | None
    """The fraction of their rows misclassified before being learned, or the mean squared error in target units; None
    where only a refit was asked for.
    """
    progressive_mse_of: tuple[float, ...]
    """In regression, the mean squared error of each target, of which the progressive error is the mean."""
    seconds: float
    """How long it took."""
    one_class: bool = False
    """Whether all rows that were learned are of one class."""
    progressive_errors: tuple[float | None, ...] | None = None
    """The progressive error on each partition, the mean over the targets, None for one without a row that counts; None
    where rows were not predicted before they were learned.
    """
    course: Course | None = None
    """How an online learner went along the rows; None for a batch method."""


@dataclass(frozen=True)
class Standing:
    """Where a model stands in its store."""

    ledger: Ledger
    """The partitions that it is to know, in the order of learning."""
    record: ModelRecord | None
    """The model to go on from; None if it is to begin."""
    kept: ModelRecord | None
    """What the store holds under its name."""


def standing_of(root: "zarr.Group", name: str, *, new_model: bool) -> Standing:
    """Return where the model stands.

    It begins where there is none of that name, where a new one is asked for, and where a partition that it has learned
    was taken in anew since. What was excluded by a rollback stays so, but for a new model.
    """
    ledger, kept = read_ledger(root), read_model(root, name)
    if kept is None or new_model:
        return Standing(ledger, None, kept)
    known = {entry.segment for entry in ledger.entries}
    known |= {each.entry.segment for each in ledger.quarantined if each.entry}
    ledger = ledger.without({entry.name for entry in ledger.entries if entry.segment in kept.excluded})
    return Standing(ledger, kept if known.issuperset(kept.learned) else None, kept)


def find_unlearned(ledger: Ledger, record: ModelRecord | None) -> tuple[LedgerEntry, ...]:
    """Return the partitions of the ledger that the model has not learned, in ledger order."""
    learned = set(record.learned) if record else set()
    return tuple(entry for entry in ledger.entries if entry.segment not in learned)


def begin_record(
    root: "zarr.Group", ledger: Ledger, name: str, parameters: dict[str, Any], feature_map: FeatureMap
) -> ModelRecord:
    """Return the record of a model that begins with what the ledger holds now."""
    scaling = find_scaling(root, [entry.segment for entry in ledger.entries], parameters["scaling_rows"])
    return ModelRecord(name, parameters, feature_map.as_dict(), scaled_by=tuple(scaling))
