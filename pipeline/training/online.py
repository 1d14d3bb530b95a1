"""Training: the partitions that a model has not learned yet, streamed into its learner, once each, in ledger order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import DictionaryError, InputError
from ridgestream.pipeline.base.executor import Executor, InProcess
from ridgestream.pipeline.base.memory_plan import TrainingPlan
from ridgestream.pipeline.base.pass_checkpoint import Keeper
from ridgestream.pipeline.base.policies import ERROR
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES, Block, Stream
from ridgestream.pipeline.dataset.dictionary_file import read_dictionary
from ridgestream.pipeline.dataset.feature_map_growth import encoding_of, plan_encodings
from ridgestream.pipeline.dataset.range_checks import check_errors, check_ranges, naming_partition
from ridgestream.pipeline.dataset.stored_rows import StoredRows
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.kernels import Kernel, make_kernel
from ridgestream.pipeline.models.model_record import check_complete, learner_of, with_learner
from ridgestream.pipeline.online.diagnostics import Numerics
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.prediction.evaluate import Evaluation, compare
from ridgestream.pipeline.prediction.progressive_validation import Progressive, mean_errors, sum_losses
from ridgestream.pipeline.selection.independence import check_independent
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.selection.random_rows import draw_rows
from ridgestream.pipeline.training.learning_curve import Course
from ridgestream.pipeline.training.online_checkpoints import OnlineCheckpoints, Progress, key_of
from ridgestream.pipeline.training.training_result import Trained, begin_record, find_unlearned
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.catalog.models import ModelRecord, check_parameters
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.files.paths import FileLocation

if TYPE_CHECKING:
    import zarr


FAR_WEIGHT = 100.0
"""A mean weight beyond this, or below its inverse, is told of."""


@dataclass(frozen=True)
class ModelRequest:
    """What a job asks a model to be."""

    name: str
    """The model's name in the store."""
    kernel: str
    """rbf, polynomial or linear."""
    kernel_parameters: dict[str, float]
    """gamma, degree, coef0 as far as given."""
    regularization: float
    """λ per row."""
    max_basis: int | None
    """The largest dictionary; None for one without a cap."""
    novelty_threshold: float
    """TOL1."""
    usefulness_threshold: float
    """TOL2."""
    scaling_rows: int | None
    """The first partitions with so many rows fix the standardization; None for all that are there."""
    selection: str = "supervised"
    """Which rows enter the dictionary: a key of SELECTIONS."""
    dictionary: FileLocation | None = None
    """The rows of a fixed dictionary; None where it is chosen or drawn."""
    random_seed: int | None = None
    """What the rows of a fixed dictionary are drawn with; None where it is chosen or given."""
    unseen_categories: str = ERROR
    """What becomes of categories that the model has not seen; may change from one training to the next."""

    @property
    def first_categories(self) -> str:
        """What becomes of them where the map of a new model is frozen: all rows that are drawn from have indicators."""
        return ERROR if self.random_seed is not None else self.unseen_categories

    def parameters(self) -> dict[str, Any]:
        """Return what makes a model of this name another model if it changes."""
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


def check_request(record: ModelRecord, request: ModelRequest) -> None:
    """Raise ModelError, naming each parameter that differs, if the model was not asked to be what is asked now.

    Another regularization is no other model: training applies it. Records older than selection rules are supervised.
    """
    check_complete(record)
    kept = {name: record.parameters[name] for name in ("learner", "regularization")}
    known = replace(record, parameters={"selection": "supervised", **record.parameters})
    check_parameters(known, {**request.parameters(), **kept})


def check_dictionary(ledger: Ledger, record: ModelRecord, request: ModelRequest) -> None:
    """Raise ModelError if the given dictionary's file, which is read, holds other rows than the model's first."""
    if request.dictionary is None or ledger.schema is None:
        return
    given = read_dictionary(request.dictionary, ledger.schema, encoding_of(record, ledger.schema))
    if not np.array_equal(given.vectors, record.arrays["basis_vectors"]):
        raise ModelError(
            f"the model {record.name!r} was begun with another dictionary than {request.dictionary} holds now; give "
            "the model another name, or begin it anew with --new-model"
        )


def is_retuned(record: ModelRecord | None, request: ModelRequest) -> bool:
    """Tell whether another regularization is asked for than the model has."""
    return record is not None and record.parameters["regularization"] != request.regularization


def train(
    root: "zarr.Group",
    ledger: Ledger,
    record: ModelRecord | None,
    request: ModelRequest,
    memory_limit_bytes: int,
    report: Reporter,
    keeper: Keeper | None = None,
    executor: Executor | None = None,
) -> Trained:
    """Teach the model, new if `record` is None, the partitions that it lacks; O(max_basis²) a row.

    Rows are read and standardized by `executor`, ahead of the learner, which is here, and come to it in their order.
    A long training keeps checkpoints in `keeper`, and goes on from one of its own that it finds there, to the same
    bits. Another regularization than the record's is applied before the first row. Raises ModelError if the request has
    other parameters than the record, MemoryRefused before anything is read, or before a dictionary without a cap grows
    beyond the limit, InputError for a category or class that the model does not know, and what learner and store raise.
    """
    if record is not None:
        check_request(record, request)
    entries = find_unlearned(ledger, record)
    policy = request.unseen_categories if record else request.first_categories
    encodings = plan_encodings(root, ledger, record, entries, request.scaling_rows, policy, report)
    feature_map = encodings.first
    plan = plan_training(request, record, encodings.last.n_features + feature_map.target.n_outputs - 1)
    plan.check(memory_limit_bytes)
    check_ranges(root, entries, feature_map, ledger.schema.targets if ledger.schema else ())
    given = _given_dictionary(ledger, record, request, feature_map)
    names = {entry.segment: entry.name for entry in entries}
    stream = Stream(root, tuple(names), feature_map, encodings.maps, executor, names)
    asked = {**request.parameters(), "unseen_categories": policy}
    key = key_of(asked, feature_map, record, given or _drawn_from(ledger, record, request))
    checkpoints = OnlineCheckpoints(keeper, key, stream, entries, report)
    learner, progress = checkpoints.load() or _begin(root, ledger, record, request, feature_map, given, report)
    learner.memory_limit_bytes = plan.learner_room_bytes(memory_limit_bytes)
    progress = _learn(stream, entries, feature_map, learner, progress, checkpoints, report)
    parameters = {**request.parameters(), "learner": learner.parameters.as_dict()}
    begun = _retuned(record, request) or begin_record(root, ledger, request.name, parameters, encodings.last)
    begun = replace(begun, encoding=encodings.last.as_dict())
    total, found = progress.sums.total, progress.sums.errors()
    error, errors = mean_errors(total, feature_map)
    by_partition = tuple(found.get(entry.segment) for entry in entries)
    taught, seconds = with_learner(begun, learner), checkpoints.timed(progress).seconds
    return Trained(taught, entries, error, errors, seconds, total.one_class, by_partition, progress.course)


def plan_training(request: ModelRequest, record: ModelRecord | None, n_features: int) -> TrainingPlan:
    """Return what training needs; without a cap, what the dictionary that there is needs."""
    n_basis = len(record.arrays["basis_vectors"]) if record else 0
    return TrainingPlan(max(n_basis, 1) if request.max_basis is None else request.max_basis, n_features, BLOCK_BYTES)


def _begin(
    root: "zarr.Group",
    ledger: Ledger,
    record: ModelRecord | None,
    request: ModelRequest,
    feature_map: FeatureMap,
    given: StartingDictionary | None,
    report: Reporter,
) -> tuple[OnlineLSSVM, Progress]:
    """Return the learner before its first row of this training, and a progress of none."""
    if record is None:
        dictionary = given or _drawn_dictionary(root, ledger, request, feature_map, report)
        learner = new_learner(request, feature_map.n_features, dictionary)
    else:
        learner = _resumed(record, request, report)
    classes = ledger.schema is not None and ledger.schema.classifies
    sums, before = Progressive(Evaluation(classes=classes)), learner.numerics
    return learner, Progress(sums, before.jitter_count, refused=before.refused)


def _given_dictionary(
    ledger: Ledger, record: ModelRecord | None, request: ModelRequest, feature_map: FeatureMap
) -> StartingDictionary | None:
    """Return the dictionary of a new model that is given; None where there is none."""
    if record is not None or request.dictionary is None or ledger.schema is None:
        return None
    given = read_dictionary(request.dictionary, ledger.schema, feature_map)
    kernel = _kernel_of(request, feature_map.n_features)
    try:
        check_independent(kernel, given.vectors, np.zeros(feature_map.n_features))
    except InputError as error:
        raise DictionaryError(f"{request.dictionary}: {error}") from error
    return given


def _drawn_from(ledger: Ledger, record: ModelRecord | None, request: ModelRequest) -> list[tuple[str, int]] | None:
    """Return all partitions that the dictionary of a new model is drawn from; None where none is drawn."""
    if record is not None or request.random_seed is None:
        return None
    return [(entry.content_sha256, entry.rows) for entry in ledger.entries]


def _drawn_dictionary(
    root: "zarr.Group",
    ledger: Ledger,
    request: ModelRequest,
    feature_map: FeatureMap,
    report: Reporter,
) -> StartingDictionary | None:
    """Return the dictionary of a new model that is drawn; None where none is."""
    if request.random_seed is None or request.max_basis is None:
        return None
    kernel = _kernel_of(request, feature_map.n_features)
    segments = [entry.segment for entry in ledger.entries]
    rows = StoredRows(root, ledger, segments, feature_map, InProcess(), report)
    drawn = draw_rows(rows, kernel, request.max_basis, request.random_seed)
    if len(drawn.vectors) < request.max_basis:
        report.warn(
            events.TRAIN_BASIS_SMALLER_THAN_ASKED,
            drawn=len(drawn.vectors),
            asked=request.max_basis,
        )
    return drawn


def _resumed(record: ModelRecord, request: ModelRequest, report: Reporter) -> OnlineLSSVM:
    """Return the record's learner, with the regularization that is asked for."""
    learner = learner_of(record)
    if is_retuned(record, request):
        report.say(
            events.TRAIN_REGULARIZATION_CHANGED,
            was=learner.parameters.regularization,
            now=request.regularization,
        )
        learner.set_regularization(request.regularization)
    return learner


def _retuned(record: ModelRecord | None, request: ModelRequest) -> ModelRecord | None:
    """Return the record with the regularization that is asked for."""
    if record is None:
        return None
    changed = {"regularization": request.regularization}
    learner = record.parameters["learner"] | changed
    return replace(record, parameters=record.parameters | changed | {"learner": learner})


def _kernel_of(request: ModelRequest, n_features: int) -> Kernel:
    return make_kernel(request.kernel, request.kernel_parameters, n_features)


def new_learner(request: ModelRequest, n_features: int, dictionary: StartingDictionary | None = None) -> OnlineLSSVM:
    """Return the learner that the request asks for; its rows are standardized, so distances are measured from zero."""
    return OnlineLSSVM(
        _kernel_of(request, n_features),
        regularization=request.regularization,
        max_basis=request.max_basis,
        novelty_threshold=request.novelty_threshold,
        usefulness_threshold=request.usefulness_threshold,
        selection=request.selection,
        dictionary=dictionary.vectors if dictionary else None,
        dictionary_rows=dictionary.places if dictionary else None,
        centre=np.zeros(n_features),
    )


def _learn(
    stream: Stream,
    entries: Sequence[LedgerEntry],
    feature_map: FeatureMap,
    learner: OnlineLSSVM,
    progress: Progress,
    checkpoints: OnlineCheckpoints,
    report: Reporter,
) -> Progress:
    """Learn what comes after `progress`; return that with the errors of predictions made before rows were learned."""
    report.begin("train", sum(entry.rows for entry in entries), partitions=len(entries))
    report.advance(progress.rows)
    for block in stream.blocks(progress.blocks):
        with naming_partition(entries, block.where.segment):
            learner.widen(block.new_features)
            part, course = _learn_block(learner, block, feature_map, progress)
            if block.where.ends_segment and learner.rows_seen:
                learner.refresh()
        check_errors(part.errors(), entries)
        progress = progress.after(len(block.features), part, course)
        checkpoints.offer(learner, progress)
        running = mean_errors(progress.sums.total, feature_map)[0] if progress.sums.total.weight else None
        report.advance(len(block.features), n_basis=learner.n_basis, swaps=learner.swaps, running_error=running)
    report.end(rows_seen=learner.rows_seen, n_basis=learner.n_basis, swaps=learner.swaps)
    _tell_numerics(learner.numerics, progress, report)
    _tell_weights(learner, report)
    return progress


def _learn_block(
    learner: OnlineLSSVM, block: Block, feature_map: FeatureMap, progress: Progress
) -> tuple[Progressive, Course]:
    """Learn a block after `progress`; return the errors of predictions made before its rows, and the course to its end.

    It is learned in pieces that the course cuts on the learner's grid, which leave no trace.
    """
    before, course = progress.sums.total, progress.course
    if not len(block.features):
        return Progressive(Evaluation(classes=before.classes)), course
    pieces, made, reached = course.cuts(len(block.features)), [], []
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):  # what is not finite is told by its partition
        for piece in pieces:
            weights = None if block.weights is None else block.weights[piece]
            made.append(learner.predict_then_learn(block.features[piece], block.targets[piece], weights))
            reached.append((learner.n_basis, learner.swaps))
        told = np.concatenate(made), block.targets, block.weights, feature_map
        part, (weights, losses) = compare(*told, classes=before.classes), sum_losses(*told, classes=before.classes)
    loss = mean_errors(before, feature_map)[0] * before.weight
    for piece, (n_basis, swaps) in zip(pieces, reached, strict=True):
        weight, more = float(weights[piece.stop - 1]), float(losses[piece.stop - 1])
        course = course.after(progress.rows + piece.stop, n_basis, swaps, before.weight + weight, loss + more)
    return Progressive.of(block.where.segment, part, feature_map), course


def _tell_numerics(told: Numerics, progress: Progress, report: Reporter) -> None:
    if told.jitter_count > progress.jittered:
        report.warn(
            events.TRAIN_JITTER_ADDED,
            times=told.jitter_count - progress.jittered,
            largest_ever=told.largest_jitter,
            condition=told.normal_condition,
        )
    if told.refused > progress.refused:
        report.warn(
            events.TRAIN_ROWS_REFUSED,
            rows=told.refused - progress.refused,
            condition=told.normal_condition,
        )


def _tell_weights(learner: OnlineLSSVM, report: Reporter) -> None:
    """Warn where weights are on the average so far from one that the thresholds mean something else."""
    mean = learner.weight_seen / learner.rows_seen if learner.rows_seen else 1.0
    if not 1 / FAR_WEIGHT <= mean <= FAR_WEIGHT:
        report.warn(events.TRAIN_WEIGHTS_FAR_FROM_ONE, mean_weight=float(f"{mean:.3g}"))
