"""Memory for weights that cannot stay in their file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyturbo._buffer import host_empty
from pyturbo._fork import open_in_children

Array = NDArray[Any]

LINE = 64  # bytes of a cache line: no two arrays of an arena share one
BLOCK = 32 << 20  # bytes that an arena allocates at once


class Arena:
    """Memory for arrays that live about equally long: many share one allocation, in large pages if possible.

    An allocation is freed when no array in it is in use.
    """

    def __init__(self) -> None:
        self._lock = open_in_children()
        self._free: Array = np.empty(0, np.uint8)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an array of zeros in memory that every device can use in place."""
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        taken = -(-nbytes // LINE) * LINE
        if taken > BLOCK // 4:
            return host_empty(shape, dtype).numpy()
        with self._lock:
            if taken > len(self._free):
                self._free = host_empty((BLOCK,), np.uint8).numpy()
            memory, self._free = self._free[:nbytes], self._free[taken:]
        array: Array = memory.view(dtype).reshape(shape)
        return array


_arena = Arena()


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an array of zeros for a tensor, in memory that every device can use in place."""
    return _arena.empty(shape, dtype)


def aligned(array: Array, dtype: Any = None) -> Array:
    """Copy an array into memory that every device can use in place."""
    copy = aligned_empty(array.shape, dtype or array.dtype)
    copy[...] = array
    return copy
