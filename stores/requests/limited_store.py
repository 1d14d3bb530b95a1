"""The Zarr store of a session, each of whose requests has a time limit and names what is read or written."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zarr.storage import WrapperStore

from ridgestream.stores.errors.zarr_settings import ZARR_FORMAT
from ridgestream.stores.requests.time_limit import TimeLimit

if TYPE_CHECKING:
    import icechunk
    import zarr
    from icechunk.store import IcechunkStore
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype


class LimitedStore(WrapperStore["IcechunkStore"]):
    """Icechunk's store with a time limit; every request may be repeated, since a session sees its own writes only."""

    def __init__(
        self, store: "IcechunkStore", limit: TimeLimit | None = None, known: dict[str, tuple[str, object]] | None = None
    ) -> None:
        super().__init__(store)
        self._limit = limit or TimeLimit()
        self.known = {} if known is None else known
        """Records of the store by their paths, each with its hash, as this process last read or wrote them."""

    def __reduce__(self) -> "tuple[type[LimitedStore], tuple[IcechunkStore, TimeLimit]]":
        return type(self), (self._store, self._limit)

    def _with_store(self, store: "IcechunkStore") -> "LimitedStore":
        return type(self)(store, self._limit, self.known)

    async def get(
        self, key: str, prototype: "BufferPrototype", byte_range: "ByteRequest | None" = None
    ) -> "Buffer | None":
        """Return a value, or a part of it; None if there is none."""
        return await self._limit.answer(lambda: self._store.get(key, prototype, byte_range), _label(key))

    async def get_partial_values(
        self, prototype: "BufferPrototype", key_ranges: "Iterable[tuple[str, ByteRequest | None]]"
    ) -> "list[Buffer | None]":
        """Return parts of values."""
        ranges = list(key_ranges)
        subject = ", ".join(sorted({_label(key) for key, _ in ranges}))
        return await self._limit.answer(lambda: self._store.get_partial_values(prototype, ranges), subject)

    async def exists(self, key: str) -> bool:
        """Return whether there is a value."""
        return await self._limit.answer(lambda: self._store.exists(key), _label(key))

    async def getsize(self, key: str) -> int:
        """Return the size of a value in bytes."""
        return await self._limit.answer(lambda: self._store.getsize(key), _label(key))

    async def set(self, key: str, value: "Buffer") -> None:
        """Write a value."""
        await self._limit.answer(lambda: self._store.set(key, value), _label(key))

    async def delete(self, key: str) -> None:
        """Delete a value."""
        await self._limit.answer(lambda: self._store.delete(key), _label(key))

    async def delete_dir(self, prefix: str) -> None:
        """Delete all values below a path."""
        await self._limit.answer(lambda: self._store.delete_dir(prefix), _label(prefix))

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names below a path."""

        async def names() -> list[str]:
            return [name async for name in self._store.list_dir(prefix)]

        for name in await self._limit.answer(names, f"the members of {_label(prefix)}"):
            yield name


@dataclass(frozen=True)
class Fork:
    """A part of a session for changes that another process may make; merged into the session, it is committed."""

    session: "icechunk.ForkSession"
    """Icechunk's fork."""
    limit: TimeLimit
    """The time limit of its requests."""

    @property
    def root(self) -> "zarr.Group":
        """The root group."""
        import icechunk
        import zarr

        icechunk.set_logs_filter("off")  # in a worker it would go to the standard output that it has inherited
        return zarr.open_group(LimitedStore(self.session.store, self.limit), mode="a", zarr_format=ZARR_FORMAT)


def _label(key: str) -> str:
    return key or "the root"
