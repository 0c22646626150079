"""Writing of bytes to an open file."""

from __future__ import annotations

import os
from pathlib import Path

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


def drop_cached(path: Path) -> None:
    """Have the next reads of a file come from the disk, if it has been synced and the system can."""
    if hasattr(os, "posix_fadvise"):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
