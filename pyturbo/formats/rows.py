"""Copies of some rows of the arrays of a weight."""

from __future__ import annotations

import numpy as np

from pyturbo._arrays import Array, aligned_empty
from pyturbo._blank import Blank


def take_rows(array: Array, index: Array) -> Array:
    """Copy the rows `index` of [..., rows, columns]."""
    return _take(array, index, -2)


def take_bias(bias: Array | None, index: Array) -> Array | None:
    """Copy the entries `index` of [..., rows]."""
    return None if bias is None else _take(bias, index, -1)


def _take(array: Array, index: Array, axis: int) -> Array:
    """Copy some entries of an axis into memory that every device can use in place."""
    shape = list(array.shape)
    shape[axis] = len(index)
    if isinstance(array, Blank):
        return array.copied(tuple(shape))
    taken = aligned_empty(tuple(shape), array.dtype)
    return np.take(array, index, axis, out=taken, mode="wrap")  # "raise" would make a second copy
