"""Choosing a token."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pyturbo.ops._checks import values
from pyturbo.ops._run import Array, DeviceLike, empty, launch, resolve, result


def argmax(x: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Return the index of the largest value of each row of x [rows, n] -> int32 [rows].

    Among equals it is the lowest index, in a row with NaN that of the first NaN.
    """
    x = values("argmax", "x", x, axes=2)
    rows, n = x.shape
    device = resolve(device)
    y = empty(device, (rows,), np.int32)
    launch(device, "argmax", x, y, rows, n)
    return result(y)
