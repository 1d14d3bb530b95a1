"""Compares the online learner with a lower bound of its cost, with its row-by-row form, and with scikit-learn.

    python tests/benchmarks/online.py --rows 500000 --basis 100 300 500 --json --plot cost.png

On the bundled forest rows, standardized and in memory, in one process on one BLAS thread, for each dictionary size:

- the learner and the lower bound (one pass with the same kernel blocks for a fixed dictionary, KᵀK and Kᵀy, nothing
  selected) in turn, three times; `ratio` is that of their median seconds, `cpu_ratio` that of their CPU seconds, which
  a busy machine disturbs less;
- the row-by-row NumPy form on the first 20,000 rows, whether it chooses the same dictionary, and the speed-up per row,
  in CPU seconds, on these rows and over all of the learner's; and the same for the form of the paper, which grows and
  prunes for every useful row instead of comparing the scores first;
- the learner, and Nystroem + Ridge, each in a process of its own: seconds, test error, peak of memory.

--parts adds what each matrix product of the learner, and its swaps, cost alone, in microseconds a row, with `ratio` of
their sum to the lower bound; decisions row by row, and all else, come on top. `nothing_to_decide` is the ratio
of the same learner where no row is useful enough for a decision; `triangular`, in microseconds a row, the other exact
form of the products W, C, the sweep and P⁻¹.

--plot adds the cost of a row against the dictionary's size (100 … 2,000) and against the rows (10,000 … 5,000,000), as
JSON and as a picture; that takes minutes. --quick takes each measurement once and small, to see that it runs.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # `support` and `benchmarks`, as pytest finds them

from benchmarks.cost_curves import FULL, QUICK, measure_curves
from benchmarks.cost_plot import plot_curves
from benchmarks.measuring import Took, error_percent, learn, lower_bound, new_learner, say, warm_up
from benchmarks.parts import measure_parts
from benchmarks.rivals import measure_in_a_process
from benchmarks.row_by_row import measure_row_by_row
from support.data.forest import Rows, standardized_forest

from ridgestream.pipeline.base.blas_threads import blas_threads, one_blas_thread

ROW_BY_ROW_ROWS = 20_000


def measure_against_bound(rows: Rows, test: Rows, max_basis: int, *, quick: bool, parts: bool) -> dict[str, Any]:
    """Run the learner and the lower bound in turn, the latter with the learner's final dictionary."""
    runs = []
    for _ in range(1 if quick else 3):
        learner = new_learner(max_basis)
        took = learn(learner, rows)
        _, bound = lower_bound(rows, learner.state().basis_vectors)
        runs.append({"learner": rounded(took), "lower_bound": rounded(bound)})
        say(f"max_basis {max_basis}: {runs[-1]}")
    middle = {
        (what, clock): median(run[what][clock] for run in runs)
        for what in ("learner", "lower_bound")
        for clock in ("seconds", "cpu_seconds")
    }
    cpu_seconds = middle["learner", "cpu_seconds"]
    alone = {"parts": measure_parts(learner, rows, quick=quick)} if parts else {}
    return {
        "max_basis": max_basis,
        "n_basis": learner.n_basis,
        "ratio": round(middle["learner", "seconds"] / middle["lower_bound", "seconds"], 3),
        "cpu_ratio": round(cpu_seconds / middle["lower_bound", "cpu_seconds"], 3),
        "learner_seconds": middle["learner", "seconds"],
        "lower_bound_seconds": middle["lower_bound", "seconds"],
        "cpu_microseconds_per_row": round(1e6 * cpu_seconds / len(rows.X), 3),
        "runs": runs,
        "swaps": learner.swaps,
        "suspected_share": learner.suspected_share,
        "test_error_percent": error_percent(learner.predict(test.X)[:, 0], test.y),
        **alone,
    }


def rounded(took: Took) -> dict[str, float]:
    """Return both clocks, in seconds."""
    return {"seconds": round(took.seconds, 4), "cpu_seconds": round(took.cpu_seconds, 4)}


def measure(rows: Rows, test: Rows, max_basis: int, *, quick: bool, parts: bool) -> dict[str, Any]:
    """Return all figures for one dictionary size."""
    figures = measure_against_bound(rows, test, max_basis, quick=quick, parts=parts)
    one_by_one = measure_row_by_row(rows.first(500 if quick else ROW_BY_ROW_ROWS), max_basis)
    for name in ("", "grow_and_prune_"):
        per_row = one_by_one[f"{name}cpu_microseconds_per_row"]
        one_by_one[f"{name}speed_up_over_all_rows"] = round(per_row / figures["cpu_microseconds_per_row"], 2)
    say(f"max_basis {max_basis}, row by row: {one_by_one}")
    alone = {name: measure_in_a_process(name, len(rows.X), max_basis) for name in ("online", "nystroem")}
    say(f"max_basis {max_basis}, each in its own process: {alone}")
    return {**figures, "row_by_row": one_by_one, "own_process": alone}


def table(report: dict[str, Any]) -> str:
    """Return the figures of the report as a table."""
    lines = [f"{'m':>5} {'ratio':>6} {'seconds':>8} {'bound':>7} {'error %':>8} {'speed-up':>9}   Nystroem + Ridge"]
    for figures in report["basis"]:
        rival, speed_up = figures["own_process"]["nystroem"], figures["row_by_row"]["speed_up_over_all_rows"]
        lines.append(
            f"{figures['max_basis']:>5} {figures['ratio']:>6.2f} {figures['learner_seconds']:>8.2f} "
            f"{figures['lower_bound_seconds']:>7.2f} {figures['test_error_percent']:>8.2f} {speed_up:>8.1f}×   "
            f"{rival['seconds']:.1f} s, {rival['test_error_percent']:.2f} %, {rival['peak_bytes'] / 1e9:.2f} GB"
        )
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--basis", type=int, nargs="+", action="extend", help="dictionary sizes (100 300 500)")
    parser.add_argument("--json", action="store_true", help="print one JSON object rather than a table")
    parser.add_argument("--parts", action="store_true", help="measure what each part of the learner costs alone")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="measure the cost curves too and draw them")
    parser.add_argument("--quick", action="store_true", help="once and small")
    return parser.parse_args()


def main() -> None:
    """Measure, draw, print."""
    arguments = parse()
    rows, test = standardized_forest(arguments.rows)
    warm_up(rows)
    with one_blas_thread():
        threads = blas_threads()
    sizes = arguments.basis or [100, 300, 500]
    figures = [measure(rows, test, max_basis, quick=arguments.quick, parts=arguments.parts) for max_basis in sizes]
    report: dict[str, Any] = {"rows": len(rows.X), "blas_threads": threads, "basis": figures}
    if arguments.plot:
        plan = QUICK if arguments.quick else FULL
        report["curves"] = measure_curves(plan)
        plot_curves(report["curves"], plan, arguments.plot)
    print(json.dumps(report) if arguments.json else table(report))


if __name__ == "__main__":
    main()
