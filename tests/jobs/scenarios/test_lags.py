"""Time series: earlier rows as columns of a job, night by night, held out and predicted."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.jobs.jobs import REGRESSION, Workplace, assert_same_model, run_command

from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import JobFileError

LAGS: dict[str, Any] = {
    **REGRESSION,
    "source.features": ["price_lag1", "price_lag2", "size"],
    "source.lags": {"price": [1, 2]},
    "model.scaling_rows": 30,
}


def job_settings(**changes: Any) -> dict[str, Any]:
    settings = {**LAGS, **{key.replace("__", "."): value for key, value in changes.items()}}
    lags = settings.pop("source.lags")
    return settings | {f"source.lags.{name}": rows for name, rows in lags.items()}


def draw_series(n: int, keys: int = 1) -> pa.Table:
    """A damped oscillation that is pushed, one for each key, their rows in turns."""
    rng = np.random.default_rng(3)
    price, size = np.zeros((n, keys)), rng.normal(size=(n, keys))
    for t in range(2, n):
        price[t] = 1.6 * price[t - 1] - 0.8 * price[t - 2] + 0.3 * size[t]
    place = np.tile([f"place {key}" for key in range(keys)], n)
    return pa.table({"size": size.ravel(), "price": price.ravel(), "place": place})


def put_series(work: Workplace, table: pa.Table, cuts: list[int], where: str = "rows", first: int = 0) -> None:
    ends = [0, *cuts, table.num_rows]
    for number, (start, stop) in enumerate(pairwise(ends), start=first):
        work.put(number, table.slice(start, stop - start), where)


@pytest.mark.parametrize("keys", [pytest.param(1, marks=pytest.mark.thorough), 3])
def test_nights_learn_what_one_night_would_and_predictions_continue_the_series(tmp_path: Path, keys: int) -> None:
    table = draw_series(80, keys)
    rows, cuts = table.slice(0, 60 * keys), [35 * keys, 36 * keys, 50 * keys + 1]
    changes = job_settings(source__lag_key="place" if keys > 1 else None, source__path="rows")
    one, nightly = Workplace(tmp_path / "one"), Workplace(tmp_path / "nightly")
    for work in (one, nightly):
        put_series(work, table.slice(60 * keys), [7], "held-out", first=50)
    put_series(one, rows, cuts)
    result = one.run_here(changes)
    ends = [0, *cuts, rows.num_rows]
    for number in range(4):
        nightly.put(number, rows.slice(ends[number], ends[number + 1] - ends[number]))
        last = nightly.run_here(changes)
    assert_same_model(one.model(), nightly.model())
    assert one.model().counters["rows_seen"] == 58 * keys
    assert result["test_mse"] == last["test_mse"] < 0.05 * table["price"].to_numpy().var()
    predicted = nightly.predict_here("held-out", changes)["prediction"]
    assert predicted.null_count == 0
    errors = predicted.to_numpy() - table["price"].to_numpy()[60 * keys :]
    assert np.mean(errors**2) < 0.05 * table["price"].to_numpy().var()


def test_predictions_are_made_again_when_rows_before_them_have_come(tmp_path: Path) -> None:
    work, table = Workplace(tmp_path), draw_series(60)
    put_series(work, table.slice(0, 50), [20])
    put_series(work, table.slice(50), [], "later", first=50)
    changes = job_settings(evaluate__path=None)
    work.run_here(changes)
    first = work.predict_here("later", changes)["prediction"].to_numpy()
    work.put(9, table.slice(0, 7))
    second = work.predict_here("later", changes)["prediction"].to_numpy()
    assert (first[:2] != second[:2]).all()
    np.testing.assert_array_equal(first[2:], second[2:])


def test_rows_without_their_lags_are_counted_and_have_no_prediction(tmp_path: Path) -> None:
    work, table = Workplace(tmp_path), draw_series(40)
    put_series(work, table, [1, 20])
    changes = job_settings(evaluate__path=None)
    done = run_command("run", work.job(changes))
    assert done.code == 0, done.err
    assert "dropped=2" in done.err.replace(" ", "").replace("'", "")
    predicted = work.predict_here("rows", changes)["prediction"]
    assert np.flatnonzero(predicted.is_null().to_numpy(zero_copy_only=False)).tolist() == [0, 1]


def test_a_missing_value_of_another_column_is_refused_as_ever(tmp_path: Path) -> None:
    work, table = Workplace(tmp_path), draw_series(40)
    size = table["size"].to_numpy().copy()
    size[7] = np.nan
    work.put(0, table.set_column(0, "size", [size]))
    done = run_command("run", work.job(job_settings(evaluate__path=None)))
    assert done.code != 0
    assert "column 'size' has the value nan in row 7" in done.err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source.lag_key": "place", "source.lags.price": None}, "there are no lags: give lags"),
        ({"source.missing": "impute"}, "rows without their lags are left out, not imputed"),
        ({"source.lags.price": [0]}, r"source\.lags: must be a table .* a whole number ≥ 1"),
    ],
)
def test_lags_that_make_no_sense_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(JobFileError, match=message):
        read_job(Workplace(tmp_path).job({**job_settings(), **changes}), {})
