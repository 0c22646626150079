"""How devices read the activations of a product with quantised weights."""

from __future__ import annotations

import numpy as np

TOP = 127  # the largest integer of a group under precision="fast"
LEAST_MAXIMUM = 2.0**-100  # a group below it counts as zeros
LARGEST = 2.0**24  # the largest value that tiles of bfloats take
MANY = 64  # tokens of a product from which on it has tiles of bfloats, where the processor has them


def as_bfloats(x):
    """x in float64, rounded to the nearest bfloat, ties away from zero; values above LARGEST stay."""
    bits = (x.view(np.uint32) + np.uint32(0x8000)) & np.uint32(0xFFFF0000)
    return np.where(np.abs(x) <= LARGEST, bits.view(np.float32), x).astype(np.float64)


def as_read(device, x, group_size, tokens=1):
    """x [..., in] in float64, as `device` reads it: itself, or rounded in groups to 8 bits and a scale.

    `tokens` is that of the product: many are rounded to bfloats where the processor multiplies tiles of them.
    The rules are those of activations.h and amx_tiles.cpp in native/cpu/kernels, in float32 operations that
    NumPy rounds alike; so what a kernel makes of the result has the tolerances of float32 arithmetic. The
    default precision rounds to 24 bits in places, which those tolerances include.
    """
    if device.properties.get("precision") != "fast":
        return x.astype(np.float64)
    if tokens >= MANY and device.properties["kernels"] == "amx":
        return as_bfloats(x)
    groups = x.reshape(*x.shape[:-1], -1, group_size)
    with np.errstate(all="ignore"):
        most = np.abs(groups).max(axis=-1, keepdims=True)
        rounded = np.rint(groups * (np.float32(TOP) / most)).astype(np.float64) * (most / np.float32(TOP))
    rounded = np.where(most < LEAST_MAXIMUM, 0.0, rounded)
    return np.where(np.isfinite(most), rounded, np.nan).reshape(x.shape)
