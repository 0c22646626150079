"""Float64 references of pyturbo.ops.linear."""

from itertools import pairwise

import numpy as np


def matmul(x, w):
    return x.astype(np.float64) @ w.astype(np.float64).T


def matmul_magnitude(x, w):
    """Sum of the magnitudes that matmul adds: what its rounding errors are proportional to."""
    return matmul(np.abs(x.astype(np.float64)), np.abs(w.astype(np.float64)))


def grouped_matmul(x, offsets, w):
    """The product of each bucket with its matrix of w, and the magnitudes."""
    parts = [(x[a:b], w[e]) for e, (a, b) in enumerate(pairwise(offsets))]
    return tuple(np.concatenate([f(*part) for part in parts]) for f in (matmul, matmul_magnitude))
