"""Writing of bytes to an open file."""

from __future__ import annotations

import os

import numpy as np

from pyturbo._arrays import Array


def as_bytes(array: Array) -> memoryview:
    """Return the bytes of an array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def write_at(file: int, data: memoryview, offset: int) -> None:
    """Write all bytes, from byte `offset` of the file on."""
    while data:
        count = os.pwrite(file, data, offset)
        data, offset = data[count:], offset + count
