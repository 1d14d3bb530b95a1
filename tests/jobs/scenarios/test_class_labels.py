"""Labels of classes in jobs: values that are no class, too many classes, listed classes, and flags."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from support.jobs.jobs import (
    ROWS,
    Settings,
    Workplace,
    draw_rows,
    run_command,
    set_column,
)

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.errors import InputError
from ridgestream.stores.errors.exceptions import PartitionError, StoreError

EACH: Settings = {"source.positive": None, "source.classes": "all"}
Array = npt.NDArray[np.float64]


def test_a_numeric_quantity_is_not_treated_as_classes(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    values = np.random.default_rng(0).normal(size=1500)
    work.put(0, pa.table({"x": values, "label": values}))
    said = (
        r"part-00\.parquet: column 'label' has more than 1000 different values up to row 1500; .*leave out source\.cla"
    )
    with pytest.raises(PartitionError, match=said):
        work.run_here({**EACH, "evaluate.path": None})


def test_too_many_classes_over_many_partitions_are_refused(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for number in range(3):
        work.put(number, pa.table({"x": np.arange(500.0), "label": 500 * number + np.arange(500)}))
    with pytest.raises(InputError, match="have 1500 different classes, more than 1000; to regress on a quantity"):
        work.run_here({**EACH, "evaluate.path": None})


BAD: dict[str, tuple[pa.Array, str]] = {
    "fraction": (pa.array([1.0, 2.5] * (ROWS // 2)), r"part-01\.parquet: column 'label' has a value that cannot be us"),
    "NaN": (pa.array([1.0, np.nan] * (ROWS // 2)), r"part-01\.parquet: column 'label' has the value nan in row 1;"),
    "null": (pa.array([1, None] * (ROWS // 2)), r"part-01\.parquet: column 'label' has the value null in row 1;"),
    "text": (pa.array(["1"] * ROWS), r"column 'label' has type string, the store has its classes as integer; write"),
    "boolean": (pa.array([True] * ROWS), r"column 'label' has type bool, the store has its classes as integer; wr"),
    "too large": (pa.array([2**63] * ROWS, pa.uint64()), r"column 'label' has a value that cannot be used"),
}


@pytest.mark.samples
@pytest.mark.parametrize(("values", "message"), BAD.values(), ids=BAD.keys())
def test_values_that_are_no_class_are_refused(tmp_path: Path, values: pa.Array, message: str) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    work.run_here(EACH)
    before = work.snapshot()
    work.put(1, set_column(draw_rows(1), "label", values))
    with pytest.raises(PartitionError, match=message):
        work.run_here(EACH)
    assert work.snapshot() == before


@pytest.mark.parametrize(
    ("values", "classes", "message"),
    [
        (pa.array([[1]] * ROWS), "all", r"the target 'label' has type list<.*>; classes are text, numbers or booleans"),
        (pa.array([1] * ROWS), ["1", "2"], r"holds classes of the kind integer, which '1' of source\.classes cannot"),
        (pa.array([1] * ROWS), [1, 2.5], r"holds classes of the kind integer, which 2\.5 of source\.classes cannot"),
        (pa.array([1] * ROWS), [True, False], r"holds classes of the kind integer, which True of source\.classes ca"),
        (pa.array(["1"] * ROWS), [1, 2], r"holds classes of the kind text, which 1 of source\.classes cannot equal"),
    ],
    ids=["lists", "text", "fraction", "booleans", "numbers"],
)
def test_classes_that_the_column_cannot_hold_are_refused(
    tmp_path: Path, values: pa.Array, classes: Any, message: str
) -> None:
    work = Workplace(tmp_path)
    work.put(0, set_column(draw_rows(0), "label", values))
    with pytest.raises(PartitionError, match=message):
        work.run_here({**EACH, "source.classes": classes, "evaluate.path": None})


def test_a_text_class_called_all_is_no_keyword(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put(0, set_column(draw_rows(0), "label", pa.array(["all", "none"] * (ROWS // 2))))
    work.run_here({**EACH, "source.classes": ["all", "none"], "evaluate.path": None})
    assert work.model().encoding["classes"] == ["all", "none"]
    with pytest.raises(StoreError, match=r"made with classes = \('all', 'none'\), the job says 'all'"):
        work.run_here({**EACH, "evaluate.path": None})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"source.classes": "all"}, "positive learns one class against the rest, classes learns each: give one"),
        ({**EACH, "source.classes": []}, "source.classes"),
        ({**EACH, "source.classes": "some"}, "source.classes"),
        ({**EACH, "source.classes": [1, 1]}, "a class is listed twice"),
        ({**EACH, "source.classes": [1, "2"]}, "classes are all text, all numbers or all booleans"),
    ],
    ids=["with positive", "none", "word", "twice", "mixed"],
)
def test_invalid_jobs_are_refused(tmp_path: Path, changes: Settings, said: str) -> None:
    done = run_command("run", Workplace(tmp_path).job(changes))
    assert (done.code, said in done.err, done.out) == (exit_codes.USAGE, True, ""), done


def test_classes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Workplace(tmp_path)
    for text, expected in (("all", "all"), ("[1, 2]", (1, 2)), ('["a", "b"]', ("a", "b")), ("[true]", (True,))):
        monkeypatch.setenv("RIDGESTREAM_SOURCE__CLASSES", text)
        assert read_job(work.job({"source.positive": None}), {}).source.classes == expected
    monkeypatch.delenv("RIDGESTREAM_SOURCE__CLASSES")
    for text, targets in (("2", ("2",)), ("null", ("null",)), ('["a", "b"]', ("a", "b")), ("a", ("a",))):
        monkeypatch.setenv("RIDGESTREAM_SOURCE__TARGET", text)
        assert read_job(work.job({"source.positive": None}), {}).source.targets == targets
