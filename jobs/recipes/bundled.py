"""Bundled recipes: `ridgestream run forest` reads the job file and the rows in this folder, wherever it is installed.

A recipe is a job file like any other and can be run by its path. When it is run by its name, relative paths refer to
the working directory, and the store and the predictions are written there; its own rows are read from beside it.
"""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
_READ: tuple[tuple[str, ...], ...] = (("source", "path"), ("evaluate", "path"), ("predict", "path"))
_WRITTEN: tuple[tuple[str, ...], ...] = (("store",), ("predict", "output"))


def recipe_names() -> tuple[str, ...]:
    """Return the names of the bundled recipes, sorted."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.toml")))


def read_recipe(name: str) -> dict[str, Any]:
    """Return the settings of a bundled recipe for a run in the working directory.

    Paths of rows are absolute; of the paths that are written to, only the last part is left.
    """
    file = (_FOLDER / f"{name}.toml").resolve()
    settings = tomllib.loads(file.read_text(encoding="utf-8"))
    for keys in _READ:
        _replace(settings, keys, lambda path: str((file.parent / path).resolve()))
    for keys in _WRITTEN:
        _replace(settings, keys, lambda path: Path(path).name)
    return settings


def _replace(settings: dict[str, Any], keys: tuple[str, ...], change: Callable[[str], str]) -> None:
    """Change the value of a nested key, if there is one."""
    *sections, key = keys
    for section in sections:
        settings = settings.get(section, {})
    if key in settings:
        settings[key] = change(settings[key])
