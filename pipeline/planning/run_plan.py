"""The plan of a run: what it will ingest, learn and refit, computed once before the first row is read.

`ridgestream plan` prints it; `ridgestream run` and `ridgestream train` carry it out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ridgestream.pipeline.base.memory_plan import BatchPlan, MetricPlan, RefitPlan, TrainingPlan, check_plans
from ridgestream.pipeline.batch.method import PassPlan
from ridgestream.pipeline.dataset.feature_map_fit import has_rows
from ridgestream.pipeline.dataset.feature_map_growth import feature_map_of
from ridgestream.pipeline.dataset.stored_rows import TASK_ROWS
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.ingest.source_diff import count_usable_rows, diff_source
from ridgestream.pipeline.models.model_record import is_refitted, n_basis_of
from ridgestream.pipeline.prediction.held_out import held_out_feature_map
from ridgestream.pipeline.training.online.shared_cells import fewest_shared
from ridgestream.pipeline.training.pilot import plan_pilot
from ridgestream.pipeline.training.refit import count_features, may_refit, plan_refit
from ridgestream.pipeline.training.request import EXPERTS, OnlineRequest, Request, adopt_settings
from ridgestream.pipeline.training.trainer import Trainer, trainer_of
from ridgestream.pipeline.training.training_result import Standing, find_unlearned, standing_of
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry, read_ledger
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.parquet.partitions import PartitionFile
from ridgestream.stores.segments.segments import Segments

if TYPE_CHECKING:
    import zarr


@dataclass(frozen=True)
class RunPlan:
    """What a run will do with a store, a model and the files of a source."""

    trainer: Trainer
    """Trains the model."""
    standing: Standing
    """The model and its partitions, as the store has them."""
    fresh: tuple[PartitionFile, ...]
    """The files to be ingested."""
    fresh_rows: tuple[int, ...]
    """The number of rows of each of them by its footer; 0 for a file without a readable one."""
    has_stored_rows: bool
    """Whether the store has a row of positive weight to train a new model with; not computed where there is a model."""
    asks_refit: bool
    """Whether the job asks for a refit."""
    may_refit: bool
    """Whether the job leaves it to the rows."""
    memory_limit_bytes: int
    """The memory that this process may use."""

    @property
    def ledger(self) -> Ledger:
        """The model's partitions in the store."""
        return self.standing.ledger

    @property
    def record(self) -> ModelRecord | None:
        """The model that is trained further; None for a new one."""
        return self.standing.record

    @cached_property
    def unlearned(self) -> tuple[LedgerEntry, ...]:
        """The partitions of the store that the model has not learned."""
        return find_unlearned(self.ledger, self.record)

    @property
    def rows(self) -> int:
        """The number of rows after the ingest."""
        return self.ledger.rows + sum(self.fresh_rows)

    @property
    def new_rows(self) -> int:
        """The number of rows that the model will learn."""
        return sum(self.fresh_rows) + sum(entry.rows for entry in self.unlearned)

    @property
    def is_changed(self) -> bool:
        """Whether the job asks for another regularization than the model has."""
        return self.trainer.is_changed(self.record)

    @property
    def learns(self) -> bool:
        """Whether the model will change, by new partitions or without any."""
        has_rows_to_begin = self.record is not None or self.has_stored_rows or sum(self.fresh_rows) > 0
        return self.is_changed or (bool(self.fresh or self.unlearned) and has_rows_to_begin)

    @property
    def refits(self) -> bool:
        """Whether there will be a refit: the job asks for one, and the coefficients will not be those of one yet."""
        return self.asks_refit and (self.learns or (self.record is not None and not is_refitted(self.record)))

    @property
    def tries_refit(self) -> bool:
        """Whether a refit will be tried, unless the dictionary stays far smaller than it may be."""
        request, n_basis = self.trainer.request, self.experts * self.max_basis
        local = isinstance(request, OnlineRequest) and (request.experts > 1 or EXPERTS in request.chooses)
        return self.may_refit and self.learns and may_refit(request, self.rows, n_basis, local=local)

    @property
    def is_due(self) -> bool:
        """Whether there is anything to train."""
        return self.learns or self.refits

    @property
    def experts(self) -> int:
        """The number of cells that have a dictionary each, as far as the job gives it."""
        request = self.trainer.request
        return request.experts if isinstance(request, OnlineRequest) else 1

    @property
    def shares_cells(self) -> bool:
        """Whether workers, if there are any, share the cells of the rows to learn."""
        return self.experts > 1 and self.new_rows >= fewest_shared(self.experts)

    @property
    def max_basis(self) -> int:
        """The size of the largest dictionary; without a limit, of the present one."""
        present = n_basis_of(self.record) if self.record else 0
        return self.trainer.request.max_basis or max(present, 1)

    @property
    def feature_map(self) -> FeatureMap | None:
        """The model's feature map; None for a new model."""
        return feature_map_of(self.record) if self.record else None

    @property
    def reads_all_rows(self) -> bool:
        """Whether each pass of training reads all rows, not new ones alone."""
        return self.trainer.reads_all_rows(self.record)

    @property
    def rows_per_pass(self) -> int:
        """The number of rows that each pass of training reads."""
        return self.rows if self.reads_all_rows else self.new_rows

    @cached_property
    def passes(self) -> tuple[PassPlan, ...]:
        """The passes of training over the rows, without the refit."""
        if not (self.learns and self.rows_per_pass):
            return ()
        return self.trainer.passes(self.record, self.rows, self.new_rows)

    @property
    def tasks_per_pass(self) -> int:
        """The number of tasks that workers share in each pass of training; 0 if they share none."""
        if not (self.trainer.shares_passes and self.passes):
            return 0
        entries = self.ledger.entries if self.reads_all_rows else self.unlearned
        return sum(-(-rows // TASK_ROWS) for rows in (*(entry.rows for entry in entries), *self.fresh_rows))

    def memory(self, n_features: int, n_outputs: int) -> "list[TrainingPlan | BatchPlan | MetricPlan | RefitPlan]":
        """Return the memory that training needs, and that of learning a metric and of a refit if there are such."""
        training = self.trainer.plan_memory(self.record, self.rows, n_features, n_outputs)
        pilot = plan_pilot(self.trainer.request, self.record, n_features, self.rows)
        refit = self._plan_refit(training, n_features) if self.refits or self.tries_refit else None
        return [training, *(each for each in (pilot, refit) if each is not None)]

    def _plan_refit(self, training: TrainingPlan | BatchPlan, n_features: int) -> RefitPlan:
        """Return the memory that a refit needs, of as many cells as training may have."""
        if isinstance(training, TrainingPlan):
            return plan_refit(n_features, training.max_basis, training.experts)
        return plan_refit(n_features, self.max_basis)

    def held_out_feature_map(self, root: "zarr.Group") -> FeatureMap:
        """Return a feature map by which held-out rows are checked before training; `root` has all its partitions."""
        request = self.trainer.request
        asked = request.scaling_rows, request.rules, request.unseen_categories
        return held_out_feature_map(root, self.ledger, self.record, *asked)

    def check_request(self) -> None:
        """Raise ModelError, naming each parameter that differs, if the job asks for another model than the store's."""
        if self.record is not None:
            self.trainer.check(self.ledger, self.record)

    def check_memory(self, n_features: int | None = None) -> None:
        """Raise MemoryRefused, with the numbers, if there is something to train that cannot fit.

        `n_features` is given where the ledger does not have it yet.
        """
        if self.is_due:
            plans = self.memory(n_features or count_features(self.ledger), 1)
            check_plans(plans if self.learns else plans[1:], self.memory_limit_bytes)


def plan_run(
    root: "zarr.Group | None",
    files: Sequence[PartitionFile],
    request: Request,
    *,
    asks_refit: bool,
    may_refit: bool = False,
    memory_limit_bytes: int,
    new_model: bool,
) -> RunPlan:
    """Return the plan of a run over these files; reads the ledger, the model and the footers of new files.

    An existing model keeps the settings that its pilot chose, wherever the request leaves them open.

    `root` is the store's last commit, None if there is no store yet.
    """
    standing, ledger = Standing(Ledger(), None, None), Ledger()
    if root is not None:
        ledger = read_ledger(root)
        standing = standing_of(root, request.name, new_model=new_model, ledger=ledger)
    fresh = diff_source(ledger, files).fresh
    return RunPlan(
        trainer=trainer_of(adopt_settings(request, standing.record)),
        standing=standing,
        fresh=fresh,
        fresh_rows=tuple(count_usable_rows(fresh)),
        has_stored_rows=root is not None and standing.record is None and has_rows(Segments(root), standing.ledger),
        asks_refit=asks_refit,
        may_refit=may_refit,
        memory_limit_bytes=memory_limit_bytes,
    )
