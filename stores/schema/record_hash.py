"""The hash of a record: of all that it holds, whatever the layout in which it is stored."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


def hash_plain(plain: Mapping[str, Any]) -> str:
    """Return the SHA-256 of plain JSON in its canonical form: keys sorted, tuples as lists, floats by `repr`.

    A record has the same hash before it is written and after it is read, since JSON keeps integers, floats and text
    exactly; 0.0 differs from −0.0, and 1 from 1.0.
    """
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def hash_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the SHA-256 of arrays: their names, dtypes, shapes and bytes, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
