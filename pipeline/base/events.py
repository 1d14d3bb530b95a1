"""The events and steps that a command logs: a stable code for programs, a sentence or a name for people.

The code of an event is `subject.event`, and the constant has its name; the code of a step has no dot. Values are
not in the sentence: they are passed to `Reporter.say` or `Reporter.warn` by name. Codes do not change from release to
release; sentences may.
"""

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True)
class Event:
    """An event that is logged."""

    code: str
    """A stable code for programs, such as `ingest.partition_renamed`."""
    sentence: str
    """The message for people."""
    casts_doubt: bool = False
    """Whether it may have impaired the model, so that the run's report asks for an inspection."""


@dataclass(frozen=True)
class Step:
    """A long part of a run, with progress; its code is the event that is logged at its end."""

    code: str
    """A stable code for programs, such as `train`."""
    name: str
    """The name for people; in the list below it may have placeholders for numbers in braces."""
    is_repeated: bool = False
    """Whether a run has many of it, of which a log needs only those that take long."""

    def numbered(self, **numbers: int) -> Self:
        """Return the step with the fields of its name filled in."""
        return replace(self, name=self.name.format(**numbers))


STEP_ADD_SUMS = Step("add_sums", "add sums")
STEP_CALIBRATE = Step("calibrate", "calibrate")
STEP_CHECK_HELD_OUT = Step("check_held_out", "check held-out rows")
STEP_COMPILE = Step("compile", "compile")
STEP_CROSS_VALIDATE = Step("cross_validate", "cross-validate")
STEP_EFVS_PASS = Step("efvs_pass", "EFVS from {vectors} vectors")
STEP_EVALUATE = Step("evaluate", "evaluate")
STEP_INGEST = Step("ingest", "ingest")
STEP_ISLS_SVM_PASS = Step("isls_svm_pass", "isls-svm")
STEP_KERNEL_RIDGE_PASS = Step("kernel_ridge_pass", "kernel ridge")
STEP_KMEANS_PASS = Step("kmeans_pass", "pass {number} of {passes} of k-means")
STEP_LEARN_SHARDS = Step("learn_shards", "learn {shards} shards")
STEP_LS_SVM_PASS = Step("ls_svm_pass", "ls-svm")
STEP_MATCHING_PURSUIT_PASS = Step("matching_pursuit_pass", "matching pursuit")
STEP_METRIC_COMPARISON = Step("metric_comparison", "metric: compare two rounds", is_repeated=True)
STEP_METRIC_GRADIENTS = Step("metric_gradients", "metric: gradients", is_repeated=True)
STEP_METRIC_SUMS = Step("metric_sums", "metric: sums of the pilot", is_repeated=True)
STEP_OLS_PASS = Step("ols_pass", "OLS from {vectors} vectors")
STEP_OROLS_PASS = Step("orols_pass", "pass {number} of OROLS")
STEP_PREDICT = Step("predict", "predict")
STEP_PREDICT_NEW_ROWS = Step("predict_new_rows", "predict new rows")
STEP_PROGRESS = Step("progress", "progress")
"""The progress of any step, every few seconds."""
STEP_REFIT = Step("refit", "refit")
STEP_SLS_SVM_PASS = Step("sls_svm_pass", "sls-svm")
STEP_SUBSET_OF_REGRESSORS_PASS = Step("subset_of_regressors_pass", "subset of regressors")
STEP_SUM_CANDIDATES = Step("sum_candidates", "sum {candidates} candidates")
STEP_SUM_DICTIONARY = Step("sum_dictionary", "sums of the dictionary")
STEP_SUM_RESIDUALS = Step("sum_residuals", "scale of the residuals")
STEP_SUM_TRANSITIONS = Step("sum_transitions", "sums of the transitions")
STEP_COLUMN_SHARES = Step("column_shares", "metric: what each column explains", is_repeated=True)
STEP_TARGET_ORDER = Step("target_order", "pilot: order of the targets")
STEP_TRAIN = Step("train", "train")
STEP_TRY_CELLS = Step("try_cells", "pilot: cells learn the first rows", is_repeated=True)

SOURCE_FILES_PASSED_OVER = Event(
    "source.files_passed_over",
    "files are passed over, since their names, or those of their folders, begin with . or _, or do not end in .parquet",
)

INGEST_COLUMNS_IGNORED = Event("ingest.columns_ignored", "columns that are not in the schema are not read")
INGEST_IGNORED_COLUMNS_ABSENT = Event(
    "ingest.ignored_columns_absent", "columns to be ignored do not exist; are they spelled right?"
)
INGEST_MORE_PARTITIONS = Event("ingest.more_partitions", "the same is true of more partitions")
INGEST_PARTITION_CHANGED = Event(
    "ingest.partition_changed", "a partition has changed since it was ingested; its rows in the store stay as they were"
)
INGEST_PARTITION_QUARANTINED = Event(
    "ingest.partition_quarantined", "a partition cannot be used and is in quarantine now"
)
INGEST_PARTITION_REBUILT = Event(
    "ingest.partition_rebuilt",
    "a partition had changed and was ingested again; models that had learned it are trained from the start",
)
INGEST_PARTITION_RENAMED = Event("ingest.partition_renamed", "a partition has a new name; it is not learned again")
INGEST_PARTITION_REPEATED = Event(
    "ingest.partition_repeated", "a partition has exactly the rows of an older one: they now count twice"
)
INGEST_PARTITIONS_GONE = Event(
    "ingest.partitions_gone", "partitions are gone from the source; their rows stay in the store"
)
INGEST_PARTITIONS_IN_QUARANTINE = Event(
    "ingest.partitions_in_quarantine", "partitions are in quarantine and are not learned"
)
INGEST_ROWS_LEFT_OUT = Event("ingest.rows_left_out", "rows that lack a value were left out")
INGEST_VALUES_MISSING = Event("ingest.values_missing", "values are missing; they are imputed in training")

FEATURES_CLASS_WEIGHTS = Event("features.class_weights", "rows are learned by the weight of their class, now fixed")
FEATURES_CATEGORIES_RARE = Event(
    "features.categories_rare", "few rows have these categories: little is learned of them"
)
FEATURES_COLUMNS_CONSTANT = Event(
    "features.columns_constant",
    "columns have one value only in the rows that fix the standardization, and say nothing yet: a number gets its "
    "scale from the first partition in which it varies",
)
FEATURES_COLUMNS_WITHOUT_VALUES = Event(
    "features.columns_without_values",
    "columns have no value in the rows that fix the standardization, and say nothing yet: a number gets centre and "
    "scale from the first partition in which it has values",
)
FEATURES_COMPRESSED = Event("features.compressed", "numbers with values far out are compressed, as by a logarithm")
FEATURES_NEW_CATEGORIES_ADDED = Event(
    "features.new_categories_added", "categories that the model had not seen get indicators of their own"
)
FEATURES_NEW_CATEGORIES_IGNORED = Event(
    "features.new_categories_ignored", "categories that the model had not seen have no indicator"
)
FEATURES_SCALE_FIXED_LATER = Event(
    "features.scale_fixed_later", "numbers that had one value in all rows so far vary, and have got their scale"
)
FEATURES_SCALE_FROM_FEW_ROWS = Event(
    "features.scale_from_few_rows",
    "the scale of these columns rests on a few rows far from the others, or on two values: usual values may lie close "
    "together, or far apart; more scaling_rows, or a rule of source.columns, helps",
)
FEATURES_TIMES_AS_CALENDAR = Event(
    "features.times_as_calendar",
    "time stamps are circles of the calendar; the time elapsed is no feature, since tomorrow lies outside what is "
    "learned, so that a trend in time is not followed",
)

PILOT_CELLS_TRIED = Event(
    "pilot.cells_tried",
    "this number of cells has been judged by rows left out of the pilot, at random and the last ones",
)
PILOT_CHOSEN = Event("pilot.chosen", "settings have been chosen by the first rows, and stay as they are")
PILOT_LATER_ROWS_DISAGREE = Event(
    "pilot.later_rows_disagree",
    "later rows want other settings than rows left out at random, and decide; the data may change with time; rows "
    "that are sorted by anything else should be shuffled",
)
PILOT_LEARNER_FALLS_SHORT = Event(
    "pilot.learner_falls_short",
    "on later rows of the pilot, the online learner has a far larger error than a model of the same rows that is "
    "solved at once: a larger max_basis, refit = true, or a batch method may serve better",
)
PILOT_OUTGROWN = Event(
    "pilot.outgrown",
    "ten times the rows have been learned from which the metric, open settings and cells were chosen for good: a new "
    "model (--new-model) chooses them from more",
)
PILOT_ROWS_SORTED = Event(
    "pilot.rows_sorted",
    "the first rows are sorted by target: rows left out at random alone choose the settings, and errors along the "
    "stream say nothing; bring the rows into the order of time, or into a random one",
)
PILOT_TARGET_CONSTANT = Event(
    "pilot.target_constant",
    "the first rows all have the same target: no metric and no setting can be chosen from them, and the defaults stay "
    "for good; bring the rows into the order of time, or into a random one, or begin a new model (--new-model) once "
    "targets differ",
)
PILOT_WIDTH_TRIED = Event(
    "pilot.width_tried", "the learner has been judged with this width of the kernel on later rows of the pilot"
)

METRIC_LEARNED = Event("metric.learned", "the metric has been learned from the first rows, and stays as it is")
METRIC_NOT_JUDGED = Event(
    "metric.not_judged",
    "there are too few rows to learn a metric or choose settings from: distances are those of the standardized columns",
)
METRIC_ROUND = Event("metric.round", "a round of the metric has been judged by rows left out")

TRAIN_BASIS_SMALLER_THAN_ASKED = Event(
    "train.basis_smaller_than_asked",
    "fewer rows than random_basis are independent of each other: the dictionary is smaller",
)
TRAIN_FROM_FIRST_ROW = Event(
    "train.from_first_row",
    "the model had learned rows that were ingested again since, or that are no longer in the store: it is trained from "
    "the first row, without the partitions that a rollback has excluded",
)
TRAIN_FEWER_CELLS = Event(
    "train.fewer_cells",
    "the first rows, those of metric_options.rows, have fewer different ones than experts: the model has fewer cells",
    casts_doubt=True,
)
TRAIN_NOT_CALIBRATED = Event(
    "train.not_calibrated", "the model cannot be calibrated, and gives no intervals and no probabilities"
)
TRAIN_CHECKPOINT_NOT_SAVED = Event("train.checkpoint_not_saved", "no checkpoint could be saved; training continues")
TRAIN_COMPILING = Event(
    "train.compiling",
    "compiling the learner for this machine, some ten seconds of a free core; the next run finds it in the cache",
)
TRAIN_JITTER_ADDED = Event(
    "train.jitter_added",
    "P or K was singular within rounding, and jitter was added to its diagonal; raise novelty_threshold or "
    "regularization, or give a dictionary whose rows lie further apart",
    casts_doubt=True,
)
TRAIN_NO_ROWS = Event(
    "train.no_rows",
    "no row of weight above zero to learn from: there is no model yet",
    casts_doubt=True,
)
TRAIN_NOT_REFITTED = Event(
    "train.not_refitted", "the coefficients are those of the online learner again, without a refit"
)
TRAIN_NOTHING_NEW = Event("train.nothing_new", "nothing new to learn")
TRAIN_ONE_CLASS = Event(
    "train.one_class",
    "all rows learned in this run are of one class; is it spelled right?",
    casts_doubt=True,
)
TRAIN_REFIT_DROPPED = Event("train.refit_dropped", "a refit was tried and dropped: it does not lower the error enough")
TRAIN_REFIT_KEPT = Event("train.refit_kept", "a refit was tried and kept: it lowers the error on rows left out")
TRAIN_REFIT_JITTER_ADDED = Event(
    "train.refit_jitter_added",
    "P was singular within rounding, and jitter was added to its diagonal",
    casts_doubt=True,
)
TRAIN_REGULARIZATION_CHANGED = Event(
    "train.regularization_changed", "regularization changed: it holds for all rows, past ones too"
)
TRAIN_RESELECTED_FOR_DRIFT = Event(
    "train.reselected_for_drift", "the new rows have drifted: the dictionary is selected again"
)
TRAIN_RESELECTED_FOR_REGULARIZATION = Event(
    "train.reselected_for_regularization", "regularization changed: the dictionary is selected again"
)
TRAIN_ROWS_REFUSED = Event(
    "train.rows_refused",
    "novel rows were not added to the dictionary, since P would have been singular within rounding; raise "
    "regularization or novelty_threshold",
    casts_doubt=True,
)
TRAIN_SCALING_FIXED_EARLY = Event(
    "train.scaling_fixed_early",
    "few rows have fixed the standardization for good, and more are learned now: a new model (--new-model) takes it "
    "from all of them",
)
TRAIN_STARTED_FROM_CHECKPOINT = Event("train.started_from_checkpoint", "training continues from a checkpoint")
TRAIN_STOPPED_WITH_CHECKPOINT = Event(
    "train.stopped_with_checkpoint", "stopped: a checkpoint is saved, and the same command continues from there"
)
TRAIN_STOPPED_WITHOUT_CHECKPOINT = Event("train.stopped_without_checkpoint", "stopped: no checkpoint could be saved")
TRAIN_TARGET_CONSTANT = Event(
    "train.target_constant",
    "the target has one value in all rows learned so far: there is nothing to predict; is it the right column?",
    casts_doubt=True,
)
TRAIN_VECTORS_UNRELATED = Event(
    "train.vectors_unrelated",
    "the kernel values of half of the dictionary's vectors with all others are nearly zero: so are the scores of rows "
    "that are unlike them; lower gamma, or ignore columns that identify every row",
    casts_doubt=True,
)
TRAIN_WEIGHTS_ALL_ZERO = Event(
    "train.weights_all_zero",
    "all new rows have weight zero, so that nothing is learned from them; is the column of weights right?",
    casts_doubt=True,
)
TRAIN_WEIGHTS_FAR_FROM_ONE = Event(
    "train.weights_far_from_one",
    "the mean weight is far from one, and usefulness_threshold is in units of weight times squared target; scale the "
    "weights to a mean of one, or usefulness_threshold with them",
    casts_doubt=True,
)
TRAIN_SIZE_TOO_SMALL = Event(
    "train.size_too_small",
    "on rows left out, a larger dictionary that was compared has at most half the error: raise max_basis, or take a "
    "method that fits a small dictionary to all rows",
    casts_doubt=True,
)
TRAIN_WORSE_THAN_CONSTANT = Event(
    "train.worse_than_constant",
    "the model fits its rows worse than a constant does",
    casts_doubt=True,
)

SELECTION_CENTRES_MOVED = Event("selection.centres_moved", "k-means moved its centres")
SELECTION_EFVS_VECTORS = Event("selection.efvs_vectors", "EFVS selected basis vectors")
SELECTION_FOLD_PRUNED = Event("selection.fold_pruned", "SLS-SVM pruned the rows outside a fold")
SELECTION_LEFT_OUT_EACH_ROW = Event(
    "selection.left_out_each_row", "computed the mean squared errors of a kernel, each row left out once"
)
SELECTION_MODELS_COMPARED = Event(
    "selection.models_compared", "computed the mean squared errors of a kernel by cross-validation"
)
SELECTION_OLS_VECTORS = Event("selection.ols_vectors", "OLS selected basis vectors")
SELECTION_OROLS_ROWS = Event("selection.orols_rows", "OROLS selected rows with large residuals")

EVALUATE_COVERAGE_LOW = Event(
    "evaluate.coverage_low",
    "far fewer values lie in their intervals than their level says: rows are unlike those that the model has learned; "
    "look at what has moved, or begin a new model (--new-model)",
    casts_doubt=True,
)
EVALUATE_NO_BETTER_THAN_CONSTANT = Event(
    "evaluate.no_better_than_constant",
    "the model is no better than a constant: the mean of the target, or the largest class, has no larger error",
    casts_doubt=True,
)
EVALUATE_NO_BETTER_THAN_LAST_VALUE = Event(
    "evaluate.no_better_than_last_value",
    "the model is no better than the last value: the target of the row before has no larger error",
    casts_doubt=True,
)
EVALUATE_NOT_BETTER_BEYOND_CHANCE = Event(
    "evaluate.not_better_beyond_chance",
    "the model is not better than a constant beyond chance: the mean of the target, or the largest class, has a larger "
    "error, but by no more than chance explains",
    casts_doubt=True,
)
EVALUATE_ROWS_LEFT_OUT = Event("evaluate.rows_left_out", "rows lack a value and are not evaluated")
PREDICT_COLUMNS_IGNORED = Event("predict.columns_ignored", "columns that are not in the schema are not read")
PREDICT_ROWS_LEFT_OUT = Event("predict.rows_left_out", "rows lack a value and have no prediction")
PREDICT_ROWS_OUTSIDE_RANGE = Event(
    "predict.rows_outside_range",
    "more rows than by chance lie outside the range of the rows that the model has learned, where it knows nothing",
    casts_doubt=True,
)
PREDICT_UNSEEN_CATEGORIES = Event(
    "predict.unseen_categories", "rows have a category that the model does not know and has no indicator for"
)
PREDICT_VALUES_IMPUTED = Event("predict.values_imputed", "missing values are imputed")

GUARD_MODEL_HELD_BACK = Event("guard.model_held_back", "the model is worse than the guard allows and is not served")
GUARD_SHOWING_HELD_MODEL = Event(
    "guard.showing_held_model", "the guard held this night's model back: it was not served then"
)

DRIFT_ENDED = Event("drift.ended", "a column is again like the rows before its drift")
DRIFT_MORE_PARTITIONS = Event("drift.more_partitions", "more partitions are unlike those before them; see inspect")
DRIFT_NEW_NORMAL = Event(
    "drift.new_normal",
    "a column has settled where its drift has led: this is the new normal, and is not reported again",
)
DRIFT_PARTITION_UNLIKE_OTHERS = Event(
    "drift.partition_unlike_others", "a partition is unlike those before it; is its feed broken?"
)

CLUSTER_LOCAL_WORKERS = Event("cluster.local_workers", "a worker starts for each processor that this process may use")
CLUSTER_TASK_RETRIED = Event("cluster.task_retried", "a task failed in reading or writing and is tried again")
CLUSTER_VERSIONS_DIFFER = Event("cluster.versions_differ", "workers have other versions of packages than this job")
CLUSTER_WORKER_LOST = Event("cluster.worker_lost", "a worker was lost; its tasks are run again")
CLUSTER_WORKERS_CONNECTED = Event("cluster.workers_connected", "workers are connected")
CLUSTER_WORKERS_SILENT = Event(
    "cluster.workers_silent", "workers do not answer; each of their tasks compares versions itself"
)

REPORT_FAILURE_NOT_DELETED = Event(
    "report.failure_not_deleted", "the reports of earlier failures could not be deleted, though this run succeeded"
)
REPORT_FAILURE_NOT_WRITTEN = Event("report.failure_not_written", "the report of the failed run could not be written")
REPORT_FAILURE_WRITTEN = Event("report.failure_written", "the report of the failed run is written")
REPORT_NO_FOLDER = Event(
    "report.no_folder",
    "a store that is a whole bucket has no folder beside it for reports; set report to a folder, or to none",
)
REPORT_NOT_WRITTEN = Event("report.not_written", "the night is committed, but its report could not be written")
REPORT_WRITTEN = Event("report.written", "the report of the night is written")

METRICS_NOT_WRITTEN = Event("metrics.not_written", "the metrics of the run could not be written")

COMMAND_RESULT = Event("command.result", "the result of the command")

LIBRARY_FAILED = Event("library.failed", "a library logged an error")
LIBRARY_WARNED = Event("library.warned", "a library warns")

EXIT_CLUSTER = Event("exit.cluster", "the cluster cannot be used")
EXIT_HELD_BACK = Event("exit.held_back", "the guard held the model back")
EXIT_INPUT_DATA = Event("exit.input_data", "the input data cannot be used")
EXIT_INTERRUPTED = Event("exit.interrupted", "interrupted")
EXIT_MEMORY = Event("exit.memory", "the memory limit is too low")
EXIT_MODEL = Event("exit.model", "the model cannot be used")
EXIT_NUMERICS = Event("exit.numerics", "the computation broke down numerically")
EXIT_OUTPUT_LOST = Event("exit.output_lost", "the command is done, but its output could not be written")
EXIT_STORE = Event("exit.store", "the store cannot be used")
EXIT_STORE_IN_USE = Event("exit.store_in_use", "the store is in use")
EXIT_TERMINATED = Event("exit.terminated", "terminated")
EXIT_UNEXPECTED = Event("exit.unexpected", "an unexpected error")
EXIT_UNREPORTED = Event("exit.unreported", "the model is committed, but has no report")
EXIT_USAGE = Event("exit.usage", "the command line or the job file is wrong")
