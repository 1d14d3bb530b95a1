"""The stored form of what a feature map has beyond version 0.1.0: parallel lists over columns, absent where idle."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.features.calendar import CYCLES
from ridgestream.pipeline.features.columns import CategoricalColumn, NumericColumn


@dataclass(frozen=True)
class FlatAdditions:
    """Time stamps as circles, open scales and plain indicators; a list is empty if none of its columns has such."""

    cycles: tuple[tuple[str, ...], ...] = ()
    """The circles of each numeric column."""
    linear: tuple[bool, ...] = ()
    """Whether the value of each numeric column is a feature."""
    distinct: tuple[int, ...] = ()
    """How many different values each numeric column has had, 2 for more."""
    category_fill: tuple[int, ...] = ()
    """The indicator of a missing value of each categorical column, −1 for none, if indicators are plain in any."""

    @classmethod
    def of(cls, numeric: Sequence[NumericColumn], categorical: Sequence[CategoricalColumn]) -> Self:
        """Return the additions of these columns."""
        cycles, linear = tuple(c.cycles for c in numeric), tuple(c.is_linear for c in numeric)
        distinct = tuple(c.distinct for c in numeric)
        is_plain = any(c.fill is not None for c in categorical)
        return cls(
            cycles if any(cycles) else (),
            () if all(linear) else linear,
            distinct if min(distinct, default=2) < 2 else (),
            tuple(c.fill_indicator() for c in categorical) if is_plain else (),
        )

    def numeric_columns(self, columns: Sequence[NumericColumn]) -> tuple[NumericColumn, ...]:
        """Return the numeric columns with what was added to them."""
        n = len(columns)
        added = zip(self.cycles or ((),) * n, self.linear or (True,) * n, self.distinct or (2,) * n, strict=True)
        return tuple(
            replace(column, cycles=cycles, is_linear=is_linear, distinct=distinct)
            for column, (cycles, is_linear, distinct) in zip(columns, added, strict=True)
        )

    def categorical_columns(self, columns: Sequence[CategoricalColumn]) -> tuple[CategoricalColumn, ...]:
        """Return the categorical columns with what was added to them."""
        if not self.category_fill:
            return tuple(columns)
        return tuple(replace(c, fill=fill) for c, fill in zip(columns, self.category_fill, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON object; empty where nothing was added."""
        return {key: value for key, value in asdict(self).items() if value}

    @classmethod
    def split(cls, plain: Mapping[str, Any]) -> tuple[dict[str, Any], Self]:
        """Return the JSON object of a map of version 0.1.0, and the additions; raises InputError for anything else."""
        names = {item.name for item in fields(cls)}
        rest = {key: value for key, value in plain.items() if key not in names}
        try:
            lists = {key: _as_tuples(plain[key]) for key in names & plain.keys()}
        except TypeError as error:
            raise InputError(f"this is no feature map: {error}") from error
        return rest, cls(**lists)

    def check(self, n_numeric: int, n_categories: Sequence[int]) -> None:
        """Raise InputError unless the lists belong to so many numeric columns, and categories of each other column."""
        if not all(self._checks(n_numeric, n_categories)):
            raise InputError("this is no feature map: its parts do not belong together")

    def _checks(self, n_numeric: int, n_categories: Sequence[int]) -> Iterator[bool]:
        yield all(len(each) in (0, n_numeric) for each in (self.cycles, self.linear, self.distinct))
        yield all(isinstance(each, tuple) and all(cycle in CYCLES for cycle in each) for each in self.cycles)
        yield all(type(each) is bool for each in self.linear)
        yield all(type(each) is int and 0 <= each <= 2 for each in self.distinct)
        yield len(self.category_fill) in (0, len(n_categories))
        fills = zip(self.category_fill, n_categories, strict=False)
        yield all(type(fill) is int and -1 <= fill < n for fill, n in fills)


def _as_tuples(values: Any) -> Any:  # noqa: ANN401
    return tuple(tuple(each) if isinstance(each, list) else each for each in values)
