"""The dictionary of a new model with `selection = "fixed"`: given in a file, or drawn from all rows."""

from dataclasses import replace

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.errors import DictionaryError, InputError
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.dataset.dictionary_file import read_dictionary
from ridgestream.pipeline.dataset.feature_map_growth import encoding_of
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.kernels import make_kernel
from ridgestream.pipeline.selection.independence import check_independent
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.selection.starts.random_rows import draw_rows
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.request import OnlineRequest
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.errors.exceptions import ModelError


def check_dictionary(ledger: Ledger, record: ModelRecord, request: OnlineRequest) -> None:
    """Read the given dictionary's file; raises ModelError if its rows are not those of the model."""
    if request.dictionary is None or ledger.schema is None:
        return
    given = read_dictionary(request.dictionary, ledger.schema, encoding_of(record, ledger.schema))
    if not np.array_equal(given.vectors, record.arrays["basis_vectors"]):
        raise ModelError(
            f"the model {record.name!r} began with another dictionary than {request.dictionary} holds now; give the "
            "model another name, or replace it with --new-model"
        )


def read_given(context: TrainingContext, request: OnlineRequest, feature_map: FeatureMap) -> StartingDictionary | None:
    """Return the given dictionary of a new model; None if there is none.

    Raises DictionaryError, with file and row, for rows that are linearly dependent.
    """
    schema = context.ledger.schema
    if context.record is not None or request.dictionary is None or schema is None:
        return None
    given = read_dictionary(request.dictionary, schema, feature_map)
    kernel = make_kernel(request.kernel, request.kernel_parameters, feature_map.n_features)
    try:
        check_independent(kernel, given.vectors, np.zeros(feature_map.n_features))
    except InputError as error:
        raise DictionaryError(f"{request.dictionary}: {error}") from error
    return given


def partitions_to_draw_from(context: TrainingContext, request: OnlineRequest) -> list[tuple[str, int]] | None:
    """Return hash and rows of each partition from which a new model's dictionary is drawn; None if none is drawn."""
    if context.record is not None or request.random_seed is None:
        return None
    return [(entry.content_sha256, entry.rows) for entry in context.ledger.entries]


def draw_dictionary(
    context: TrainingContext, request: OnlineRequest, feature_map: FeatureMap
) -> StartingDictionary | None:
    """Return the dictionary of a new model drawn from all rows; None if none is drawn."""
    if request.random_seed is None or request.max_basis is None:
        return None
    kernel = make_kernel(request.kernel, request.kernel_parameters, feature_map.n_features)
    here = replace(context, executor=InProcess(), keeper=None)
    rows = here.rows([entry.segment for entry in context.ledger.entries], feature_map)
    drawn = draw_rows(rows, kernel, request.max_basis, request.random_seed)
    if len(drawn.vectors) < request.max_basis:
        context.report.warn(
            events.TRAIN_BASIS_SMALLER_THAN_ASKED,
            drawn=len(drawn.vectors),
            asked=request.max_basis,
        )
    return drawn
