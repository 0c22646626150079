"""Rotary position embedding."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._checks import flag, integer, values
from pyturbo.ops._run import Array, DeviceLike, empty, launch, operand, resolve, result


def rope(
    x: ArrayLike,
    position: int,
    inv_freq: ArrayLike,
    rotary_dim: int,
    scale: float = 1.0,
    interleaved: bool = False,
    *,
    device: DeviceLike = None,
) -> Array:
    """Rotate the first rotary_dim values of each head of x [tokens, heads, dim]; token t is at position + t.

    The angle of pair i is ``float32(position + t) * inv_freq[i]`` (inv_freq [rotary_dim / 2]); sine and
    cosine are multiplied by scale. Pairs are (i, i + rotary_dim / 2), or (2i, 2i + 1) when interleaved.
    """
    x = values("rope", "x", x, axes=3)
    tokens, heads, dim = x.shape
    rotary_dim = integer("rope", "rotary_dim", rotary_dim)
    if rotary_dim < 2 or rotary_dim % 2 or rotary_dim > dim:
        raise ArgumentError(f"rope: rotary_dim: expected an even number from 2 to {dim}, got {rotary_dim}")
    pairs = rotary_dim // 2
    inv_freq = operand("rope", "inv_freq", inv_freq, np.float32, (pairs,))
    constants = {"interleaved": flag("rope", "interleaved", interleaved)}
    device = resolve(device)
    y = empty(device, x.shape)
    launch(device, "rope", x, inv_freq, y, tokens, heads, dim, pairs, position, scale, constants=constants)
    return result(y)
