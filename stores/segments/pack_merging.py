"""Dropping segments, and merging small packs, so that nights of single partitions leave few packs, too.

The weight of a pack is its number of members, or the share of a full pack that its rows take, in 256ths, if that is
more. Sixteen packs of less than 16, or sixteen of less than half a pack, are merged into one or several. So every row
is rewritten at most twice, and besides full packs there are at most thirty others of each float width.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import TYPE_CHECKING

from ridgestream.stores.errors.translation import store_errors
from ridgestream.stores.segments.pack_reader import Pack, list_packs
from ridgestream.stores.segments.packs import MOST_MEMBERS, most_rows, write_packs
from ridgestream.stores.segments.segment_format import segment_path

if TYPE_CHECKING:
    import zarr

    from ridgestream.stores.segments.packs import PackName

_AT_ONCE = 16
"""Number of packs of one size that are merged."""

_FULL = MOST_MEMBERS // 2
"""Packs of this weight stay as they are."""


def drop_segments(root: "zarr.Group", numbers: Collection[int]) -> None:
    """Delete segments within a session; earlier snapshots keep them.

    Packs with a dropped member are written again without it: no row of it is left in the new snapshot.
    """
    remaining = {*numbers}
    for name in list_packs(root) if remaining else ():
        if not any(name.first <= number <= name.last for number in remaining):
            continue
        pack = Pack.open(root, name.path)
        dropped = remaining & pack.positions.keys()
        if dropped:
            _replace(root, [name], [pack], dropped)
            remaining -= dropped
    for number in sorted(remaining):
        with store_errors(f"{segment_path(number)} of the store"):
            del root[segment_path(number)]


def merge_packs(root: "zarr.Group") -> None:
    """Merge small packs of similar size within a session, if there are many; reads no row unless it merges."""
    while (groups := list(_find_mergeable(root))) != []:
        for group in groups:
            _replace(root, [sized.name for sized in group], [Pack.open(root, sized.name.path) for sized in group])


@dataclass(frozen=True)
class _SizedPack:
    """A pack with its size."""

    name: "PackName"
    width: int
    """Bytes of a number."""
    weight: int
    """256 for a full pack."""

    @property
    def tier(self) -> int:
        return 0 if self.weight < _AT_ONCE else 1


def _find_mergeable(root: "zarr.Group") -> Iterator[list[_SizedPack]]:
    """Yield the packs to be merged, among those after the last full one."""
    newest = (_measure(root, name) for name in reversed(list_packs(root)))
    small = list(takewhile(lambda pack: pack.weight < _FULL, newest))[::-1]
    small.sort(key=lambda pack: (pack.width, pack.tier))  # stable: in ascending order within each
    for _, alike in groupby(small, key=lambda pack: (pack.width, pack.tier)):
        packs = list(alike)
        if len(packs) >= _AT_ONCE:
            yield packs


def _measure(root: "zarr.Group", name: "PackName") -> _SizedPack:
    pack = Pack.open(root, name.path)
    shape, dtype = pack.arrays.array("numeric").shape, pack.arrays.array("numeric").dtype
    most = most_rows(shape[1], dtype.itemsize)
    return _SizedPack(name, dtype.itemsize, max(len(pack.members), pack.arrays.rows * MOST_MEMBERS // most))


def _replace(
    root: "zarr.Group", names: "Sequence[PackName]", packs: Sequence[Pack], dropped: Collection[int] = ()
) -> None:
    """Write the members of packs again, but for the dropped ones, in place of these packs."""
    members = [member for pack in packs for member in pack.all_members() if member.segment not in dropped]
    for name in names:
        with store_errors(f"{name.path} of the store"):
            del root[name.path]
    write_packs(root, members)
