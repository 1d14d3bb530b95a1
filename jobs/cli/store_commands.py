"""The commands that look into a store, or change what it serves, without learning: such as inspect or clean."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ridgestream.jobs.cli.execution import find_store, open_job
from ridgestream.jobs.cli.exit_handling import orderly_exit
from ridgestream.jobs.cli.options import AsJson, ExportOptions, JobOptions, Report, StoreOptions, Wait, number_of
from ridgestream.jobs.cli.results import print_result
from ridgestream.jobs.console.escaping import harmless, harmless_cells


def status(
    options: JobOptions,
    max_age: Annotated[
        str, typer.Option(metavar="AGE|none", help="How long ago a new partition may have come: 90m, 36h, 7d.")
    ] = "36h",
) -> None:
    """Say in one line, and by the exit code, whether a job needs a person: for monitors."""
    with orderly_exit() as handler:
        from ridgestream.jobs.cli.exit_codes import STATUS_CODES
        from ridgestream.jobs.commands.status import parse_age, run_status

        age = parse_age(max_age)
        result = run_status(open_job(handler, options), age)
        line = harmless("{status}: {model}: {message}".format(**result))
        typer.echo(json.dumps(result) if options.as_json else line)
        code = STATUS_CODES[result["status"]]
    if code:
        raise typer.Exit(code)


def inspect(options: StoreOptions) -> None:
    """Show what a store holds: partitions, models, and what each run did."""
    with orderly_exit() as handler:
        from ridgestream.jobs.commands.inspect import run_inspect, show_inspection

        handler.output_wanted = True
        contents = run_inspect(find_store(handler, options)[0])
        if options.as_json:
            typer.echo(json.dumps(contents))
        else:
            show_inspection(harmless_cells(contents))


def history(options: StoreOptions) -> None:
    """List the nights of a job's model, or of all models of a store, with the numbers and tags that name them."""
    with orderly_exit() as handler:
        from ridgestream.jobs.commands.history import run_history, show_history

        handler.output_wanted = True
        location, job = find_store(handler, options)
        nights = run_history(location, job.model.name if job else None)
        if options.as_json:
            typer.echo(json.dumps(nights))
        else:
            show_history(harmless_cells(nights))


def report(
    options: JobOptions,
    night: Annotated[
        int | None,
        typer.Option(metavar="N", parser=number_of(int, 1), help="The night's number; the last one if not given."),
    ] = None,
    folder: Report = None,
) -> None:
    """Write the report of a night again, from the store alone."""
    with orderly_exit() as handler:
        from ridgestream.jobs.report.report_files import run_report

        result = run_report(open_job(handler, options.with_report(folder)), night)
        print_result(result, as_json=options.as_json)


def tag(
    options: JobOptions,
    name: Annotated[str, typer.Argument(help="The tag; it cannot be moved or removed.")],
    night: Annotated[
        str | None,
        typer.Option("--snapshot", metavar="NIGHT|TAG|ID", help="What it names; the last commit if not given."),
    ] = None,
) -> None:
    """Give a name to what the store holds now, or held after a night, for predict --snapshot."""
    with orderly_exit() as handler:
        from ridgestream.jobs.commands.history import run_tag

        print_result(run_tag(open_job(handler, options), name, night), as_json=options.as_json)


def rollback(
    options: JobOptions,
    night: Annotated[
        str, typer.Argument(metavar="NIGHT", help="The night's number, a tag or a snapshot; see history.")
    ],
    replay: Annotated[
        bool, typer.Option("--replay", help="Learn again what was learned since, and all excluded partitions.")
    ] = False,
    wait: Wait = 0.0,
) -> None:
    """Take the model back to a night; partitions that it has learned since are excluded from now on."""
    with orderly_exit() as handler:
        from ridgestream.jobs.commands.history import run_rollback

        result = run_rollback(open_job(handler, options), night, wait, replay=replay)
        print_result(result, as_json=options.as_json)


def quarantine(
    options: JobOptions,
    partition: Annotated[str, typer.Argument(help="The partition's name, relative to the source.")],
    reason: Annotated[str, typer.Option(help="Why.")] = "rejected by hand",
    release: Annotated[bool, typer.Option("--release", help="Take it out of quarantine.")] = False,
    wait: Wait = 0.0,
) -> None:
    """Reject a partition: no model learns it until it is released."""
    with orderly_exit() as handler:
        from ridgestream.jobs.commands.quarantine import run_quarantine

        result = run_quarantine(open_job(handler, options), partition, reason, wait, release=release)
        print_result(result, as_json=options.as_json)


def accept(
    options: JobOptions,
    columns: Annotated[list[str], typer.Argument(metavar="COLUMN...", help="Columns that drift; see status.")],
    wait: Wait = 0.0,
) -> None:
    """Take what columns that drift are now as normal: they are reported again only if they move from there."""
    with orderly_exit() as handler:
        from ridgestream.jobs.commands.quarantine import run_accept

        print_result(run_accept(open_job(handler, options), columns, wait), as_json=options.as_json)


def clean(
    options: StoreOptions,
    older_than: Annotated[
        float,
        typer.Option(metavar="HOURS", parser=number_of(float, 0, 1e6), help="Keep every commit that is younger."),
    ] = 24.0,
    keep_nights: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=number_of(int, 1), help="Of each model, keep the last N nights to go back to."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")] = False,
    wait: Wait = 0.0,
) -> None:
    """Delete what a store no longer needs; nights, their models and what is being read stay."""
    with orderly_exit() as handler:
        from ridgestream.jobs.commands.clean import run_clean

        location = find_store(handler, options)[0]
        result = run_clean(location, older_than, wait, keep_nights=keep_nights, dry_run=dry_run)
        print_result(result, as_json=options.as_json)


def export(options: ExportOptions) -> None:
    """Write a model as a file for other programs: ONNX, or a pipeline of scikit-learn's own parts for skops."""
    with orderly_exit() as handler:
        from ridgestream.jobs.api.export import ExportRequest, run_export

        request = ExportRequest(options.file, options.format, options.snapshot, options.std)
        print_result(run_export(open_job(handler, options), request), as_json=options.as_json)


def warm(as_json: AsJson = False) -> None:
    """Compile the learner into the cache, as the first run would: after an installation, or as an image is built."""
    with orderly_exit() as handler:
        from ridgestream.jobs.cli.exit_codes import UNEXPECTED
        from ridgestream.jobs.commands.warm import NotCached, run_warm
        from ridgestream.jobs.console.progress import open_reporter

        try:
            with open_reporter(handler.log) as report:
                result = run_warm(report)
        except NotCached as error:
            handler.exit(str(error), UNEXPECTED, NotCached.__name__)
        print_result(result, as_json=as_json, log=handler.log)


def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The study; --list names all.")] = None,
    *,
    list_all: Annotated[
        bool, typer.Option("--list", help="Show what there is, what it needs, and how long it takes.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The folder with the sets of rows, NAME.parquet.")
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(metavar="N", parser=number_of(int, 1), help="Repeats of each cell, in place of the paper's."),
    ] = None,
    only: Annotated[str, typer.Option(metavar="TEXT", help="Measure the cells whose names have this text.")] = "",
    cluster: Annotated[str, typer.Option(help="none, local, local:N, a scheduler's address, or file:PATH.")] = "none",
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Where measurements are kept; the page of all is FOLDER.md."
        ),
    ] = Path("reproduction"),
    as_json: AsJson = False,
) -> None:
    """Measure a table of a paper again, and show it beside the paper's values; what is measured is kept."""
    if (name is None) != list_all:
        raise typer.BadParameter("give the name of a study, or --list")
    with orderly_exit() as handler:
        from ridgestream.jobs.cluster.dask_executor import open_executor
        from ridgestream.jobs.config.cluster_options import CLUSTER_SECONDS
        from ridgestream.jobs.reproduction.page import show_reproduction
        from ridgestream.jobs.reproduction.run import list_studies, run_reproduce

        handler.output_wanted = True
        if name is None:
            print_result({study.pop("name"): study for study in list_studies()}, as_json=as_json)
            return
        with open_executor(cluster, CLUSTER_SECONDS) as executor:
            facts = run_reproduce(name, repeats, output.absolute(), data and data.absolute(), executor, only)
        if as_json:
            print_result(facts, as_json=True)
        else:
            show_reproduction(facts)
