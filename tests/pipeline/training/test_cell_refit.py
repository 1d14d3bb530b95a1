"""A refit of local experts: every cell's exact sums, solved, kept beside the learner's cells."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from support.stores.partitions import REQUEST, mixed_columns, write_partition
from support.stores.stores import ingest_folder, new_store
from support.stores.training import MODEL, context_of

from ridgestream.pipeline.base.errors import MemoryRefused
from ridgestream.pipeline.base.memory_plan import check_plans
from ridgestream.pipeline.dataset.block_stream import Stream
from ridgestream.pipeline.dataset.feature_map_growth import encoding_of
from ridgestream.pipeline.models.experts_record import experts_of, served_experts_of
from ridgestream.pipeline.models.model_record import is_refitted, model_of
from ridgestream.pipeline.training.online.trainer import OnlineTrainer
from ridgestream.pipeline.training.refit import may_refit, plan_refit, refit, refit_if_better
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.catalog.models import REFIT_CELLS, ModelRecord
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.segments.segments import Segments

SIZES = [300, 0, 500, 1, 257]
CELLS = 4

Array = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, ModelRecord]:
    """A store of weighted rows, and a model of four cells that has learned them."""
    folder = tmp_path_factory.mktemp("experts")
    for i, rows in enumerate(SIZES):
        weights = {"w": np.random.default_rng(i).choice([0.0, 0.5, 2.0], rows)}
        write_partition(folder / "source" / f"part-{i}.parquet", mixed_columns(rows, seed=i) | weights)
    store = new_store(folder / "store")
    ingest_folder(store, folder / "source", replace(REQUEST, weight="w"))
    done = OnlineTrainer(replace(MODEL, experts=CELLS)).train(context_of(store))
    return store, replace(done.record, learned=tuple(entry.segment for entry in done.entries))


@pytest.fixture(scope="module")
def rows(trained: tuple[Store, ModelRecord]) -> tuple[Array, Array, Array]:
    """All rows as the model sees them: features, targets and weights."""
    store, record = trained
    feature_map = encoding_of(record, read_ledger(store.root()).schema)
    blocks = [*Stream(Segments(store.root()), record.learned, feature_map).blocks()]
    X, y, w = (np.concatenate([getattr(b, name) for b in blocks]) for name in ("features", "targets", "weights"))
    return X, y, w


def test_every_cell_has_the_coefficients_of_a_dense_solve_of_its_rows(
    trained: tuple[Store, ModelRecord], rows: tuple[Array, Array, Array]
) -> None:
    (store, record), (X, y, w) = trained, rows
    refitted = refit(context_of(store), record, record.learned)
    own, served = experts_of(record), served_experts_of(refitted)
    cells, kernel = own.cells.nearest(X), own.parameters.kernel
    for cell in range(CELLS):
        state, mine = served.state_of(cell), cells == cell
        D, weight = state.basis_vectors, w[mine].sum()
        np.testing.assert_array_equal(D, own.state_of(cell).basis_vectors)
        K = kernel.block(X[mine], D, state.centre)
        G = K.T @ (K * w[mine, np.newaxis])
        np.testing.assert_allclose(state.normal_matrix, G, rtol=1e-10, atol=1e-12)
        assert (state.weight_seen, state.rows_seen, state.penalty) == (weight, mine.sum(), 0.0)
        ridge = own.parameters.regularization * weight * kernel.block(D, D, state.centre)
        expected = K @ np.linalg.solve(G + ridge, K.T @ (w[mine, np.newaxis] * y[mine]))
        np.testing.assert_allclose(next(model_of(refitted).outputs([X[mine]])), expected, atol=1e-6)
    assert np.abs(next(model_of(refitted).outputs([X])) - next(model_of(record).outputs([X]))).max() > 1e-6


def test_the_learner_s_cells_stay_and_a_refit_of_a_refitted_model_changes_no_bit(
    trained: tuple[Store, ModelRecord], rows: tuple[Array, Array, Array]
) -> None:
    store, record = trained
    refitted = refit(context_of(store), record, record.learned)
    assert refitted.arrays.keys() - record.arrays.keys() == {REFIT_CELLS}
    assert (is_refitted(record), is_refitted(refitted)) == (False, True)
    again = refit(context_of(store), refitted, record.learned)
    np.testing.assert_array_equal(again.arrays[REFIT_CELLS], refitted.arrays[REFIT_CELLS])
    outputs, variance = model_of(refitted, with_uncertainty=True).moments(rows[0])
    assert np.isfinite(outputs).all()
    assert (variance > 0).all()


def test_the_memory_of_a_refit_is_that_of_all_cells() -> None:
    check_plans([plan_refit(10, 200, 300)], 2 * 10**9)
    with pytest.raises(MemoryRefused, match="refitting with max_basis = 200"):
        check_plans([plan_refit(10, 200, 3000)], 2 * 10**9)


def test_a_refit_is_tried_where_rows_are_few_and_kept_if_rows_left_out_gain(
    trained: tuple[Store, ModelRecord], rows: tuple[Array, Array, Array]
) -> None:
    """The gain is that of the mean squared error of rows left out of their own cell's exact sums."""
    (store, record), (X, y, w) = trained, rows
    context, request = context_of(store), replace(MODEL, experts=CELLS)
    entries = read_ledger(store.root()).entries
    result = replace(OnlineTrainer(request).train(context), record=record, entries=entries)
    tried = refit_if_better(context, request, result, record.learned)
    before, after = record, refit(context, record, record.learned)
    errors = []
    served = served_experts_of(after)
    for model in (before, after):
        out, state = np.zeros_like(y), served_experts_of(model).published()
        for cell in range(CELLS):
            mine = served.cells.nearest(X) == cell
            D, coefficients = state.expansion(cell)
            own = served.state_of(cell)
            K = own.parameters.kernel.block(X[mine], D, own.centre)
            M = own.normal_matrix + own.parameters.regularization * own.weight_seen * own.gram
            h = w[mine] * np.einsum("ij,ji->i", K, np.linalg.solve(M, K.T))
            out[mine] = ((y[mine] - K @ coefficients) / (1 - h)[:, np.newaxis]) ** 2
        errors.append(float(w @ out.mean(axis=1)))
    assert tried.refit_gain is not None
    assert tried.refit_gain == pytest.approx(1 - errors[1] / errors[0], abs=0.02)
    assert is_refitted(tried.record) == (tried.refit_gain > 0.01)


@pytest.mark.parametrize(
    ("experts", "n_rows", "n_basis", "is_tried"),
    [(1, 51_200, 100, True), (1, 51_201, 100, False), (9, 51_200, 100, True), (9, 512_001, 90_000, False)],
)
def test_a_refit_of_many_rows_is_not_tried(experts: int, n_rows: int, n_basis: int, *, is_tried: bool) -> None:
    assert may_refit(MODEL, n_rows, n_basis, local=experts > 1) == is_tried
