"""The gated delta net: linear attention with one matrix of state per head."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._checks import flag, matching, stored_weight, values
from pyturbo.ops._run import (
    Array,
    DeviceLike,
    Target,
    changeable,
    empty,
    launch,
    operand,
    resolve,
    result,
    row_stride,
    traits_of,
    write_back,
)
from pyturbo.ops.norm import QK_EPS
from pyturbo.symbols import Linear

METHODS = ("auto", "recurrent", "chunkwise")

#: The key dims that the chunkwise kernels support, and the divisor of their value dims.
_CHUNKWISE_KEY_DIMS = (64, 128, 256)
_CHUNKWISE_VALUES = 8

#: The key dims of `delta_step`, and the divisor of its value dims.
STEP_KEY_DIMS = (64, 128, 256)
STEP_VALUES = 8


def decay_beta(
    a: ArrayLike, b: ArrayLike, a_log: ArrayLike, dt_bias: ArrayLike, *, device: DeviceLike = None
) -> tuple[Array, Array]:
    """Return the decay ``exp(-exp(a_log) * softplus(a + dt_bias))`` and rate ``sigmoid(b)`` of every head.

    a, b [tokens, heads]; a_log, dt_bias [heads] -> g, beta [tokens, heads].
    """
    op = "decay_beta"
    a = values(op, "a", a, axes=2)
    b = matching(op, "b", b, a)
    tokens, heads = a.shape
    scale, scale_kind = stored_weight(op, a_log, (heads,), "a_log")
    bias, bias_kind = stored_weight(op, dt_bias, (heads,), "dt_bias")
    device = resolve(device)
    g, beta = empty(device, a.shape), empty(device, a.shape)
    launch(device, f"{op}_{scale_kind}_{bias_kind}", a, b, scale, bias, g, beta, tokens, heads)
    return result(g), result(beta)


def conv1d(
    x: ArrayLike, history: ArrayLike, weight: ArrayLike, *, device: DeviceLike = None
) -> tuple[Array, Array]:
    """Convolve x [tokens, channels] causally, channel by channel, then apply silu -> y, history.

    history [3, channels] holds the rows in front of x, the oldest first. It is changed in place to the last
    rows of x. weight [channels, 4]: its last column multiplies the current row.
    """
    op = "conv1d"
    device = resolve(device)
    x = values(op, "x", x, axes=2)
    tokens, channels = x.shape
    given = changeable(device, op, "history", history)
    rows = operand(op, "history", given, np.float32, (3, channels))
    taps, kind = stored_weight(op, weight, (channels, 4))
    y = empty(device, x.shape)
    launch(device, f"{op}_{kind}", x, rows, taps, y, tokens, channels)
    return result(y), write_back(given, rows)


def delta_net(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    g: ArrayLike,
    beta: ArrayLike,
    state: ArrayLike,
    method: str = "auto",
    tiled: bool = False,
    *,
    device: DeviceLike = None,
) -> tuple[Array, Array]:
    """Apply the gated delta rule: per token ``S = g S; S = S + beta (v - S k) k^T; y = S q`` -> y, state.

    q, k [tokens, k_heads, k_dim], v [tokens, v_heads, v_dim], g, beta [tokens, v_heads]. state S [v_heads,
    v_dim, k_dim] is changed in place. Value head h has the query and key of head h // (v_heads / k_heads), or
    of head h % k_heads if the heads are `tiled`.

    "recurrent" goes token by token. "chunkwise" takes several tokens at once: 32 by matrix products, on
    NVIDIA GPUs four. Its results differ only by rounding, and it needs key dims of 64, 128 or 256 and value
    dims that are a multiple of 8.
    """
    op = "delta_net"
    if method not in METHODS:
        raise ArgumentError(f"{op}: method: expected one of {', '.join(METHODS)}, got {method!r}")
    q = values(op, "q", q, axes=3, strided=True)
    k = matching(op, "k", k, q, strided=True)
    tokens, k_heads, k_dim = q.shape
    if k_dim % 32 or k_dim > 256:
        raise ArgumentError(f"{op}: q: expected heads of 32, 64, ... or 256 values, got {k_dim}")
    v = values(op, "v", v, axes=3, strided=True)
    v = operand(op, "v", v, np.float32, (tokens, None, None), strided=True)
    v_heads, v_dim = v.shape[1:]
    if v_heads % k_heads:
        raise ArgumentError(f"{op}: v: expected a multiple of {k_heads} heads, got {v_heads}")
    g = operand(op, "g", g, np.float32, (tokens, v_heads))
    beta = operand(op, "beta", beta, np.float32, (tokens, v_heads))
    device = resolve(device)
    given = changeable(device, op, "state", state)
    memory = operand(op, "state", given, np.float32, (v_heads, v_dim, k_dim))
    if method == "chunkwise" and k_dim not in _CHUNKWISE_KEY_DIMS:
        raise ArgumentError(f"{op}: q: expected heads of 64, 128 or 256 values for chunks, got {k_dim}")
    if method == "chunkwise" and v_dim % _CHUNKWISE_VALUES:
        raise ArgumentError(f"{op}: v: expected heads of a multiple of 8 values for chunks, got {v_dim}")
    if method == "auto":
        method = _method(device, tokens, k_dim, v_dim)
    y = empty(device, v.shape)
    sizes = tokens, k_heads, v_heads, v_dim, row_stride(q), row_stride(v)
    form = op if method == "recurrent" else f"{op}_chunkwise"
    constants = {"tiled": flag(op, "tiled", tiled)}
    launch(device, f"{form}_k{k_dim}", q, k, v, g, beta, memory, y, *sizes, constants=constants)
    return result(y), write_back(given, memory)


def delta_step(
    mixed: ArrayLike,
    z: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    a_log: ArrayLike,
    dt_bias: ArrayLike,
    weight: ArrayLike,
    state: ArrayLike,
    eps: float,
    tiled: bool = False,
    *,
    device: DeviceLike = None,
) -> tuple[Array, Array]:
    """Apply `qk_norm`, `decay_beta`, `delta_net` and `gated_rms_norm` to one token -> y, state.

    mixed [1, channels] has all queries, keys and values, as `conv1d` leaves them. z [1, v_heads, v_dim] and
    weight [v_dim] are those of the norm, a, b [1, v_heads] and a_log, dt_bias [v_heads] those of the gates;
    all are float32. state [v_heads, v_dim, k_dim] is changed in place; v_dim is a multiple of 8.
    """
    op = "delta_step"
    device = resolve(device)
    z = operand(op, "z", values(op, "z", z), np.float32, (1, None, None))
    _, v_heads, v_dim = z.shape
    if v_dim % STEP_VALUES:
        raise ArgumentError(f"{op}: z: expected heads of a multiple of {STEP_VALUES} values, got {v_dim}")
    given = changeable(device, op, "state", state)
    memory = operand(op, "state", given, np.float32, (v_heads, v_dim, None))
    k_dim = memory.shape[2]
    if k_dim not in STEP_KEY_DIMS:
        raise ArgumentError(f"{op}: state: expected keys of 64, 128 or 256 values, got {k_dim}")
    mixed = operand(op, "mixed", mixed, np.float32, (1, None))
    k_heads, rest = divmod(mixed.shape[1] - v_heads * v_dim, 2 * k_dim)
    if rest or k_heads < 1 or v_heads % k_heads:
        raise ArgumentError(
            f"{op}: mixed: expected {v_heads * v_dim} values after queries and keys of {k_dim} for a divisor "
            f"of {v_heads} heads, got {mixed.shape[1]}"
        )
    gates = [operand(op, name, part, np.float32, (1, v_heads)) for name, part in (("a", a), ("b", b))]
    for name, part, size in (
        ("a_log", a_log, v_heads),
        ("dt_bias", dt_bias, v_heads),
        ("weight", weight, v_dim),
    ):
        gates.append(operand(op, name, part, np.float32, (size,)))
    y = empty(device, z.shape)
    sizes = k_heads, v_heads, v_dim, QK_EPS, eps
    constants = {"tiled": flag(op, "tiled", tiled)}
    launch(device, f"{op}_k{k_dim}", mixed, z, *gates, memory, y, *sizes, constants=constants)
    return result(y), write_back(given, memory)


def _method(device: Target, tokens: int | Linear, k_dim: int, v_dim: int) -> str:
    """Choose the method of "auto": for programs that read prompts, that for as many tokens as they take."""
    if k_dim not in _CHUNKWISE_KEY_DIMS or v_dim % _CHUNKWISE_VALUES:
        return "recurrent"
    traits = traits_of(device)
    most = traits.chunk if isinstance(tokens, Linear) else tokens
    return "chunkwise" if most >= traits.chunkwise_tokens else "recurrent"
