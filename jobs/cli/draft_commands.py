"""The commands that help to write a job file: init and schema."""

from pathlib import Path
from typing import Annotated

import typer

from ridgestream.jobs.cli.exit_handling import orderly_exit
from ridgestream.jobs.cli.options import AsJson
from ridgestream.jobs.cli.results import print_result


def init(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A folder of Parquet partitions, one file, or a URL.")],
    target: Annotated[str | None, typer.Option("--target", metavar="COLUMN", help="The column to predict.")] = None,
    guess_target: Annotated[
        bool, typer.Option("--guess-target", help="Take a column with a usual name for the target, or the last one.")
    ] = False,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="JOB.toml", help="The file to write.")] = Path(
        "job.toml"
    ),
    as_json: AsJson = False,
) -> None:
    """Write a commented job file from a look at the data: its columns, their types, missing values."""
    with orderly_exit() as handler:
        from ridgestream.jobs.drafts.draft import run_init

        handler.watch()
        print_result(run_init(data, target, output, guesses_target=guess_target), as_json=as_json)


def schema() -> None:
    """Print the JSON Schema of job files, by which editors complete and check them."""
    with orderly_exit() as handler:
        from ridgestream.jobs.drafts.schema import schema_text

        handler.output_wanted = True
        typer.echo(schema_text(), nl=False)
