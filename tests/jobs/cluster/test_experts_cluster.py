"""Local experts on clusters: workers share the cells of a pass, and none of them, killed, changes a bit."""

from functools import partial
from pathlib import Path

import pytest
from support.jobs.clusters import learn_cells_or_die, real_cluster
from support.jobs.jobs import (
    PATIENCE,
    Settings,
    Workplace,
    assert_same_model,
    forest_job,
    put_forest,
    run_command,
    start_command,
    wait_until,
)

from ridgestream.jobs.cluster.dask_executor import open_executor
from ridgestream.pipeline.training.online import shared_cells

ROWS, PARTITIONS = 48_000, 4
JOB: Settings = {
    **forest_job(ROWS, PARTITIONS, max_basis=40),
    "model.experts": 24,
    "model.kernel.gamma": 0.1,
    "model.metric_options.rows": 2000,
}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """What a run without a cluster makes."""
    work = workplace(tmp_path_factory.mktemp("straight"))
    work.run_here(JOB)
    return work


def workplace(folder: Path) -> Workplace:
    work = Workplace(folder)
    put_forest(work, ROWS, PARTITIONS)
    return work


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_number_of_workers_changes_no_bit(tmp_path: Path, straight: Workplace, workers: int) -> None:
    work = workplace(tmp_path)
    done = run_command("run", work.job(JOB), "--cluster", f"local:{workers}", "--json")
    assert done.result["rows_seen"] == ROWS
    assert "large graph" not in done.err
    assert_same_model(work.model(), straight.model())


@pytest.mark.thorough
def test_workers_killed_while_they_learn_change_no_bit(
    tmp_path: Path, straight: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, killed = workplace(tmp_path), tmp_path / "killed"
    killed.mkdir()
    monkeypatch.setattr(shared_cells, "learn_cells", partial(learn_cells_or_die, killed, 2))
    with real_cluster(tmp_path, 3) as cluster, open_executor(cluster.address, PATIENCE) as executor:
        work.run_here(JOB, executor=executor)
        assert executor.count_workers() == 1
    assert_same_model(work.model(), straight.model())


@pytest.mark.thorough
def test_a_job_killed_while_workers_learn_is_ended_by_the_same_command(tmp_path: Path, straight: Workplace) -> None:
    work, log = workplace(tmp_path), tmp_path / "log"
    with real_cluster(tmp_path, 2) as cluster:
        process = start_command("run", work.job(JOB), "--cluster", cluster.address, log=log)
        wait_until(lambda: "features.scale_from_few_rows" in log.read_text(), process)
        process.kill()
        process.wait()
        assert run_command("run", work.job(JOB), "--cluster", cluster.address, "--json").result["rows_seen"] == ROWS
    assert_same_model(work.model(), straight.model())
