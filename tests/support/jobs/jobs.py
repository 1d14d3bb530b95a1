"""Support for tests of jobs: rows, job files, the real command, and models compared bit for bit."""

import atexit
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from support.jobs.zygote import Zygote

from ridgestream.jobs.commands.evaluate import run_evaluate
from ridgestream.jobs.commands.predict import run_predict
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.blas_threads import blas_threads
from ridgestream.pipeline.base.executor import Executor, InProcess
from ridgestream.pipeline.base.reporter import Reporter, Silent
from ridgestream.pipeline.models.model_record import n_basis_of
from ridgestream.pipeline.prediction.prediction_columns import Extras
from ridgestream.stores.catalog.models import ModelRecord, require_model
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation

COMMAND = str(Path(sysconfig.get_path("scripts")) / "ridgestream")
FOREST = Path(__file__).parents[3] / "jobs" / "recipes" / "forest"
ROWS = 200
"""Rows of a partition that `draw_rows` makes."""

PATIENCE = 60.0
"""Seconds after which a test gives up waiting."""

Settings = Mapping[str, Any]


def draw_rows(seed: int, rows: int = ROWS) -> pa.Table:
    """Four features and `label`, which is 1, 2 or 3: 2 inside a ring that they make."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4)) * [1.0, 2.0, 0.5, 10.0] + [0.0, 5.0, -1.0, 100.0]
    radius = np.hypot(X[:, 0], (X[:, 1] - 5.0) / 2)
    label = np.where(np.abs(radius - 1.2) + 0.1 * rng.normal(size=rows) < 0.5, 2, np.where(radius < 1.2, 1, 3))
    return pa.table({**{f"x{i}": X[:, i] for i in range(4)}, "label": label})


def of_one_class(seed: int, rows: int = ROWS) -> pa.Table:
    """The rows of `draw_rows`, each with label 2."""
    return set_column(draw_rows(seed, rows), "label", pa.array([2] * rows))


def draw_regression(seed: int, rows: int = ROWS) -> pa.Table:
    """Two features and `price`, a smooth function of them near 3000 that varies by some hundreds."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    price = 3000.0 + 400.0 * np.sin(X[:, 0]) + 150.0 * X[:, 1] + 10.0 * rng.normal(size=rows)
    return pa.table({"size": X[:, 0], "age": X[:, 1], "price": price})


def set_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with other values in one column, or with one more column."""
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, [values])
    return table.append_column(name, [values])


@dataclass(frozen=True)
class Workplace:
    """A folder with partitions, held-out partitions and a job file over them."""

    folder: Path

    @classmethod
    def new(cls, folder: Path, numbers: range = range(0)) -> Self:
        """Make the folder, with these partitions and held-out ones."""
        folder.mkdir()
        work = cls(folder)
        work.put_all(numbers)
        return work

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def put(self, number: int, table: pa.Table | None = None, where: str = "rows") -> Path:
        """Write partition `number`, by default drawn from its number, and return its file."""
        path = self.folder / where / f"part-{number:02d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(draw_rows(number) if table is None else table, path)
        return path

    def put_all(self, numbers: range, held_out: int = 1) -> None:
        for number in numbers:
            self.put(number)
        for number in range(held_out):
            self.put(number, draw_rows(1000 + number), where="held-out")

    def job(self, changes: Settings | None = None, name: str = "job.toml") -> Path:
        """Write a job file with dotted keys; a change to None leaves the key out.

        Nothing is left to a pilot unless a change leaves it out, or says "auto".
        """
        settings: dict[str, Any] = {
            "store": "store",
            "source.path": "rows",
            "source.target": "label",
            "source.positive": 2,
            "model.max_basis": 20,
            "model.regularization": 1e-4,
            "model.scaling_rows": ROWS,
            "model.metric": "standardized",
            "evaluate.path": "held-out",
            "report": "none",
        }
        changes = changes or {}
        if not any(key.startswith("model.kernel") for key in changes):
            settings["model.kernel.gamma"] = 0.25
        settings |= changes
        if settings.get("model.method", "online") == "online":
            settings.setdefault("model.refit", False)
        path = self.folder / name
        path.write_text("".join(f"{key} = {json.dumps(v)}\n" for key, v in settings.items() if v is not None))
        return path

    def run_here(
        self,
        changes: Settings | None = None,
        *,
        new_model: bool = False,
        executor: Executor | None = None,
        report: Reporter | None = None,
    ) -> dict[str, Any]:
        """Run the job without the command, in this process unless there is an executor, and return its result."""
        job = read_job(self.job(changes), {})
        return run_job(job, executor or InProcess(), report or Silent(), 0.0, new_model=new_model)

    def predict_here(
        self,
        where: str,
        changes: Settings | None = None,
        *,
        with_std: bool = False,
        with_scores: bool = False,
        level: float | None = None,
        with_probabilities: bool = False,
    ) -> pa.Table:
        """Predict the partitions of a folder in this process and return all the predictions."""
        job, output = read_job(self.job(changes), {}), self.folder / "predictions"
        extras = Extras(with_scores, with_std, level, with_probabilities)
        run_predict(job, self.folder / where, output, InProcess(), Silent(), extras=extras)
        return pq.read_table(output)

    def evaluate_here(self, changes: Settings | None = None) -> dict[str, Any]:
        """Evaluate the model in this process and return the result."""
        return run_evaluate(read_job(self.job(changes), {}), InProcess(), Silent())

    def snapshot(self) -> str:
        return open_store(self.store).snapshot()

    def model(self, name: str = "model") -> ModelRecord:
        return read_model_at(self.store, name)


REGRESSION: Settings = {"source.target": "price", "source.positive": None}


def forest_job(rows: int, partitions: int, max_basis: int) -> dict[str, Any]:
    """The settings of `Workplace.job` for rows of the bundled forest tables that `put_forest` wrote."""
    return {
        "source.target": "Cover_Type",
        "model.max_basis": max_basis,
        "model.scaling_rows": max(1, rows // partitions),
        "evaluate.path": None,
    }


def put_forest(work: Workplace, rows: int, partitions: int) -> None:
    """Cut the first `rows` of the bundled forest tables into `partitions` files."""
    table = pq.read_table(FOREST / "train" / "part-00.parquet").slice(0, rows)
    step = rows // partitions
    for number in range(partitions):
        work.put(number, table.slice(number * step, step))


@dataclass(frozen=True)
class Outcome:
    """The output and the exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        assert self.code == 0, self
        result = json.loads(self.out)
        assert isinstance(result, dict)
        assert self.out == json.dumps(result) + "\n"
        return result

    @property
    def events(self) -> list[str]:
        """The events of the lines of text on standard error, without progress, which slow machines have time for."""
        return [event for event in re.findall(r"event='([\w.]+)'", self.err) if event != "progress"]


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without variables that set a job's keys or force colours."""
    variables = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("RIDGESTREAM_") and key not in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "NO_COLOR")
    }
    return variables | more


def run_command(*arguments: str | Path, environment: dict[str, str] | None = None, cwd: Path | None = None) -> Outcome:
    """Run the command to its end, in a fork that need not import it where possible; it writes plain lines.

    `run_program([COMMAND, …])` starts the installed program itself.
    """
    environment, zygote = environment or clean_environment(), _shared_zygote()
    if zygote.suits(environment):
        done = _run_forked(zygote, arguments, environment=environment, cwd=cwd)
    else:
        done = run_program([COMMAND, *arguments], environment=environment, cwd=cwd)
    assert not {"\r", "\x1b"} & set(done.out + done.err), done
    return done


@cache
def _shared_zygote() -> Zygote:
    zygote = Zygote(clean_environment())
    atexit.register(zygote.close)
    return zygote


def _run_forked(zygote: Zygote, arguments: Sequence[str | Path], **more: Any) -> Outcome:
    with TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        code = zygote.run(err, *arguments, out=out, **more)
        return Outcome(code, out.read_text(), err.read_text())


def run_program(
    arguments: Sequence[str | Path], *, environment: dict[str, str] | None = None, cwd: Path | None = None
) -> Outcome:
    done = subprocess.run(
        [str(a) for a in arguments],
        capture_output=True,
        env=environment or clean_environment(),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        timeout=180,
        check=False,
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


AFTER = """
def after(calls, real, what):
    left = [calls]
    def counted(*arguments, **named):
        if not left[0]:
            what()
        left[0] -= 1
        return real(*arguments, **named)
    return counted
"""
"""Python for a process of its own: call `what` before the call of `real` with the number `calls`."""


def run_prepared(setup: str, *arguments: str | Path) -> Outcome:
    """Run the command after the Python statements `setup` in its process, a fork as for `run_command`.

    The modules of commands are imported already: replace a function in the module that calls it.
    """
    return _run_forked(_shared_zygote(), arguments, environment=clean_environment(), setup=setup)


def run_until(setup: str, work: Workplace, changes: Settings | None = None, *arguments: str) -> Outcome:
    """Run the job as `run_prepared` does, in a process that kills itself, as `setup` arranges by `die`."""
    code = f"""
import os, pathlib, signal, threading
import ridgestream.jobs.cli.app, ridgestream.jobs.console.progress, ridgestream.stores.repository.repository
def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
{AFTER}
{setup}
"""
    done = run_prepared(code, "run", work.job(changes), *arguments)
    assert done.code == -signal.SIGKILL, done
    return done


def run_limited(limits: str, *arguments: str | Path, program: str = COMMAND) -> Outcome:
    """Run the command after the Python statements `limits` in its process; they may use `libc`, `os` and `resource`."""
    code = "import ctypes, os, resource, sys; libc = ctypes.CDLL(None); " + limits
    return run_program([sys.executable, "-c", f"{code}; os.execvp(sys.argv[1], sys.argv[1:])", program, *arguments])


def start_command(
    *arguments: str | Path, log: Path, environment: dict[str, str] | None = None, within: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start the command with its standard error in the file `log` and its standard output beside it, in `log`.out.

    `within` is a program, with arguments, that runs the command.
    """
    with log.open("wb") as err, log.with_name(log.name + ".out").open("wb") as out:
        return subprocess.Popen(
            [*within, COMMAND, *(str(a) for a in arguments)],
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            env=environment or clean_environment(),
        )


@contextmanager
def killed_at_last(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Leave no process to the tests that follow, should this one fail."""
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)


def wait_until(condition: Callable[[], Any], process: "subprocess.Popen[bytes] | None" = None) -> None:
    """Look again and again until the condition holds; fail if the process ends before, or after PATIENCE."""
    give_up = monotonic() + PATIENCE
    while not condition():
        assert process is None or process.poll() is None, f"ended with {process and process.returncode} too early"
        assert monotonic() < give_up, "it has not happened within PATIENCE"
        sleep(0.0005)


def open_store(path: Path) -> Store:
    return Store.open(StoreLocation(str(path)))


def read_model_at(path: Path, name: str = "model") -> ModelRecord:
    return require_model(open_store(path).root(), name)


OF_NIGHTS = {"interval_outside"}
"""Arrays that follow how the rows came in nights."""


def bits_of(record: ModelRecord) -> dict[str, Any]:
    """All values of a model, arrays as their bytes: two models are the same if these are equal."""
    named = {key: array for key, array in record.arrays.items() if key not in OF_NIGHTS}
    arrays = {key: (a.dtype.str, a.shape, np.ascontiguousarray(a).tobytes()) for key, a in named.items()}
    return {
        "parameters": record.parameters,
        "encoding": record.encoding,
        "learned": record.learned,
        "counters": record.counters,
        **arrays,
    }


def assert_same_model(one: ModelRecord, other: ModelRecord) -> None:
    left, right = bits_of(one), bits_of(other)
    assert left.keys() == right.keys()
    assert [key for key in left if left[key] != right[key]] == []
    assert n_basis_of(one)


def count_blas_threads(task: int) -> list[int]:  # noqa: ARG001
    """A task for workers, which can import `support` but not a test's own module."""
    return blas_threads()
