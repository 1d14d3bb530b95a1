"""Options that several commands share, in bundles: a command's parameter `options` stands for a bundle's fields."""

import functools
import inspect
import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Self, get_type_hints

import typer

from ridgestream.jobs.cli.exit_handling import last_resort
from ridgestream.jobs.console.log_format import Log
from ridgestream.jobs.recipes.bundled import recipe_names


def complete_job(incomplete: str) -> Iterator[str]:
    """Yield what a shell may complete to a job: bundled recipes, folders and TOML files; hidden ones if asked for."""
    yield from (name for name in recipe_names() if name.startswith(incomplete))
    folder, slash, start = incomplete.rpartition("/")
    for path in sorted(Path(f"{folder}{slash}").glob("*")):
        if path.name.startswith(start) and (start or not path.name.startswith(".")):
            if path.is_dir():
                yield f"{folder}{slash}{path.name}/"
            elif path.suffix == ".toml":
                yield f"{folder}{slash}{path.name}"


_RECIPES = f"or the name of a bundled recipe where there is no such file: {', '.join(recipe_names())}"


def number_of(kind: type[int] | type[float], least: float, most: float = math.inf) -> Callable[[Any], Any]:
    """Return a parser of an option's number, from `least` to `most`; it raises BadParameter, which names the value."""
    wanted = f"{'a whole number' if kind is int else 'a number'} of at least {least:g}"
    wanted += f" and at most {most:,.0f}" if most < math.inf else ""

    def parse(text: Any) -> Any:  # noqa: ANN401 (a default is no text)
        with suppress(ValueError):
            if least <= (number := kind(text)) <= most:
                return number
        raise typer.BadParameter(f"give {wanted}; it is {text!r}")

    return parse


Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the job file, such as model.max_basis=100."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Wait = Annotated[
    float,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        parser=number_of(float, 0),
        help="Wait up to this long for another writer to finish.",
    ),
]
Refit = Annotated[
    bool | None,
    typer.Option("--refit/--no-refit", help="Fit the coefficients to all learned rows by one more pass, or do not."),
]
Report = Annotated[
    str | None,
    typer.Option("--report", metavar="FOLDER|none", help="Where the night's report goes, JSON and a page."),
]
Snapshot = Annotated[
    str | None,
    typer.Option(
        "--snapshot", metavar="NIGHT|TAG|ID", help="The store as it was: a night's number, a tag, a snapshot."
    ),
]
NewModel = Annotated[bool, typer.Option("--new-model", help="Start a new model, which may have other parameters.")]


OtherStore = Annotated[str | None, typer.Option("--store", help="The store, in place of the job file's.")]


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Which job, and how its result is printed."""

    job: Annotated[
        str, typer.Argument(metavar="JOB.toml", help=f"The job file, {_RECIPES}.", autocompletion=complete_job)
    ]
    settings: Settings = None
    store: OtherStore = None
    as_json: AsJson = False

    def with_refit(self, refit: bool | None) -> Self:
        """Return the options with `model.refit` set, if the flag is given."""
        return self if refit is None else self._with(f"model.refit={'true' if refit else 'false'}")

    def with_report(self, folder: str | None) -> Self:
        """Return the options with `report` set, if the flag is given; a path is relative to the working directory."""
        if folder is None:
            return self
        text = folder if folder == "none" else absolute_location(folder)
        return self._with(f"report={json.dumps(text, ensure_ascii=False)}")

    def _with(self, assignment: str) -> Self:
        return replace(self, settings=[*(self.settings or []), assignment])


@dataclass(frozen=True, kw_only=True)
class ClusterJobOptions(JobOptions):
    """The options of a job, and where it runs."""

    cluster: Annotated[str | None, typer.Option(help="none, local, local:N, a scheduler's address, or file:PATH.")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(ClusterJobOptions):
    """The options of a job, where it runs, and how it shows its progress."""

    log: Annotated[
        Log | None, typer.Option("--log", help="Bars on a terminal and text elsewhere, text, or lines of JSON.")
    ] = None
    metrics: Annotated[
        Path | None,
        typer.Option(
            "--metrics",
            metavar="FILE.prom",
            help="Write the metrics of the run, even if it fails, for Prometheus' textfile collector.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ServedOptions(JobOptions):
    """Which model: that of a job, or of a store that takes its place."""

    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB.toml|STORE", help=f"The job file, a store, {_RECIPES}.", autocompletion=complete_job
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class ExportOptions(ServedOptions):
    """Which model is exported, into which file, and how."""

    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to write: FILE.onnx or FILE.skops.")]
    format: Annotated[str | None, typer.Option(metavar="onnx|skops", help="The format, if the name says none.")] = None
    snapshot: Snapshot = None
    std: Annotated[bool, typer.Option("--std", help="Add standard deviations, in onnx.")] = False


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ServedOptions, RunOptions):
    """The options of a run that predicts: the columns in addition to the predictions."""

    with_std: Annotated[bool, typer.Option("--std", help="Add standard deviations.")] = False
    with_scores: Annotated[bool, typer.Option("--scores", help="Add each class's score.")] = False
    level: Annotated[
        float | None,
        typer.Option(
            "--interval",
            metavar="LEVEL",
            parser=number_of(float, 0, 1),
            help="Add bounds between which this share of values lies: 0.9.",
        ),
    ] = None
    with_probabilities: Annotated[bool, typer.Option("--proba", help="Add each class's calibrated probability.")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """Which store, and how the result is printed."""

    location: Annotated[
        str,
        typer.Argument(metavar="JOB.toml|STORE", help=f"A job file, a store, {_RECIPES}.", autocompletion=complete_job),
    ]
    settings: Settings = None
    store: OtherStore = None
    as_json: AsJson = False


def absolute_location(text: str) -> str:
    """Return a location given on the command line as a job file can name it: a URL as it is, a path as absolute."""
    return text if "://" in text or text.startswith("file:") else str(Path(text).absolute())


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command as typer reads it: the parameter `options` is replaced by the fields of its bundle."""
    parameters = inspect.signature(command).parameters
    bundle: type[JobOptions | StoreOptions] = parameters["options"].annotation
    hints = get_type_hints(bundle, include_extras=True)

    @functools.wraps(command)
    def expanded(**values: Any) -> None:  # noqa: ANN401
        options = bundle(**{field.name: values.pop(field.name) for field in fields(bundle)})
        with last_resort():
            command(options, **values)

    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(bundle)
    ]
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters.values() if p.name != "options"]
    signature = inspect.Signature([*shared, *own])
    vars(expanded)["__signature__"] = signature
    expanded.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return expanded
