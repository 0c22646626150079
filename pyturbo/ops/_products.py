"""What products with quantised weights share, whatever the format."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._ids import integers, sample
from pyturbo.ops._run import Array, operand
from pyturbo.recording import Tensor
from pyturbo.symbols import Linear

#: From this many tokens on the tiled product is used. It reads the weights once per 32 tokens where the
#: matrix-vector kernel reads them for each, but multiplies a whole tile for however few tokens it holds.
TILED_TOKENS = 8


def many(tokens: int) -> bool:
    """Whether the tiled kernel is the better one. A count that a program leaves open is taken as many."""
    return isinstance(tokens, Linear) or tokens >= TILED_TOKENS


def activations(op: str, x: ArrayLike, in_dim: int) -> Array:
    """x [tokens, in], of at least one token."""
    rows = operand(op, "x", x, np.float32, (None, in_dim))
    if rows.shape[0] == 0:
        raise ArgumentError(f"{op}: x: expected at least one row, got shape {list(rows.shape)}")
    return rows


def bucket_bounds(op: str, offsets: ArrayLike, experts: int, rows: int) -> Array:
    """offsets [experts + 1] that increase from 0 to `rows`; those of a program are for kernels to check."""
    bounds = integers(op, "offsets", offsets, (experts + 1,))
    known = not isinstance(bounds, Tensor)
    if known and (bounds[0] != 0 or bounds[-1] != rows or np.diff(bounds).min() < 0):
        raise ArgumentError(f"{op}: offsets: expected an increase from 0 to {rows}, got {sample(bounds)}")
    return bounds
