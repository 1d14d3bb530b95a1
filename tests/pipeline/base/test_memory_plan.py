"""Memory as it is planned, where a figure is promised."""

from ridgestream.pipeline.base.memory_plan import BatchPlan
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES


def test_a_worker_sums_four_thousand_candidates_of_one_fold_within_1200_megabytes() -> None:
    one, five = (BatchPlan("shard-merge-select", 4000, folds, 54, BLOCK_BYTES) for folds in (1, 5))
    assert one.worker_bytes < 1.2e9 < five.worker_bytes
    assert one.total_bytes < five.total_bytes
