"""References of pyturbo.ops.elementwise: float64 where anything is computed."""

import numpy as np


def add_bias(x, bias):
    return x.astype(np.float64) + bias.astype(np.float64)


def add(a, b):
    return a + b  # one float32 addition is exactly rounded on every device


def weighted_sum(rows, weights):
    return np.einsum("...kd,...k->...d", rows.astype(np.float64), weights.astype(np.float64))


def weighted_sum_magnitude(rows, weights):
    """Sum of the magnitudes that weighted_sum adds: what its rounding errors are proportional to."""
    return weighted_sum(np.abs(rows), np.abs(weights))


def split_q_gate(x, heads):
    x = x.reshape(len(x), heads, -1)
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]
