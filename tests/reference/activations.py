"""How devices read the activations of a product with quantised weights."""

from __future__ import annotations

import numpy as np

TOP = 127  # the largest integer of a group under precision="fast"
LEAST_MAXIMUM = 2.0**-100  # a group below it counts as zeros


def as_read(device, x, group_size):
    """x [..., in] in float64, as `device` reads it: itself, or rounded in groups to 8 bits and a scale.

    The rule is that of native/cpu/kernels/activations.h, in float32 operations that NumPy rounds alike; so
    what a kernel makes of the result has the tolerances of float32 arithmetic. The default precision rounds
    to 24 bits in places, which those tolerances include.
    """
    if device.properties.get("precision") != "fast":
        return x.astype(np.float64)
    groups = x.reshape(*x.shape[:-1], -1, group_size)
    with np.errstate(all="ignore"):
        most = np.abs(groups).max(axis=-1, keepdims=True)
        rounded = np.rint(groups * (np.float32(TOP) / most)).astype(np.float64) * (most / np.float32(TOP))
    rounded = np.where(most < LEAST_MAXIMUM, 0.0, rounded)
    return np.where(np.isfinite(most), rounded, np.nan).reshape(x.shape)
