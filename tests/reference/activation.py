"""Float64 references of pyturbo.ops.activation."""

import numpy as np


def sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x.astype(np.float64)))


def silu(x):
    with np.errstate(invalid="ignore"):  # -inf * 0
        return x.astype(np.float64) * sigmoid(x)


def gelu(x):
    """tanh approximation; 1 + tanh(u) is written 2 * sigmoid(2u), which float64 can hold for negative u."""
    x = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return x * sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


def swiglu(gate, up):
    return silu(gate) * up


def swiglu_clamped(gate, up, alpha, limit):
    gate = np.minimum(gate.astype(np.float64), limit)
    up = np.clip(up.astype(np.float64), -limit, limit)
    with np.errstate(invalid="ignore"):
        return gate * sigmoid(alpha * gate) * (up + 1)


def geglu(gate, up):
    return gelu(gate) * up


def sigmoid_gate(x, gate):
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64) * sigmoid(gate)
