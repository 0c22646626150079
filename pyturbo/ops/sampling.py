"""Choosing a token."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pyturbo._buffer import Buffer
from pyturbo.errors import ArgumentError
from pyturbo.ops._checks import integer, values
from pyturbo.ops._run import Array, DeviceLike, Target, empty, launch, resolve, result, traits_of
from pyturbo.recording import Extent

#: Values that `top_logits` returns at most.
MAX_TOP_LOGITS = 64

#: The longest row that `top_logits` takes.
MAX_LOGITS = 1 << 20

_PART = 2048  # values of a row that one threadgroup looks at, if there are enough threadgroups
_MOST_PARTS = 256

#: Rows that do not fill a GPU with a threadgroup each.
_FEW_ROWS = 32


def argmax(x: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Return the index of the largest value of each row of x [rows, n] -> int32 [rows].

    Among equals it is the lowest index, in a row with NaN that of the first NaN.
    """
    x = values("argmax", "x", x, axes=2)
    rows, n = x.shape
    device = resolve(device)
    y = empty(device, (rows,), np.int32)
    if traits_of(device).top_logits and _shares_rows(rows, n):
        _launch_top(device, x, 1, empty(device, (rows,)), y, empty(device, (rows,)))
    else:
        launch(device, "argmax", x, y, rows, n)
    return result(y)


def top_logits(x: ArrayLike, k: int, *, device: DeviceLike = None) -> tuple[Array, Array, Array]:
    """Return the k largest values of each row of x [rows, n], and the sum of the row's exponentials.

    Returns values [rows, k], the larger first and equal ones by index; their indices, int32 [rows, k]; and
    totals [rows], the sum of ``exp(x - values[:, :1])`` over all of the row. NaN ranks before all other
    values; the total of a row with NaN or +inf is NaN, of one with -inf only 0.
    """
    x = values("top_logits", "x", x, axes=2)
    rows, n = x.shape
    if n > MAX_LOGITS:
        raise ArgumentError(f"top_logits: x: expected rows of at most {MAX_LOGITS} values, got {n}")
    k = integer("top_logits", "k", k, least=1, most=min(n, MAX_TOP_LOGITS))
    device = resolve(device)
    best, tokens = empty(device, (rows, k)), empty(device, (rows, k), np.int32)
    totals = empty(device, (rows,))
    _launch_top(device, x, k, best, tokens, totals)
    return result(best), result(tokens), result(totals)


def _shares_rows(rows: Extent, n: Extent) -> bool:
    """Whether many threadgroups look for the largest value of a row, instead of one."""
    return isinstance(rows, int) and isinstance(n, int) and rows <= _FEW_ROWS and _PART < n <= MAX_LOGITS


def _launch_top(device: Target, x: Array, k: int, best: Buffer, tokens: Buffer, totals: Buffer) -> None:
    """Launch both halves of `top_logits`, for results of k values a row."""
    rows, n = x.shape
    parts = min(-(-n // _PART), _MOST_PARTS)
    found = (
        empty(device, (rows, parts, k)),
        empty(device, (rows, parts, k), np.int32),
        empty(device, (rows, parts)),
        empty(device, (rows, parts)),
    )
    launch(device, "top_logits_partials", x, *found, rows, parts, n, k)
    launch(device, "top_logits_merge", *found, best, tokens, totals, rows, parts, k)
