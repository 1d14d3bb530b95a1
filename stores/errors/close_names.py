"""The name that may be meant by one that there is not."""

from collections.abc import Iterable
from difflib import get_close_matches


def closest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the one of `names` most like `name`, in any case of letters; None if none is alike."""
    by_folded = {each.casefold(): each for each in reversed(list(names))}
    alike = get_close_matches(name.casefold(), by_folded, n=1)
    return by_folded[alike[0]] if alike else None
