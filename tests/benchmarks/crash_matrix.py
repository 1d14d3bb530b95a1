"""Kill runs in every mode and at every kind of moment, look at what is left, and count: prints JSON.

python crash_matrix.py --kills 50        # kills in each mode; 350 in all take about an hour on two cores
python crash_matrix.py --kills 50 --modes experts experts-cluster experts-worker

Each kill is of a run on a new store; afterwards the same command is run to its end. What must hold is asserted by
`support.jobs.crashes`: every partition once, every row counted once, the model of the undisturbed run, bit for bit.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support`, as pytest finds it

from support.jobs.crashes import MODES, CrashBench, Kill, KillResult, crash_bench, kill_all, spread
from support.stores.object_store import object_store

SHARES = {
    "alone": {"time": 0.2, "call": 0.4, "request": 0.4},
    "cluster": {"time": 0.3, "call": 0.4, "request": 0.3},
    "worker": {"time": 0.4, "call": 0.4, "request": 0.2},
    "scheduler": {"time": 0.5, "call": 0.5},
    "experts": {"time": 0.2, "call": 0.4, "request": 0.4},
    "experts-cluster": {"time": 0.3, "call": 0.4, "request": 0.3},
    "experts-worker": {"time": 0.4, "call": 0.4, "request": 0.2},
}
"""Which part of a mode's kills comes at which kind of moment."""


def plan(mode: str, kills: int, seed: int) -> Iterator[Kill]:
    """Return the kills of a mode: each kind of moment over all of a run."""
    for moment, share in SHARES[mode].items():
        yield from spread(mode, moment, round(kills * share), seed)


def run_matrix(folder: Path, kills: int, seed: int = 0, modes: Sequence[str] = MODES) -> dict[str, Any]:
    """Strike so many times in each mode, also where some come too late, and return the counts."""
    with object_store(folder) as server:
        os.environ.update(server.environment)
        with crash_bench(folder, server) as bench:
            return {mode: _strike_mode(bench, mode, kills, seed) for mode in modes}


def _strike_mode(bench: CrashBench, mode: str, kills: int, seed: int) -> dict[str, Any]:
    began, results, turn = monotonic(), list[KillResult](), 0
    while sum(result.landed for result in results) < kills and turn < 4:
        left = kills - sum(result.landed for result in results)
        results += kill_all(bench, [[kill] for kill in plan(mode, left + 3, seed + turn)])
        turn += 1
    landed = [result for result in results if result.landed]
    return {
        "kills": len(landed),
        "too late": len(results) - len(landed),
        "by moment": dict(Counter(result.kill.moment for result in landed)),
        "codes": dict(Counter(str(result.code) for result in landed)),
        "store then": dict(Counter(f"{result.partitions} partitions, {result.models} models" for result in landed)),
        "struck at": dict(Counter(_kind(result.where) for result in landed)),
        "seconds": round(monotonic() - began),
    }


def _kind(where: str) -> str:
    """Return what a call or request did and to which kind of file, without names."""
    verb, _, path = where.partition(" ")
    known = (
        "chunks",
        "manifests",
        "transactions",
        "snapshots",
        "refs/tag",
        "refs/branch.writer",
        "refs",
        "config",
        "writer",
    )
    return f"{verb} {next((part for part in known if part in path), 'other')}" if path != "s" else "time"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--modes", nargs="*", default=MODES, choices=MODES)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run_matrix(Path(folder), arguments.kills, arguments.seed, arguments.modes), indent=1))


if __name__ == "__main__":
    main()
