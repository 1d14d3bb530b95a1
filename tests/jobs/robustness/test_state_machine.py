"""Random sequences of operations on a store, compared with a plain list of its expected contents.

Runs are commands in their own processes; some are killed with −9 when they enter a function of the stores. The expected
model is that of one run over the partitions it has learned, in the order of learning.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.jobs.jobs import Workplace, clean_environment, draw_rows, open_store
from support.jobs.zygote import KILLED, Zygote

from ridgestream.jobs.cli import exit_codes
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.catalog.models import ModelRecord, night_tag
from ridgestream.stores.parquet.partitions import natural_key

ROWS = 24
"""Rows per partition; the first partition determines the standardization."""

CHANGES = {"model.max_basis": 6, "model.scaling_rows": ROWS, "evaluate.path": None}
WAIT = ("--wait", "60")


@dataclass(frozen=True)
class Partition:
    """A partition as it was ingested."""

    name: str
    seed: int


@cache
def straight_bits(seeds: tuple[int, ...]) -> tuple[bytes, bytes, bytes, str]:
    """Return the bits of the model of one run over partitions with these seeds."""
    with tempfile.TemporaryDirectory() as folder:
        work = Workplace(Path(folder))
        for number, seed in enumerate(seeds):
            work.put(number, draw_rows(seed, ROWS))
        work.run_here(CHANGES)
        return bits(work.model())


def bits(record: ModelRecord) -> tuple[bytes, bytes, bytes, str]:
    names = ("normal_matrix", "basis_rows", "coefficients")
    matrix, rows, coefficients = (record.arrays[name].tobytes() for name in names)
    return matrix, rows, coefficients, json.dumps([record.counters, record.encoding], sort_keys=True)


class Nights(RuleBasedStateMachine):
    """A source, a store, and the expected contents of the store."""

    zygote: Zygote

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.work = Workplace(self.folder)
        self.files: dict[str, int] = {}
        self.ledger: list[Partition] = []
        self.learned: list[Partition] = []
        self.excluded: list[Partition] = []
        self.nights: list[list[Partition]] = []
        self.predicted: list[Partition] = []
        self.segments: set[int] = set()
        self.cleaned = self.seed = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize()
    def begin(self) -> None:
        """Run two successful nights, the second with a late partition."""
        self.work.job(CHANGES)
        for numbers in ((3,), (1, 6)):
            for number in numbers:
                self.add(number)
            self.run("error")

    def command(self, *arguments: str | Path, die_at: int | None = None) -> int:
        name, *others = arguments
        return self.zygote.run(self.folder / "log", name, self.folder / "job.toml", *others, die_at=die_at)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @rule(number=st.integers(0, 9))
    def add(self, number: int) -> None:
        """Add a partition to the source, late or not."""
        name = f"part-{number:02d}.parquet"
        if name not in self.files:
            self.seed += 1
            self.work.put(number, draw_rows(self.seed, ROWS))
            self.files[name] = self.seed

    @precondition(lambda self: not self.changed)
    @rule(data=st.data())
    def rewrite(self, data: Any) -> None:
        """Change the values of an ingested partition."""
        name = data.draw(st.sampled_from(sorted(part.name for part in self.ledger if part.name in self.files)))
        self.seed += 1
        self.work.put(int(name[5:7]), draw_rows(self.seed, ROWS))
        self.files[name] = self.seed

    @property
    def changed(self) -> set[str]:
        return {part.name for part in self.ledger if self.files.get(part.name, part.seed) != part.seed}

    def ingested(self, policy: str) -> list[Partition]:
        """Return the expected ledger after an ingest."""
        new = [Partition(name, seed) for name, seed in self.files.items() if name not in {p.name for p in self.ledger}]
        new.sort(key=lambda part: natural_key(part.name))
        if policy == "rebuild" and self.changed:
            now = [Partition(part.name, self.files.get(part.name, part.seed)) for part in self.ledger]
            return sorted([*now, *new], key=lambda part: natural_key(part.name))
        return [*self.ledger, *new]

    def trained(self, ledger: list[Partition]) -> tuple[list[Partition], list[Partition]]:
        """Return the partitions learned after training on a ledger, and those that stay excluded."""
        excluded = [part for part in self.excluded if part in ledger]
        learned = self.learned if set(self.learned) <= set(ledger) else []
        return [*learned, *(p for p in ledger if p not in learned and p not in excluded)], excluded

    @property
    def is_due(self) -> bool:
        """Whether a run has anything to do."""
        return bool(self.changed) or self.trained(self.ingested("ignore"))[0] != self.learned

    @precondition(lambda self: self.is_due)
    @rule(policy=st.sampled_from(["error", "ignore", "rebuild"]))
    def run(self, policy: str) -> None:
        code = self.command("run", "--set", f"source.on_changed={policy}", "--json")
        if policy == "error" and self.changed:
            assert code == exit_codes.DATA, self.log
            assert "was ingested with other values" in self.log
            return
        assert code == 0, self.log
        self.ledger = self.ingested(policy)
        self.record_night(*self.trained(self.ledger))

    def record_night(self, learned: list[Partition], excluded: list[Partition]) -> None:
        """Record a night after which the model has learned `learned`, if that is new."""
        if learned != self.learned:
            self.nights.append(learned)
        self.learned, self.excluded = learned, excluded

    @precondition(lambda self: self.is_due)
    @rule(policy=st.sampled_from(["ignore", "rebuild"]), call=st.integers(0, 900))
    def killed_run(self, policy: str, call: int) -> None:
        """A killed run leaves the old or the new ledger, and the old or the new model."""
        code = self.command("run", "--set", f"source.on_changed={policy}", die_at=call)
        assert code in (0, KILLED), self.log
        ledger, stored = self.ingested(policy), self.stored_partitions()
        assert stored in (self.ledger, ledger)
        if stored == ledger:
            self.ledger = ledger
            learned, excluded = self.trained(ledger)
            if len(self.record().history) > len(self.nights):
                self.record_night(learned, excluded)

    @precondition(lambda self: any(night != self.learned for night in self.nights))
    @rule(data=st.data(), replay=st.booleans(), call=st.none() | st.integers(0, 120))
    def roll_back(self, data: Any, replay: bool, call: int | None) -> None:
        night = 1 + data.draw(st.sampled_from([i for i, n in enumerate(self.nights) if n != self.learned]))
        code = self.command("rollback", str(night), *(["--replay"] if replay else []), die_at=call)
        assert code in (0, KILLED), self.log
        if len(self.record().history) > len(self.nights):
            then = self.nights[night - 1]
            since = [part for part in self.learned if part not in then]
            self.excluded = [] if replay else list(dict.fromkeys([*self.excluded, *since]))
            self.learned = then
            self.nights.append(then)
        else:
            assert code == KILLED

    @precondition(lambda self: self.cleaned < len(self.nights))
    @rule(call=st.none() | st.integers(0, 150))
    def clean(self, call: int | None) -> None:
        """A cleaning, killed or not, keeps every night."""
        code = self.command("clean", "--older-than", "0", die_at=call)
        assert code in (0, KILLED), self.log
        if code == 0:
            self.cleaned = len(self.nights)
            numbers = range(1, len(self.nights) + 1)
            assert open_store(self.work.store).tags() == {night_tag("model", number) for number in numbers}

    @precondition(lambda self: self.predicted != self.learned)
    @rule()
    def predict(self) -> None:
        """Readers use the last commit."""
        self.predicted = self.learned
        self.work.put(0, draw_rows(1000, ROWS), where="requested")
        output = self.folder / "predictions"
        shutil.rmtree(output, ignore_errors=True)
        assert self.command("predict", self.folder / "requested", output) == 0, self.log
        assert pq.read_table(output).num_rows == ROWS

    @precondition(lambda self: self.is_due and not self.changed)
    @rule()
    def two_at_once(self) -> None:
        job = self.folder / "job.toml"
        runs = [self.zygote.start(self.folder / f"log-{n}", "run", job, *WAIT) for n in range(2)]
        codes = [self.zygote.wait(run) for run in runs]
        assert codes == [0, 0], [(self.folder / f"log-{n}").read_text() for n in range(2)]
        self.ledger = self.ingested("error")
        self.record_night(*self.trained(self.ledger))

    def stored_partitions(self) -> list[Partition]:
        """Return the partitions in the store; an entry whose segment existed at the last check has the old values."""
        entries = read_ledger(open_store(self.work.store).root()).entries
        old_seeds = {part.name: part.seed for part in self.ledger}
        return [
            Partition(e.name, old_seeds[e.name] if e.segment in self.segments else self.files[e.name]) for e in entries
        ]

    def record(self) -> ModelRecord:
        return self.work.model()

    @invariant()
    def the_store_has_the_expected_contents(self) -> None:
        ledger = read_ledger(open_store(self.work.store).root())
        assert [entry.name for entry in ledger.entries] == [part.name for part in self.ledger]
        assert ledger.rows == ROWS * len(self.ledger)
        self.segments = {entry.segment for entry in ledger.entries}
        record = self.record()
        assert len(record.history) == len(self.nights)
        assert bits(record) == straight_bits(tuple(part.seed for part in self.learned))
        assert record.counters["rows_seen"] == ROWS * len(self.learned)
        assert len(set(record.learned)) == len(record.learned) == len(self.learned)
        names = {entry.segment: entry.name for entry in ledger.entries}
        assert [names[segment] for segment in record.excluded if segment in names] == [p.name for p in self.excluded]


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    zygote = Zygote(clean_environment())
    yield zygote
    zygote.close()


def drive(zygote: Zygote, examples: int, steps: int) -> None:
    Nights.zygote = zygote
    run_state_machine_as_test(
        Nights,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            phases=[Phase.generate],
            database=None,
        ),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("examples", [2, pytest.param(6, marks=pytest.mark.thorough)])
def test_any_sequence_of_operations_gives_the_expected_store(zygote: Zygote, examples: int) -> None:
    drive(zygote, examples, steps=14)


@pytest.mark.slow
def test_long_sequences_of_operations_give_the_expected_store(zygote: Zygote) -> None:
    drive(zygote, examples=100, steps=40)
