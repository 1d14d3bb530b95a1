"""Pyarrow datasets as pieces: the row groups of Parquet files, and files of another kind as a whole."""

from collections.abc import Callable, Sequence
from typing import Any

from ridgestream.pipeline.base.errors import InputError

Read = Callable[[int], Any]
"""Reads what a piece has."""


def pieces_of(
    dataset: Any, y: Any, sample_weight: Any, known: Sequence[str] | None
) -> tuple[tuple[int, ...], Read, Read | None, Read | None]:
    """Return the rows of each piece, and what reads its features, targets and weights.

    Targets and weights are names of columns; the features are the others, or those that are `known`.
    """
    names, targets = dataset.schema.names, [*_names_of(y), *_names_of(sample_weight)]
    if unknown := [name for name in targets if name not in names]:
        raise InputError(f"y and sample_weight of a dataset are names of its columns; there is no {unknown[0]!r:.80}")
    features = [name for name in (names if known is None else known) if name in names and name not in targets]
    groups = [group for fragment in dataset.get_fragments() for group in _row_groups_of(fragment)]

    def column(name: Any) -> Read | None:
        if name is None:
            return None
        if isinstance(name, str):
            return lambda number: groups[number].to_table(columns=[name])[name].to_numpy()
        return lambda number: groups[number].to_table(columns=list(name)).to_pandas().to_numpy()

    counts = tuple(_count_rows(group) for group in groups)
    return counts, lambda number: groups[number].to_table(columns=features), column(y), column(sample_weight)


def _names_of(column: Any) -> list[str]:
    if column is None:
        return []
    return [column] if isinstance(column, str) else list(column)


def _row_groups_of(fragment: Any) -> list[Any]:
    return fragment.split_by_row_group() if hasattr(fragment, "split_by_row_group") else [fragment]


def _count_rows(group: Any) -> int:
    if hasattr(group, "row_groups"):  # `count_rows` is that of the whole file
        return sum(int(each.num_rows) for each in group.row_groups)
    return int(group.count_rows())
