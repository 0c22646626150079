"""Element-wise sums, and splits of heads."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._checks import integer, matching, stored_weight, values
from pyturbo.ops._run import Array, DeviceLike, empty, launch, operand, resolve, result


def add(a: ArrayLike, b: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Return ``a + b`` of two arrays of equal shape."""
    a = values("add", "a", a)
    b = matching("add", "b", b, a)
    device = resolve(device)
    y = empty(device, a.shape)
    launch(device, "add", a, b, y, a.size)
    return result(y)


def add_bias(x: ArrayLike, bias: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Return ``x + bias``: x [rows, dim], bias [dim] in float32, float16 or bfloat16."""
    x = values("add_bias", "x", x, axes=2)
    rows, dim = x.shape
    added, kind = stored_weight("add_bias", bias, (dim,), "bias")
    device = resolve(device)
    y = empty(device, x.shape)
    launch(device, f"add_bias_{kind}", x, added, y, rows, dim)
    return result(y)


def weighted_sum(rows: ArrayLike, weights: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Return ``sum_k weights[..., k] * rows[..., k, :]``: rows [..., k, dim] -> [..., dim]."""
    rows = values("weighted_sum", "rows", rows)
    if rows.ndim < 2:
        raise ArgumentError(f"weighted_sum: rows: expected shape [..., k, dim], got {list(rows.shape)}")
    *leading, count, dim = rows.shape
    weights = operand("weighted_sum", "weights", weights, np.float32, (*leading, count))
    device = resolve(device)
    y = empty(device, (*leading, dim))
    launch(device, "weighted_sum", rows, weights, y, weights.size // count, count, dim)
    return result(y)


def split_q_gate(x: ArrayLike, heads: int, *, device: DeviceLike = None) -> tuple[Array, Array]:
    """Split x [tokens, heads * 2 * dim] or [tokens, heads, 2 * dim] into query and gate [tokens, heads, dim].

    The first half of each head is the query.
    """
    x = values("split_q_gate", "x", x)
    heads = integer("split_q_gate", "heads", heads, least=1)
    width = x.shape[-1] * (x.shape[1] if x.ndim == 3 else 1)
    if x.ndim not in (2, 3) or width % (2 * heads) or (x.ndim == 3 and x.shape[1] != heads):
        raise ArgumentError(
            f"split_q_gate: x: expected [tokens, {heads} heads, 2 * dim], got shape {list(x.shape)}"
        )
    shape = (x.shape[0], heads, width // (2 * heads))
    device = resolve(device)
    q, gate = empty(device, shape), empty(device, shape)
    launch(device, "split_q_gate", x, q, gate, *shape)
    return result(q), result(gate)
