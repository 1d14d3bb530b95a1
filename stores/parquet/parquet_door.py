"""The one door through which every Parquet file is opened, so that no reader changes a value before it is checked.

What pyarrow would decide by itself, and has decided differently from release to release, is stated here.
"""

from typing import Any

from ridgestream.stores.files.paths import FileLocation, open_file


def open_parquet(location: FileLocation, ahead_bytes: int) -> Any:  # noqa: ANN401 (pyarrow has no types)
    """Return the `pyarrow.parquet.ParquetFile` at a location, which reads objects `ahead_bytes` at least at a time.

    INT96 time stamps are read in microseconds: nanoseconds, which pyarrow takes by default, reach from 1677 to 2262
    only, and it wraps what lies outside. Raises StoreError if an object cannot be read, and what pyarrow raises for a
    file that is not Parquet.
    """
    import pyarrow.parquet as pq

    return pq.ParquetFile(
        open_file(location, ahead_bytes),
        memory_map=False,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit="us",
    )
