"""Nights behind a server that loses an answer each night, and nights with silence at each of their first requests.

`--nights 200`: the answer to a random request of each night is lost, after the server has carried it out.
`--silences 60`: a night for each of its first requests, which is never answered.
Prints JSON: the counts, and a line for each silence.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support`, as pytest finds it

from support.jobs.jobs import Outcome, Workplace, clean_environment, draw_rows, run_command
from support.stores.faulty_proxy import FaultyProxy, Rule, faulty_proxy
from support.stores.object_store import ObjectStore, object_store

ROWS = 60
REQUESTS = 140
"""Requests of a night, about."""

REQUEST_SECONDS, STALL_SECONDS = 2.0, 30.0
"""The limits of the nights with silence."""


class Bench:
    """A job whose store is behind a proxy, and its nights."""

    def __init__(self, folder: Path, server: ObjectStore, proxy: FaultyProxy) -> None:
        self._work, self._server, self.proxy, self._partitions = Workplace(folder), server, proxy, 0

    def night(self, rule: Rule, **changes: Any) -> Outcome:
        """Run a night that has a new partition."""
        self._work.put(self._partitions, draw_rows(self._partitions, ROWS))
        self._partitions += 1
        return self.again(rule, **changes)

    def again(self, rule: Rule, **changes: Any) -> Outcome:
        """Run the same command again."""
        settings = {
            "store": self._server.location("nights/store"),
            "evaluate.path": None,
            "model.max_basis": 10,
            "model.scaling_rows": ROWS,
            "report": None,
        }
        self.proxy.arm(rule)
        job = self._work.job(settings | changes)
        return run_command("run", job, "--json", environment=clean_environment(**self.proxy.environment))

    def reports(self) -> dict[str, int]:
        """Return how many reports there are of nights, and of failures."""
        names = [name for name in self._server.keys("nights/store-reports") if name.endswith(".json")]
        return {"nights": sum(".failed" not in n for n in names), "failures": sum(".failed" in n for n in names)}


@contextmanager
def open_bench(folder: Path) -> Iterator[Bench]:
    """Start a server and a proxy in front of it."""
    with object_store(folder) as server, faulty_proxy(server.port) as proxy:
        bench = Bench(folder, server, proxy)
        assert bench.night(Rule("none", at=0)).code == 0
        yield bench


def lose_answers(bench: Bench, nights: int, seed: int = 0) -> dict[str, Any]:
    """Lose the answer to a random request of each night; return exit codes, reports, and the nights of the last run."""
    rng, codes, lost = np.random.default_rng(seed), Counter[int](), Counter[str]()
    last: dict[str, Any] = {}
    for _ in range(nights):
        outcome = bench.night(Rule("lose", at=int(rng.integers(1, REQUESTS))))
        codes[outcome.code] += 1
        lost.update(path.split("/store/")[-1].split("/")[0] for path in bench.proxy.spoiled)
        last = json.loads(outcome.out) if outcome.code == 0 else last
    return {
        "nights": nights,
        "exit_codes": dict(codes),
        "reports": bench.reports(),
        "partitions": last.get("partitions_consumed"),
        "lost": dict(lost),
    }


def silence_each(bench: Bench, requests: int) -> Iterator[dict[str, Any]]:
    """Run a night for each of its first requests, which is never answered, and the same command after it."""
    limits = {"storage.request_seconds": REQUEST_SECONDS, "stall_seconds": STALL_SECONDS}
    for number in range(1, requests + 1):
        began = monotonic()
        outcome = bench.night(Rule("silence", at=number), **limits)
        seconds, silent = monotonic() - began, list(bench.proxy.spoiled)
        after = bench.again(Rule("none", at=0)).code
        yield {"request": number, "silent": silent, "code": outcome.code, "seconds": round(seconds, 1), "after": after}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int, default=0)
    parser.add_argument("--silences", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_bench(Path(folder)) as bench:
        if given.nights:
            print(json.dumps(lose_answers(bench, given.nights)), flush=True)
        for line in silence_each(bench, given.silences):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
