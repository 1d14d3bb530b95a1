"""The class that is learned against the rest: it must occur in the rows with which a store begins."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ridgestream.stores.errors.close_names import closest_name
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.errors.transient import is_transient
from ridgestream.stores.parquet.column_reader import DROP
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.parquet.partitions import PartitionFile, open_partition
from ridgestream.stores.schema.class_labels import Label, class_name
from ridgestream.stores.schema.schema import SchemaRequest, infer_schema

NAMED = 10
"""The most classes that a message names."""


def check_positive(request: SchemaRequest, files: Sequence[PartitionFile]) -> None:
    """Raise PartitionError, with the classes that there are, if no row of any file has `source.positive`.

    The target is read until a row has it. A file that cannot be used may have it; its ingest reports it.
    """
    if request.positive is None:
        return
    labels: set[Label] = set()
    try:
        for file in files:
            for found, is_there in _batches(request, file):
                if is_there:
                    return
                labels |= found
    except PartitionError as error:
        if is_transient(error):
            raise
        return
    if labels:
        raise PartitionError(_explain(request.target, request.positive, files, sorted(map(class_name, labels))))


def _batches(request: SchemaRequest, file: PartitionFile) -> Iterator[tuple[set[Label], bool]]:
    """Yield the classes of each batch, and whether the positive one is among them."""
    with open_partition(file) as opened:
        schema = replace(infer_schema(request, opened.arrow_schema, str(file.path)), features=(), weight=None)
        decoder = Decoder(schema, str(file.path), missing=DROP)
        decoder.check(opened.arrow_schema)
        for batch in opened.batches(list(schema.targets)):
            targets = decoder.decode(batch).targets
            labels = batch.column(0).unique().to_pylist()
            yield {label for label in labels if label is not None}, targets is not None and bool((targets > 0).any())


def _explain(target: object, positive: Label, files: Sequence[PartitionFile], names: Sequence[str]) -> str:
    where = str(files[0].path) + (f" and {len(files) - 1} more files" if len(files) > 1 else "")
    shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    alike = closest_name(class_name(positive), names) if isinstance(positive, str) else None
    meant = f" (did you mean {alike!r}?)" if alike else ""
    return (
        f"{where}: no row has source.positive = {positive!r}{meant} in the column {target!r}, which has "
        f"{shown}; correct it, or run the job once there are rows of that class"
    )
