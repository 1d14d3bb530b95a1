"""How the learners' loops are compiled."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Compiled = TypeVar("Compiled", bound=Callable[..., Any])


def compiled(function: Compiled) -> Compiled:
    """Compile; keep the machine code for the next process, unless neither the package nor a home can be written.

    Sums may be reordered, the same way every time.
    """
    fast = {"reassoc", "contract"}
    try:
        return cast("Compiled", njit(cache=True, nogil=True, fastmath=fast)(function))
    except RuntimeError:
        return cast("Compiled", njit(nogil=True, fastmath=fast)(function))
