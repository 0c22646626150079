"""Float64 reference of pyturbo.ops.rope, on the angle as the models define it: one float32 product."""

import numpy as np


def rope(x, position, inv_freq, rotary_dim, scale=1.0, interleaved=False):
    out = x.astype(np.float64)
    positions = np.arange(position, position + len(x)).astype(np.float32)
    angle = positions[:, None] * inv_freq  # float32 [tokens, pairs]
    cos = scale * np.cos(angle.astype(np.float64))[:, None]
    sin = scale * np.sin(angle.astype(np.float64))[:, None]
    first, second = pair_slices(rotary_dim, interleaved)
    a, b = out[..., first].copy(), out[..., second].copy()
    out[..., first] = a * cos - b * sin
    out[..., second] = b * cos + a * sin
    return out


def pair_slices(rotary_dim, interleaved):
    """Where the first and the second values of the pairs lie in a head."""
    if interleaved:
        return slice(0, rotary_dim, 2), slice(1, rotary_dim, 2)
    return slice(0, rotary_dim // 2), slice(rotary_dim // 2, rotary_dim)
