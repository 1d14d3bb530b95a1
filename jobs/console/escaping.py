"""Text from files, stores and servers on its way to a terminal: what would steer the terminal is shown, not done."""

import re
from typing import Any

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters, ESC among them, and line separators; not tabs and line feeds."""


def harmless(text: str) -> str:
    r"""Return the text with control characters, but for tabs and line feeds, as escapes such as `\x1b`."""
    return _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


def harmless_cells(told: Any) -> Any:  # noqa: ANN401 (plain JSON)
    """Return plain JSON with all its texts and keys harmless, each of them on one line."""
    if isinstance(told, str):
        return harmless(told).replace("\n", "\\n")
    if isinstance(told, dict):
        return {harmless_cells(key): harmless_cells(value) for key, value in told.items()}
    return [harmless_cells(part) for part in told] if isinstance(told, list | tuple) else told
