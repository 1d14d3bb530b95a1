"""User-given dictionaries: rows of a Parquet file as basis vectors of a new model."""

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.errors import DictionaryError, InputError
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.stores.files.paths import FileLocation
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.parquet.partitions import list_partitions, read_arrow_schema, read_batches
from ridgestream.stores.schema.schema import Schema

_REMEDY = (
    "correct the dictionary, or increase model.scaling_rows, so that the rows that determine the standardization "
    "include the category"
)


def read_dictionary(path: FileLocation, schema: Schema, feature_map: FeatureMap) -> StartingDictionary:
    """Return the rows of a Parquet file, or of a folder of them, which have the store's feature columns.

    Raises PartitionError for an unusable file, DictionaryError if there are no rows, InputError for a category unknown
    to the model.
    """
    parts = []
    for file in list_partitions(path):
        decoder = Decoder(schema, str(file.path), with_target=False, is_dictionary=True)
        decoder.check(read_arrow_schema(file))
        for batch in read_batches(file, schema.columns(with_target=False)):
            rows = decoder.decode(batch)
            maps = _code_maps(feature_map, decoder)
            parts.append(feature_map.features(rows.numeric, rows.codes, maps))
    features = np.concatenate([np.empty((0, feature_map.n_features)), *parts])
    if not len(features):
        raise DictionaryError(f"the dictionary {path} has no row")
    return StartingDictionary(features, np.full(len(features), -1))


def _code_maps(feature_map: FeatureMap, decoder: Decoder) -> list[npt.NDArray[np.int64]]:
    tables = [list(table) for table in decoder.categories]
    try:
        feature_map.check_categories(tables, _REMEDY)
    except InputError as error:
        raise InputError(f"the dictionary {decoder.file}: {error}") from error
    return feature_map.code_maps(tables)
