"""The commands that work on rows: run, plan, select, ingest, train, evaluate and predict."""

from pathlib import Path
from typing import Annotated

import typer

from ridgestream.jobs.cli.execution import open_job, run_step
from ridgestream.jobs.cli.exit_handling import orderly_exit
from ridgestream.jobs.cli.options import (
    ClusterJobOptions,
    NewModel,
    PredictOptions,
    Refit,
    Report,
    RunOptions,
    Snapshot,
    Wait,
)
from ridgestream.jobs.cli.results import print_result
from ridgestream.jobs.console.escaping import harmless_cells


def run(
    options: RunOptions, wait: Wait = 0.0, new_model: NewModel = False, refit: Refit = None, report: Report = None
) -> None:
    """Ingest new partitions, train on what is not learned yet, evaluate, commit: the same line every night."""
    from ridgestream.jobs.commands.run import run_job

    run_step(
        options.with_refit(refit).with_report(report),
        lambda job, executor, reporter: run_job(job, executor, reporter, wait, new_model=new_model),
        "run",
    )


def plan(options: ClusterJobOptions, new_model: NewModel = False, refit: Refit = None) -> None:
    """Show what a run would read, how much memory and time it needs, and what it would refuse; changes nothing."""
    with orderly_exit() as handler:
        from ridgestream.jobs.cluster.dask_executor import open_executor
        from ridgestream.jobs.commands.plan import run_plan
        from ridgestream.jobs.config.requests import cluster_of

        handler.output_wanted = True
        job = open_job(handler, options.with_refit(refit))
        with open_executor(*cluster_of(job)) as executor:
            result = run_plan(job, executor, new_model=new_model)
        print_result(result, as_json=options.as_json)


def select(options: RunOptions) -> None:
    """Compare every metric, width, λ and size on the job's first rows, and show what sets the best; changes nothing."""
    with orderly_exit() as handler:
        from ridgestream.jobs.console.progress import open_reporter
        from ridgestream.jobs.selection.grid_page import show_selection
        from ridgestream.jobs.selection.select import run_select

        handler.output_wanted = True
        job = open_job(handler, options)
        with open_reporter(job.log) as reporter:
            facts = run_select(job, reporter)
        if options.as_json or job.log == "json":
            print_result(facts, as_json=True, log=job.log)
        else:
            show_selection(harmless_cells(facts))


def ingest(options: RunOptions, wait: Wait = 0.0) -> None:
    """Ingest the partitions that the store lacks."""
    from ridgestream.jobs.commands.ingest import run_ingest

    run_step(options, lambda job, executor, reporter: run_ingest(job, executor, reporter, wait), "ingest")


def train(
    options: RunOptions, wait: Wait = 0.0, new_model: NewModel = False, refit: Refit = None, report: Report = None
) -> None:
    """Train the model on the partitions of the store that it has not learned yet."""
    from ridgestream.jobs.commands.train import run_train

    run_step(
        options.with_refit(refit).with_report(report),
        lambda job, executor, reporter: run_train(job, executor, reporter, wait, new_model=new_model),
        "train",
    )


def evaluate(
    options: RunOptions,
    snapshot: Snapshot = None,
    record: Annotated[
        bool, typer.Option("--record", help="Commit the errors of the last night, if its run could not find them.")
    ] = False,
    wait: Wait = 0.0,
) -> None:
    """Evaluate the model on the job's held-out partitions."""
    from ridgestream.jobs.commands.evaluate import run_evaluate, run_evaluate_night

    if record and snapshot is not None:
        raise typer.BadParameter("--record goes with the last night, not with --snapshot")
    run_step(
        options,
        lambda job, executor, reporter: (
            run_evaluate_night(job, executor, reporter, wait)
            if record
            else run_evaluate(job, executor, reporter, snapshot=snapshot)
        ),
        "evaluate",
    )


def predict(
    options: PredictOptions,
    source: Annotated[str | None, typer.Argument(metavar="[INPUT]", help="Partitions to predict.")] = None,
    output: Annotated[str | None, typer.Argument(metavar="[OUTPUT]", help="Folder for the predictions.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Predict finished partitions again, too.")] = False,
    snapshot: Snapshot = None,
) -> None:
    """Predict Parquet partitions, row for row, one output file each, by the model of a job or of a store."""
    from ridgestream.jobs.commands.predict import run_predict
    from ridgestream.pipeline.prediction.prediction_columns import Extras

    run_step(
        options,
        lambda job, executor, reporter: run_predict(
            job,
            job.location(source, Path.cwd()) if source else None,
            job.location(output, Path.cwd()) if output else None,
            executor,
            reporter,
            extras=Extras(options.with_scores, options.with_std, options.level, options.with_probabilities),
            snapshot=snapshot,
            again=again,
        ),
        "predict",
    )
