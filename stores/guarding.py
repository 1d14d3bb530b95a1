"""The errors of Icechunk, Zarr and the operating system as StoreError, with the place and what happened to it."""

from collections.abc import Iterator
from contextlib import contextmanager

from ridgestream.stores.errors import ModelError, StoreError


@contextmanager
def store_errors(place: str) -> Iterator[None]:
    """Turn the errors of Icechunk and the operating system into StoreError; `place` is such as "the store /data"."""
    import icechunk

    try:
        yield
    except StoreError:
        raise
    except icechunk.ConflictError as error:
        raise StoreError(f"another writer has committed to {place} meanwhile; run the job again") from error
    except (icechunk.IcechunkError, OSError) as error:
        raise StoreError(f"{place} cannot be read or written: {_first_line(error)}") from error


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Turn what else comes of bytes that do not decode into StoreError, too; for code that does nothing but read."""
    try:
        with store_errors(place):
            yield
    except (StoreError, ModelError):
        raise
    except (RuntimeError, ValueError, LookupError, TypeError) as error:
        raise StoreError(f"{place} holds damaged data: {_first_line(error)}; restore it from a copy") from error


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Put the place before what a StoreError says, where it does not say it: arrays do not know whose they are."""
    try:
        yield
    except StoreError as error:
        if place in str(error):
            raise
        raise type(error)(f"{place}: {error}") from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip(" │|x×`->╰─▶") for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith(("context:", "0:", "at "))]
    return telling[0] if telling else type(error).__name__
