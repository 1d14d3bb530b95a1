"""What every method's training says at its end."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.jobs.recording import Notes
from support.stores.partitions import REQUEST, mixed_columns, write_partition
from support.stores.stores import ingest_folder, new_store
from support.stores.training import MODEL, context_of

from ridgestream.pipeline.batch.subset_of_regressors import METHOD
from ridgestream.pipeline.training.request import BatchRequest, OnlineRequest
from ridgestream.pipeline.training.trainer import train, trainer_of

BATCH = BatchRequest(
    name="b", method="subset-of-regressors", kernel="rbf", kernels=({},), settings=METHOD.settings(), scaling_rows=100
)


def wider(request: OnlineRequest | BatchRequest, gamma: float) -> OnlineRequest | BatchRequest:
    if isinstance(request, OnlineRequest):
        return replace(request, kernel_parameters={"gamma": gamma})
    return replace(request, kernels=({"gamma": gamma},))


@pytest.mark.parametrize("request_", [MODEL, BATCH], ids=lambda request: request.method)
def test_a_dictionary_of_unrelated_vectors_is_reported(tmp_path: Path, request_: OnlineRequest | BatchRequest) -> None:
    write_partition(tmp_path / "in" / "part-0.parquet", mixed_columns(60))
    store = new_store(tmp_path / "store")
    ingest_folder(store, tmp_path / "in", REQUEST)
    for gamma, said in ((0.1, False), (1e4, True)):
        notes = Notes()
        train(trainer_of(wider(request_, gamma)), context_of(store, report=notes))
        assert ("train.vectors_unrelated" in notes.codes) == said
