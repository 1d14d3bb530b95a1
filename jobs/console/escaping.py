"""Makes text from files, stores and servers safe for a terminal: control characters are shown, not obeyed."""

import re
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters, ESC among them, and line separators; not tabs and line feeds."""


def harmless(text: str) -> str:
    r"""Return the text with control characters, but for tabs and line feeds, as escapes such as `\x1b`."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def harmless_cells(plain: Any) -> Any:  # noqa: ANN401 (plain JSON)
    """Return plain JSON with all its texts and keys harmless, each of them on one line."""
    if isinstance(plain, str):
        return harmless(plain).replace("\n", "\\n")
    if isinstance(plain, dict):
        return {harmless_cells(key): harmless_cells(value) for key, value in plain.items()}
    return [harmless_cells(part) for part in plain] if isinstance(plain, list | tuple) else plain
