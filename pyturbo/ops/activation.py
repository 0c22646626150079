"""Element-wise activations of two arrays of equal shape."""

from __future__ import annotations

from numpy.typing import ArrayLike

from pyturbo.ops._checks import matching, values
from pyturbo.ops._run import Array, DeviceLike, empty, launch, resolve, result


def swiglu(gate: ArrayLike, up: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Return ``silu(gate) * up``."""
    gate = values("swiglu", "gate", gate)
    up = matching("swiglu", "up", up, gate)
    device = resolve(device)
    y = empty(device, gate.shape)
    launch(device, "swiglu", gate, up, y, gate.size)
    return result(y)


def swiglu_clamped(
    gate: ArrayLike, up: ArrayLike, alpha: float, limit: float, *, device: DeviceLike = None
) -> Array:
    """Return ``g * sigmoid(alpha * g) * (u + 1)`` with g = min(gate, limit) and u = clip(up, -limit, limit).

    This is the activation of gpt-oss.
    """
    gate = values("swiglu_clamped", "gate", gate)
    up = matching("swiglu_clamped", "up", up, gate)
    device = resolve(device)
    y = empty(device, gate.shape)
    launch(device, "swiglu_clamped", gate, up, y, gate.size, alpha, limit)
    return result(y)


def geglu(gate: ArrayLike, up: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Return ``gelu(gate) * up`` with the tanh approximation of GELU."""
    gate = values("geglu", "gate", gate)
    up = matching("geglu", "up", up, gate)
    device = resolve(device)
    y = empty(device, gate.shape)
    launch(device, "geglu", gate, up, y, gate.size)
    return result(y)


def sigmoid_gate(x: ArrayLike, gate: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Return ``x * sigmoid(gate)``."""
    x = values("sigmoid_gate", "x", x)
    gate = matching("sigmoid_gate", "gate", gate, x)
    device = resolve(device)
    y = empty(device, x.shape)
    launch(device, "sigmoid_gate", x, gate, y, x.size)
    return result(y)
