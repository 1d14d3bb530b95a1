"""How missing values of boolean columns are filled; maps older than missing values do not say which are booleans."""

from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.stores.schema.column_types import BOOLEAN
from ridgestream.stores.schema.schema import Schema


def with_boolean_fill(feature_map: FeatureMap, schema: Schema | None) -> FeatureMap:
    """Return the map that fills the schema's boolean columns by their more frequent value, as newly fitted maps do."""
    return feature_map.with_booleans([f.name for f in schema.numeric if f.kind == BOOLEAN]) if schema else feature_map
