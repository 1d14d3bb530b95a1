"""The command `ridgestream`: its commands and flags. What they do is imported when one runs, so that help is quick."""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ridgestream import __version__
from ridgestream.jobs.cli.exit_handling import Leaving, end_log, orderly_exit, unexpected
from ridgestream.jobs.console.escaping import harmless_cells
from ridgestream.jobs.console.log_format import Log, guess_log, route_libraries

if TYPE_CHECKING:
    from ridgestream.jobs.config.job_file import Job
    from ridgestream.pipeline.base.executor import Executor
    from ridgestream.pipeline.base.reporter import Reporter
    from ridgestream.stores.repository.store_location import StoreLocation

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Stream Parquet partitions through chunked Zarr storage into sparse kernel least-squares models.",
    epilog="Exit codes: 0 done, 1 unexpected, 2 usage or job file, 3 input data, 4 store, 5 store in use, 6 numerics, "
    "7 memory, 8 cluster, 9 model, 11 held back by the guard, 12 committed, but without its report, "
    "130 interrupted, 143 terminated.",
)

JobFile = Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the job file, such as model.max_basis=100."),
]
StorePath = Annotated[str | None, typer.Option("--store", help="The store, in place of the job file's.")]
Cluster = Annotated[str | None, typer.Option(help="none, local, local:N, a scheduler's address, or file:PATH.")]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", min=0, help="Wait so long for another writer to finish.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Refit = Annotated[
    bool | None,
    typer.Option("--refit/--no-refit", help="Fit the coefficients to all learned rows by one more pass, or do not."),
]
Snapshot = Annotated[
    str | None,
    typer.Option(
        "--snapshot", metavar="NIGHT|TAG|ID", help="The store as it was: a night's number, a tag, a snapshot."
    ),
]
Report = Annotated[
    str | None,
    typer.Option("--report", metavar="FOLDER|none", help="Where the night's report goes, JSON and a page."),
]
LogForm = Annotated[
    Log | None, typer.Option("--log", help="Bars on a terminal and text elsewhere, text, or lines of JSON.")
]
NewModel = Annotated[bool, typer.Option("--new-model", help="Begin the model anew, also with other parameters.")]


@app.command()
def run(
    job: JobFile,
    settings: Settings = None,
    store: StorePath = None,
    cluster: Cluster = None,
    wait: Wait = 0.0,
    new_model: NewModel = False,
    refit: Refit = None,
    report: Report = None,
    log: LogForm = None,
    as_json: AsJson = False,
) -> None:
    """Ingest what is new, learn what is not learned yet, evaluate, commit: the same line every night."""
    from ridgestream.jobs.commands.run import run_job

    _run(
        job,
        _with_report(_with_refit(settings, refit=refit), report),
        store,
        cluster,
        lambda j, e, r: run_job(j, e, r, wait, new_model=new_model),
        log,
        as_json=as_json,
    )


@app.command()
def plan(
    job: JobFile,
    settings: Settings = None,
    store: StorePath = None,
    cluster: Cluster = None,
    new_model: NewModel = False,
    refit: Refit = None,
    as_json: AsJson = False,
) -> None:
    """Tell what a run would read, hold and take, and refuse what it would refuse; nothing is changed."""
    with orderly_exit() as leaving:
        from ridgestream.jobs.cluster.dask_executor import open_executor
        from ridgestream.jobs.commands.plan import run_plan
        from ridgestream.jobs.config.requests import cluster_of

        read = _read_job(leaving, job, _with_refit(settings, refit=refit), store, cluster)
        with open_executor(*cluster_of(read)) as executor:
            told = run_plan(read, executor, new_model=new_model)
        _tell(told, as_json=as_json)


@app.command()
def ingest(
    job: JobFile,
    settings: Settings = None,
    store: StorePath = None,
    cluster: Cluster = None,
    wait: Wait = 0.0,
    log: LogForm = None,
    as_json: AsJson = False,
) -> None:
    """Take in the partitions that the store lacks."""
    from ridgestream.jobs.commands.ingest import run_ingest

    _run(job, settings, store, cluster, lambda j, e, r: run_ingest(j, e, r, wait), log, as_json=as_json)


@app.command()
def train(
    job: JobFile,
    settings: Settings = None,
    store: StorePath = None,
    cluster: Cluster = None,
    wait: Wait = 0.0,
    new_model: NewModel = False,
    refit: Refit = None,
    report: Report = None,
    log: LogForm = None,
    as_json: AsJson = False,
) -> None:
    """Teach the model the partitions of the store that it has not learned yet."""
    from ridgestream.jobs.commands.train import run_train

    _run(
        job,
        _with_report(_with_refit(settings, refit=refit), report),
        store,
        cluster,
        lambda j, e, r: run_train(j, e, r, wait, new_model=new_model),
        log,
        as_json=as_json,
    )


@app.command()
def evaluate(
    job: JobFile,
    settings: Settings = None,
    store: StorePath = None,
    cluster: Cluster = None,
    snapshot: Snapshot = None,
    log: LogForm = None,
    as_json: AsJson = False,
) -> None:
    """Judge the model on the job's held-out partitions."""
    from ridgestream.jobs.commands.evaluate import run_evaluate

    _run(job, settings, store, cluster, lambda j, e, r: run_evaluate(j, e, r, snapshot=snapshot), log, as_json=as_json)


@app.command()
def predict(
    job: JobFile,
    source: Annotated[str | None, typer.Argument(metavar="[INPUT]", help="Partitions to predict.")] = None,
    output: Annotated[str | None, typer.Argument(metavar="[OUTPUT]", help="Folder for the predictions.")] = None,
    with_std: Annotated[bool, typer.Option("--std", help="Add standard deviations.")] = False,
    with_scores: Annotated[bool, typer.Option("--scores", help="Add each class's score.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Predict also what is finished already.")] = False,
    snapshot: Snapshot = None,
    settings: Settings = None,
    store: StorePath = None,
    cluster: Cluster = None,
    log: LogForm = None,
    as_json: AsJson = False,
) -> None:
    """Predict Parquet partitions, row for row, one output file each."""
    from ridgestream.jobs.commands.predict import run_predict

    _run(
        job,
        settings,
        store,
        cluster,
        lambda j, e, r: run_predict(
            j,
            j.place(source, Path.cwd()) if source else None,
            j.place(output, Path.cwd()) if output else None,
            e,
            r,
            with_std=with_std,
            with_scores=with_scores,
            snapshot=snapshot,
            again=again,
        ),
        log,
        as_json=as_json,
    )


@app.command()
def inspect(
    place: Annotated[str, typer.Argument(metavar="JOB.toml|STORE", help="A job file, or a store.")],
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Show what a store holds: partitions, models, and what each run did."""
    with orderly_exit() as leaving:
        from ridgestream.jobs.commands.inspect import run_inspect, show_inspection

        told = run_inspect(_place(leaving, place, settings)[0])
        if as_json:
            typer.echo(json.dumps(told))
        else:
            show_inspection(harmless_cells(told))


@app.command()
def history(
    place: Annotated[str, typer.Argument(metavar="JOB.toml|STORE", help="A job file, or a store.")],
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """List the nights of a job's model, or of all models of a store, with the names that they can be asked for by."""
    with orderly_exit() as leaving:
        from ridgestream.jobs.commands.history import run_history, show_history

        location, read = _place(leaving, place, settings)
        told = run_history(location, read.model.name if read else None)
        if as_json:
            typer.echo(json.dumps(told))
        else:
            show_history(harmless_cells(told))


@app.command()
def report(
    job: JobFile,
    night: Annotated[int | None, typer.Option(min=1, help="The night's number; the last one if not given.")] = None,
    folder: Report = None,
    settings: Settings = None,
    store: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of a night again, from the store alone."""
    with orderly_exit() as leaving:
        from ridgestream.jobs.report.report_files import run_report

        told = run_report(_read_job(leaving, job, _with_report(settings, folder), store, None), night)
        _tell(told, as_json=as_json)


@app.command()
def tag(
    job: JobFile,
    name: Annotated[str, typer.Argument(help="The tag: for good.")],
    night: Annotated[
        str | None, typer.Option("--snapshot", metavar="NIGHT|ID", help="What it names; now if not given.")
    ] = None,
    settings: Settings = None,
    store: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """Name what the store holds now, or held after a night: for predict --snapshot."""
    with orderly_exit() as leaving:
        from ridgestream.jobs.commands.history import run_tag

        _tell(run_tag(_read_job(leaving, job, settings, store, None), name, night), as_json=as_json)


@app.command()
def rollback(
    job: JobFile,
    night: Annotated[int, typer.Argument(metavar="NIGHT", min=1, help="The night's number; see history.")],
    replay: Annotated[
        bool, typer.Option("--replay", help="Learn again what was learned since, and all excluded.")
    ] = False,
    settings: Settings = None,
    store: StorePath = None,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Take the model back to a night; what it has learned since is excluded from now on."""
    with orderly_exit() as leaving:
        from ridgestream.jobs.commands.history import run_rollback

        told = run_rollback(_read_job(leaving, job, settings, store, None), night, wait, replay=replay)
        _tell(told, as_json=as_json)


@app.command()
def quarantine(
    job: JobFile,
    partition: Annotated[str, typer.Argument(help="The partition's name, relative to the source.")],
    reason: Annotated[str, typer.Option(help="Why.")] = "rejected by hand",
    release: Annotated[bool, typer.Option("--release", help="Take it out of quarantine.")] = False,
    settings: Settings = None,
    store: StorePath = None,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Reject a partition: no model learns it until it is released."""
    with orderly_exit() as leaving:
        from ridgestream.jobs.commands.quarantine import run_quarantine

        told = run_quarantine(_read_job(leaving, job, settings, store, None), partition, reason, wait, release=release)
        _tell(told, as_json=as_json)


@app.command()
def clean(
    place: Annotated[str, typer.Argument(metavar="JOB.toml|STORE", help="A job file, or a store.")],
    older_than: Annotated[
        float, typer.Option(metavar="HOURS", min=0, max=1e6, help="Keep every commit that is younger.")
    ] = 24.0,
    keep_nights: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Of each model, keep the last N nights to go back to.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would go, and take nothing.")] = False,
    settings: Settings = None,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Free what a store no longer needs; nights, their models and what is being read stay."""
    with orderly_exit() as leaving:
        from ridgestream.jobs.commands.clean import run_clean

        location = _place(leaving, place, settings)[0]
        told = run_clean(location, older_than, wait, keep_nights=keep_nights, dry_run=dry_run)
        _tell(told, as_json=as_json)


@app.callback(invoke_without_command=True)
def _root(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show_version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> NoReturn:
    """Run the command line, then leave at once, without Python's own end.

    Threads of the storage engine may be on their way into Python when that begins; CPython up to 3.13 ends such threads
    in a way that aborts the process, after all is done and committed, and a scheduler would see a failed job.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda came, _: os._exit(128 + came))  # until a command looks out for them
    code = _run_app()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # whoever read it has gone
            stream.flush()
    os._exit(code)


def _run_app() -> int:
    as_json = guess_log(sys.argv[1:], os.environ) == "json"
    try:
        code = app(standalone_mode=not as_json)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException as error:  # noqa: BLE001
        if as_json:
            return _tell_failure(error)
        end_log("text", "", 1, error)
        return 1
    return code if isinstance(code, int) else 0


def _tell_failure(error: BaseException) -> int:
    """Write a line of JSON about an error of usage, or one that nobody has foreseen, and return the exit code."""
    told: Callable[[], str] | None = getattr(error, "format_message", None)
    if told is None:
        end_log("json", unexpected(error), 1, error)
        return 1
    code = int(getattr(error, "exit_code", 1))
    end_log("json", told() or "give a command; --help lists them", code)
    return code


def _run(
    job: Path,
    settings: list[str] | None,
    store: str | None,
    cluster: str | None,
    step: "Callable[[Job, Executor, Reporter], dict[str, Any]]",
    log: Log | None,
    *,
    as_json: bool,
) -> None:
    from ridgestream.jobs.cli.signals import SOFT_SECONDS, Stoppable

    with orderly_exit(SOFT_SECONDS) as leaving:
        from ridgestream.jobs.cluster.dask_executor import open_executor
        from ridgestream.jobs.config.requests import cluster_of
        from ridgestream.jobs.console.progress import open_reporter

        read = _read_job(leaving, job, settings, store, cluster, log)
        leaving.log = read.log
        with open_reporter(read.log) as report, open_executor(*cluster_of(read), report) as executor:
            leaving.stopping.check()
            if read.log == "json":
                route_libraries()
            told, message, code = _step(lambda: step(read, executor, Stoppable(report, leaving.stopping)))
        _tell(told, as_json=as_json)
        if code:
            leaving.leave(message, code)


def _step(step: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], str, int]:
    """Return what a step tells; of a night that is committed, but not as asked, also what is to be said, and a code."""
    from ridgestream.jobs.cli.exit_codes import HELD, UNREPORTED
    from ridgestream.jobs.report.report_files import Concluded, Unreported

    try:
        return step(), "", 0
    except Concluded as ended:
        return ended.told, str(ended), UNREPORTED if isinstance(ended, Unreported) else HELD


def _with_refit(settings: list[str] | None, *, refit: bool | None) -> list[str] | None:
    """Return the assignments with that of the flag, if it is given, after them."""
    return settings if refit is None else [*(settings or []), f"model.refit={'true' if refit else 'false'}"]


def _with_report(settings: list[str] | None, folder: str | None) -> list[str] | None:
    """Return the assignments with that of the flag, relative to where the user is, after them."""
    if folder is None:
        return settings
    place = folder if folder == "none" else _from_here(folder)
    return [*(settings or []), f"report={json.dumps(place, ensure_ascii=False)}"]


def _from_here(place: str) -> str:
    """Return a place of the command line as a job file can name it: a URL as it is, a path from where the user is."""
    return place if "://" in place or place.startswith("file:") else str(Path(place).absolute())


def _read_job(
    leaving: Leaving,
    path: Path,
    settings: list[str] | None,
    store: str | None,
    cluster: str | None,
    log: Log | None = None,
) -> "Job":
    from ridgestream.jobs.config.job_file import parse_flags, read_job
    from ridgestream.jobs.config.requests import store_location

    flags = parse_flags(settings or [])
    if store is not None:
        flags["store"] = _from_here(store)
    if cluster is not None:
        flags["cluster"] = f"file:{Path(cluster[5:]).absolute()}" if cluster.startswith("file:") else cluster
    if log is not None:
        flags["log"] = log
    job = read_job(path, flags)
    leaving.watch(store_location(job))
    return job


def _place(leaving: Leaving, place: str, settings: list[str] | None) -> "tuple[StoreLocation, Job | None]":
    """Return where a store is, and the job, if the place is a job file."""
    from ridgestream.jobs.config.requests import is_job_file, store_location
    from ridgestream.stores.repository.store_location import StoreLocation

    if not is_job_file(place):
        location = StoreLocation.parse(place, Path.cwd())
        leaving.watch(location)
        return location, None
    job = _read_job(leaving, Path(place), settings, None, None)
    return store_location(job), job


def _tell(told: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(told))
        return
    for key, value in harmless_cells(told).items():
        if key == "confusion":
            _show_confusion(value)
        elif isinstance(value, dict):
            _tell({f"{key}.{name}": part for name, part in value.items()}, as_json=False)
        elif value is not None:
            typer.echo(f"{key:>20}  {_show(value)}")


def _show(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _show_confusion(confusion: dict[str, Any]) -> None:
    from ridgestream.jobs.console.confusion_table import confusion_table
    from ridgestream.jobs.console.tables import open_console

    console = open_console()
    console.print("confusion: true classes (rows) and what they were taken for")
    console.print(confusion_table(confusion))
