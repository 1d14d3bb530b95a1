"""Reading of a job file: whatever bytes it has, its settings or one message that says what is wrong with it."""

import codecs
import stat
import tomllib
from pathlib import Path
from typing import Any

from ridgestream.jobs.config.values import JobFileError

MOST_BYTES = 2**20
"""The size from which a file is no job file."""

_OTHER_ENCODINGS = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
"""What the first bytes say of files that editors on Windows write; UTF-32 begins like UTF-16."""


def read_toml(path: Path) -> dict[str, Any]:
    """Return the settings of a TOML file, in UTF-8 with or without a byte order mark.

    Raises JobFileError naming the file for anything else.
    """
    try:
        return tomllib.loads(_decode(_read(path)))
    except RecursionError as error:
        raise JobFileError(f"the job {path} cannot be read: its values are nested too deeply") from error
    except ValueError as error:  # of TOML, of UTF-8, or a number that is too long
        raise JobFileError(f"the job {path} cannot be read: {error}") from error
    except OSError as error:
        raise JobFileError(f"the job {path} cannot be read: {error.strerror}") from error


def _read(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe or a device may have no end
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is longer than {MOST_BYTES:,} bytes, which no job file is")
    return content


def _decode(content: bytes) -> str:
    encoding = next((name for mark, name in _OTHER_ENCODINGS.items() if content.startswith(mark)), None)
    if encoding is None and b"\0" in content:
        raise ValueError("it is not text (there are null bytes)")
    if encoding is not None:
        raise ValueError(f"it is text in {encoding}; save it as UTF-8")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{error} (line {line}); save it as UTF-8") from error
