"""Shows reproductions: a table in the terminal, a picture, and a page of all that a folder has."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ridgestream.jobs.reproduction.registry import STUDIES
from ridgestream.jobs.reproduction.study import Outcome
from ridgestream.stores.files.paths import write_atomically

_HEADING = "# The papers' tables, measured again"

_INTRODUCTION = f"""{_HEADING}

`ridgestream reproduce NAME` measures a table of a paper behind one of the methods again, and prints it beside the
paper's values; `--list` names the studies, what each needs and how long it takes. Each measurement is kept in
`reproduction/NAME.json`, with the settings, so that a run that was killed continues; `--repeats N` takes fewer or more,
`--data FOLDER` names the folder with the sets of rows; pictures need `pip install 'ridgestream[pictures]'`. The
measurements of this page are in the files named below its tables, which `--output docs/reference/reproduction`
continues. Rows of more repeats than their file has were measured earlier, and stay until it has as many.

What a paper gives is used; what it leaves open is found on training rows alone. Errors are mean ± standard deviation,
with the mean number of vectors in brackets; columns between "here" and "repeats" are errors of what is done beyond the
paper, with as many vectors. What is worse than the paper's by more than two of its standard deviations is bold. The
command writes this page.
"""

FAR = 2.0
"""An error that is above the paper's by more than so many of its standard deviations is bold."""

_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "lines.linewidth": 1.4,
}


def show_reproduction(facts: dict[str, Any]) -> None:
    """Print the table."""
    from ridgestream.jobs.console.tables import fitted_table, open_console

    console, columns = open_console(), _columns(facts)
    caption = f"{facts['error']}, mean ± standard deviation (vectors); {facts['source']}"
    table = fitted_table(
        facts["title"],
        columns,
        [_row(facts, cell) for cell in facts["cells"]],
        console.width,
        first=("method", "here"),
        right=columns[2:],
        caption=caption,
    )
    console.print(table)


def page_of(folder: Path) -> Path:
    """Return the path of the page, beside the folder."""
    return folder.parent / f"{folder.name}.md"


def is_page(path: Path) -> bool:
    """Whether there is a page of this command, or nothing."""
    return not path.exists() or path.read_text(encoding="utf-8", errors="replace").startswith(_HEADING)


def write_page(folder: Path) -> None:
    """Draw the picture of each study that the folder has, and write the page beside the folder, FOLDER.md.

    A picture stays as it was where the file has fewer measurements than the rows that it shows have repeats.
    """
    records = {name: _read(folder / f"{name}.json") for name in STUDIES if (folder / f"{name}.json").exists()}
    parts = [_INTRODUCTION]
    for name, record in records.items():
        _draw(name, record, folder / f"{name}.png")
        parts.append("\n".join(_section(name, record, folder)))
    with write_atomically(page_of(folder), "text/markdown") as sink:
        sink.write("\n".join(parts).encode())


def _read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def _section(name: str, record: dict[str, Any], folder: Path) -> Iterator[str]:
    """Yield the lines of a study."""
    columns = _columns(record)
    yield f"## {name}\n"
    yield f"{record['title']} ({record['source']}). {record['error'].capitalize()}.\n"
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    yield from (f"| {' | '.join(_marked(record, cell))} |" for cell in record["cells"])
    if (folder / f"{name}.png").exists():
        yield f"\n![{record['title']}]({folder.name}/{name}.png)"
    if STUDIES[name].findings:
        yield f"\n{STUDIES[name].findings}"
    yield f"\n{_settings(record)} {_measurements(record, f'{folder.name}/{name}.json')}\n"


def _marked(record: dict[str, Any], cell: dict[str, Any]) -> tuple[str, ...]:
    """Return a row whose error here is bold if it is far above the paper's."""
    name, published, here, *others = _row(record, cell)
    is_worse = cell["deviations"] is not None and cell["deviations"] > FAR
    return name, published, f"**{here}**" if is_worse else here, *others


def _settings(record: dict[str, Any]) -> str:
    """Return a sentence that names settings, date, version and machine."""
    given = {key: value for key, value in record["settings"].items() if key not in ("version", "data")}
    machine = record["machine"]
    return (
        f"Given: {_listed(given)}. Chosen on training rows: {_listed(record['chosen']) or 'nothing'}. Version "
        f"{record['settings']['version']}, {record['date']}, {machine['logical_processors']} processors, "
        f"{machine['system']} {machine['architecture']}."
    )


def _measurements(record: dict[str, Any], link: str) -> str:
    """Return a sentence that names the file, and another one if it does not have every repeat of the rows."""
    has = {name: len(outcomes) for name, outcomes in record["outcomes"].items()}
    lacking = sum(has.get(cell["name"], 0) < cell["repeats"] for cell in record["cells"])
    earlier = f"; {lacking} of the {len(record['cells'])} rows were measured earlier, with more repeats than it has"
    return f"Measurements: [{link}]({link}){earlier if lacking else ''}."


def _listed(values: dict[str, Any]) -> str:
    """Return settings as text."""
    return ", ".join(
        f"{key} ({_listed(value)})" if isinstance(value, dict) else f"{key} {_number(value)}"
        for key, value in values.items()
    )


def _number(value: Any) -> str:  # noqa: ANN401
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _columns(record: dict[str, Any]) -> tuple[str, ...]:
    better = dict.fromkeys(name for cell in record["cells"] for name in cell["better"])
    return ("method", "paper", "here", *better, "repeats")


def _row(record: dict[str, Any], cell: dict[str, Any]) -> tuple[str, ...]:
    spread = f" ± {cell['std']:.2g}" if cell["repeats"] > 1 else ""
    better = [_error(cell["better"][name]) if name in cell["better"] else "" for name in _columns(record)[3:-1]]
    here = f"{_error(cell['mean'])}{spread} ({cell['vectors']:.4g})"
    return cell["name"], cell["published"], here, *better, str(cell["repeats"])


def _error(value: float) -> str:
    return f"{value:.3g}" if value < 10 else f"{value:.2f}"


def _draw(name: str, record: dict[str, Any], path: Path) -> None:
    """Draw a study's picture, if every repeat of its cells is measured and matplotlib is installed."""
    study = STUDIES[name]
    outcomes = {cell: [Outcome(**each) for each in measured] for cell, measured in record["outcomes"].items()}
    drawn = [cell.name for cell in study.cells] if study.drawn is None else study.drawn
    repeats = {cell["name"]: cell["repeats"] for cell in record["cells"]}
    if study.draw is None or any(len(outcomes.get(cell, ())) < repeats.get(cell, 1) for cell in drawn):
        return
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9, 3.8), layout="constrained")
        study.draw(figure, outcomes)
        figure.savefig(path, dpi=110)
