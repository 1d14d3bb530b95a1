"""Which columns of a feature map are booleans: maps of releases that knew no missing values do not say."""

from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.stores.schema.column_types import BOOLEAN
from ridgestream.stores.schema.schema import Schema


def knowing_booleans(feature_map: FeatureMap, schema: Schema | None) -> FeatureMap:
    """Return the map that fills the schema's booleans by their more frequent value, as new maps do."""
    return feature_map.with_booleans([f.name for f in schema.numeric if f.kind == BOOLEAN]) if schema else feature_map
