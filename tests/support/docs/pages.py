"""Pages of documentation as blocks of code, and how each kind of block is run.

A fence names its language and may add words: `no-run: REASON` for what cannot run here, `file=NAME` for a file that
later blocks read, `output` for what the block before has printed. In what is printed, `…` stands for any text, and
lines may be left out. A comment that begins with a language, `<!-- bash`, is a block that readers do not see, and
`<!-- files of PAGE -->` writes the files of another page.
"""

import contextlib
import io
import json
import re
import subprocess
import sysconfig
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from support.jobs.jobs import clean_environment

from ridgestream.jobs.config.job_file import read_job

TOP = Path(__file__).parents[3]
PAGES = (TOP / "README.md", *sorted((TOP / "docs").rglob("*.md")))
ANY_TEXT = "…"
_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+|:::+)(?P<info>[^`]*)$")
_FILES = re.compile(r"^<!-- files of (\S+) -->$", re.MULTILINE)
_COMMENT = re.compile(r"^<!-- (?P<info>python|bash)$")


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    page: Path
    line: int
    language: str
    words: tuple[str, ...]
    reason: str | None
    """Why it is not run."""
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file that it is, for blocks that follow."""
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), None)


def blocks_of(page: Path) -> list[Block]:
    """Read the blocks of a page; what a directive makes of its lines is no block."""
    return [block for block in _fenced(page) if not block.language.startswith("{")]


def _fenced(page: Path) -> Iterator[Block]:
    lines = enumerate(page.read_text().splitlines(), start=1)
    for number, line in lines:
        fence, comment = _FENCE.match(line), _COMMENT.match(line)
        if fence or comment:
            end = fence["indent"] + fence["ticks"] if fence else "-->"
            body: list[str] = []
            for _, inner in lines:
                if inner.rstrip() == end:
                    break
                body.append(inner)
            else:
                raise AssertionError(f"{page.name}:{number} has no end")
            yield _block(page, number, (fence or comment)["info"], body)  # type: ignore[index]


def _block(page: Path, number: int, info: str, body: list[str]) -> Block:
    head, _, reason = info.partition("no-run")
    language, *words = head.split() or [""]
    is_run = "no-run" not in info
    return Block(page, number, language, tuple(words), None if is_run else reason.lstrip(": "), _dedent(body))


def _dedent(lines: list[str]) -> str:
    return textwrap.dedent("\n".join(lines)) + "\n"


def run_page(page: Path, folder: Path) -> None:
    """Run the blocks of a page in order, in that folder, which is the working directory, and one namespace."""
    run = _Run(folder)
    for other in _FILES.findall(page.read_text()):
        for block in blocks_of(TOP / "docs" / other):
            _write_file(block, folder)
    for block in blocks_of(page):
        _write_file(block, folder)
        RUNNERS[block.language](run, block)


def _write_file(block: Block, folder: Path) -> None:
    if block.file is not None:
        (folder / block.file).write_text(block.text)


@dataclass
class _Run:
    folder: Path
    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: str = ""

    def python(self, block: Block) -> None:
        code = compile("\n" * block.line + block.text, str(block.page), "exec")
        if block.reason is None:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(code, self.namespace)  # noqa: S102
            self.printed = out.getvalue()

    def bash(self, block: Block) -> None:
        self.printed = _run_shell(block, block.text, self.folder)

    def console(self, block: Block) -> None:
        for command, shown in _commands(block):
            self.printed = _run_shell(block, command, self.folder)
            if block.reason is None:
                check_printed(self.printed, shown, str(block))

    def toml(self, block: Block) -> None:
        check_job(block, self.folder)

    def json(self, block: Block) -> None:
        json.loads(block.text)

    def yaml(self, block: Block) -> None:
        list(yaml.safe_load_all(block.text))

    def text(self, block: Block) -> None:
        if "output" in block.words:
            check_printed(self.printed, block.text.splitlines(), str(block))


RUNNERS = {
    "python": _Run.python,
    "bash": _Run.bash,
    "console": _Run.console,
    "toml": _Run.toml,
    "json": _Run.json,
    "yaml": _Run.yaml,
    "ini": _Run.text,
    "text": _Run.text,
    "": _Run.text,
}
"""What is done with a block of each language."""


def _run_shell(block: Block, command: str, folder: Path) -> str:
    """Run a command, or only parse it where the block is not run; return what a terminal would show."""
    scripts = sysconfig.get_path("scripts")
    environment = clean_environment(COLUMNS="160")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", *["-n"] * (block.reason is not None), "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env=environment | {"PATH": f"{scripts}:{environment['PATH']}"},
        check=False,
    )
    printed = done.stdout.decode()
    assert done.returncode == 0, f"{block}: exit code {done.returncode} of\n{command}\n{printed}"
    return printed


def _commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """The commands of a console, which begin with `$ `, each with what is shown below it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        length = next(n for n, line in enumerate(lines, start=1) if not line.endswith("\\"))
        yield "\n".join(lines[:length]), lines[length:]


def check_printed(printed: str, shown: list[str], where: str) -> None:
    """Check that the lines that are shown were printed, in their order; spaces count as one."""
    lines = iter(printed.splitlines())
    for wanted in shown:
        if wanted == ANY_TEXT:
            continue
        pattern = ".*".join(re.escape(" ".join(part.split())) for part in wanted.split(ANY_TEXT))
        found = any(re.fullmatch(rf" *{pattern} *", " ".join(line.split())) for line in lines)
        assert found, f"{where}: not printed: {wanted!r}, but\n{printed}"


def check_job(block: Block, folder: Path) -> None:
    """Check a job file, or a part of one, which gets the keys that every job has."""
    content, path = tomllib.loads(block.text), folder / (block.file or "block.toml")
    path.write_text(block.text)
    source = content.get("source", {})
    missing = {key: value for key, value in {"path": "rows", "target": "y"}.items() if key not in source}
    flags: dict[str, Any] = {} if "store" in content else {"store": "store"}
    try:
        read_job(path, flags | ({"source": missing} if missing else {}))
    except ValueError as error:
        raise AssertionError(f"{block}: {error}") from error
