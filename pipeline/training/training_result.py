"""The result of a training, and the helpers that online and batch training share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgestream.pipeline.dataset.feature_map_fit import find_scaling
from ridgestream.pipeline.dataset.feature_map_growth import with_feature_map
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.monitoring.learning_curve import Course
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry, read_ledger
from ridgestream.stores.catalog.models import ModelRecord, read_model
from ridgestream.stores.segments.segments import SegmentSource

if TYPE_CHECKING:
    import zarr


@dataclass(frozen=True)
class Trained:
    """The result of a training, not yet in the store."""

    record: ModelRecord
    """The trained model; its history does not have this training yet."""
    entries: tuple[LedgerEntry, ...]
    """The partitions learned."""
    progressive_error: float | None
    """The fraction of their rows misclassified before being learned, or the mean squared error in target units; None
    where only a refit was asked for.
    """
    progressive_mse_of: tuple[float, ...]
    """In regression, the mean squared error of each target, of which the progressive error is the mean."""
    seconds: float
    """The duration of the training."""
    one_class: bool = False
    """Whether all rows that were learned are of one class."""
    progressive_errors: tuple[float | None, ...] | None = None
    """The progressive error on each partition, the mean over the targets, None for one without a row that counts; None
    where rows were not predicted before they were learned.
    """
    trivial_errors: tuple[float, ...] = ()
    """The errors on these rows of the constant that fits all rows learned best, of each target in regression."""
    last_value_errors: tuple[float, ...] = ()
    """The errors on these rows of the target of the row before."""
    course: Course | None = None
    """How an online learner went along the rows; None for a batch method."""
    coverage: float | None = None
    """The share of these rows that the model before covered by its intervals of the level COVERAGE_LEVEL, the mean over
    the targets; None for a new model, and for classes.
    """
    refit_gain: float | None = None
    """By which share a refit lowered the squared error on rows left out; None where none was tried."""


@dataclass(frozen=True)
class Standing:
    """What a store holds of a model."""

    ledger: Ledger
    """The partitions that the model learns, in the order of learning."""
    record: ModelRecord | None
    """The model to continue; None for a new one."""
    stored: ModelRecord | None
    """The record under its name, if there is one, even if a new model replaces it."""


def standing_of(root: "zarr.Group", name: str, *, new_model: bool, ledger: Ledger | None = None) -> Standing:
    """Return the store's ledger, which is read unless it is given, and the record for a model.

    A new model starts if there is none of that name, if the job requests a new one, or if a learned partition was
    ingested again. Partitions excluded by a rollback stay excluded, except for a new model.
    """
    ledger, stored = ledger or read_ledger(root), read_model(root, name)
    if stored is None or new_model:
        return Standing(ledger, None, stored)
    known = {entry.segment for entry in ledger.entries}
    known |= {each.entry.segment for each in ledger.quarantined if each.entry}
    ledger = ledger.without({entry.name for entry in ledger.entries if entry.segment in stored.excluded})
    return Standing(ledger, stored if known.issuperset(stored.learned) else None, stored)


def find_unlearned(ledger: Ledger, record: ModelRecord | None) -> tuple[LedgerEntry, ...]:
    """Return the partitions of the ledger that the model has not learned, in ledger order."""
    learned = set(record.learned) if record else set()
    return tuple(entry for entry in ledger.entries if entry.segment not in learned)


def begin_record(
    segments: SegmentSource, ledger: Ledger, name: str, parameters: dict[str, Any], feature_map: FeatureMap
) -> ModelRecord:
    """Return the record of a new model that learns the partitions of the ledger."""
    scaling = find_scaling(segments, [entry.segment for entry in ledger.entries], parameters["scaling_rows"])
    return with_feature_map(ModelRecord(name, parameters, {}, scaled_by=tuple(scaling)), feature_map)
