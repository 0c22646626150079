"""The codec of compressed keys and values: the meaning of a row in memory or in a file.

A vector is rotated by ``H diag(signs) / sqrt(dim)``, and each coordinate becomes the index of the nearest
centroid of a standard normal variable, times a float16 scale that keeps the vector's length. The centroids
are float16 numbers, in ``shaders/turboquant/tables.h``. With 8 bits a coordinate is a signed number of steps
of 1/64 instead, times the scale, and the largest of a vector has 127. The last `RECENT` vectors are also kept
as they are, rotated, in float16. The version of a width changes with any of these.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

#: Bits of one coordinate, and the version of such rows in saved sessions. Those of another cannot be read.
VERSIONS = {2: 3, 3: 3, 4: 3, 6: 3, 8: 4}

WIDTHS = tuple(VERSIONS)

#: Vectors that are kept exact beside their codes.
RECENT = 16

#: Values of one head.
DIMS = (64, 80, 96, 128, 256, 512)

_MASK = (1 << 64) - 1


def row_words(dim: int, bits: int) -> int:
    """Return the number of 32-bit words of one vector's codes."""
    return -(-dim * bits // 32)


@cache
def signs(dim: int) -> NDArray[np.float32]:
    """Return the signs before the Hadamard matrix, 1 or -1: bits of xorshift64, seeded by SplitMix64."""
    state = 0x9E3779B97F4A7C15
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
    state = state ^ (state >> 31) | 1
    values = np.empty(dim, np.float32)
    for i in range(dim):
        state ^= state << 13 & _MASK
        state ^= state >> 7
        state ^= state << 17 & _MASK
        values[i] = 1.0 if state & 1 else -1.0
    values.flags.writeable = False
    return values
