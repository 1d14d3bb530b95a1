"""Fingerprints of values: arrays, numbers, texts and what is made of them, the same in every process and release."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def fingerprint(*values: object) -> str:
    """Return a SHA-256 of values: frozen dataclasses, arrays, mappings, sequences and what `repr` tells apart."""
    digest = hashlib.sha256()
    _add(digest, values)
    return digest.hexdigest()


def _add(digest: Any, value: object) -> None:  # noqa: ANN401 (hashlib names no type)
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape};".encode())
        digest.update(np.ascontiguousarray(value).data)
    elif is_dataclass(value):
        _add(digest, [type(value).__name__, *((item.name, getattr(value, item.name)) for item in fields(value))])
    elif isinstance(value, Mapping):
        _add(digest, sorted(value.items()))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        digest.update(f"{len(value)}[".encode())
        for part in value:
            _add(digest, part)
    else:
        digest.update(f"{value!r};".encode())
