"""Float64 references of pyturbo.ops.linear."""

import numpy as np


def matmul(x, w):
    return x.astype(np.float64) @ w.astype(np.float64).T


def matmul_magnitude(x, w):
    """Sum of the magnitudes that matmul adds: what its rounding errors are proportional to."""
    return matmul(np.abs(x.astype(np.float64)), np.abs(w.astype(np.float64)))
