"""Normalisation of rows and of heads."""

from __future__ import annotations

from typing import overload

from numpy.typing import ArrayLike

from pyturbo.ops._checks import matching, stored_weight, values
from pyturbo.ops._run import Array, DeviceLike, empty, launch, resolve, result, row_stride

#: What `qk_norm` adds to the sum of squares by default.
QK_EPS = 1e-6


@overload
def rms_norm(
    x: ArrayLike, weight: ArrayLike, eps: float, residual: None = None, *, device: DeviceLike = None
) -> Array: ...
@overload
def rms_norm(
    x: ArrayLike, weight: ArrayLike, eps: float, residual: ArrayLike, *, device: DeviceLike = None
) -> tuple[Array, Array]: ...
def rms_norm(
    x: ArrayLike,
    weight: ArrayLike,
    eps: float,
    residual: ArrayLike | None = None,
    *,
    device: DeviceLike = None,
) -> Array | tuple[Array, Array]:
    """Return ``x * rsqrt(mean(x^2) + eps) * weight`` over the last axis of x [..., dim].

    With a residual of x's shape, ``x + residual`` is normalised, and the result is (normalised, sum).
    """
    x = values("rms_norm", "x", x)
    dim = x.shape[-1]
    scale, kind = stored_weight("rms_norm", weight, (dim,))
    added = None if residual is None else matching("rms_norm", "residual", residual, x)
    device = resolve(device)
    y = empty(device, x.shape)
    total = None if added is None else empty(device, x.shape)
    constants = {"has_residual": added is not None}
    launch(
        device, f"rms_norm_{kind}", x, scale, y, added, total, x.size // dim, dim, eps, constants=constants
    )
    return result(y) if total is None else (result(y), result(total))


def head_rms_norm(x: ArrayLike, weight: ArrayLike, eps: float, *, device: DeviceLike = None) -> Array:
    """Apply RMS norm to every head of x [tokens, heads, dim] with one weight [dim]."""
    x = values("head_rms_norm", "x", x, axes=3)
    tokens, heads, dim = x.shape
    scale, kind = stored_weight("head_rms_norm", weight, (dim,))
    device = resolve(device)
    y = empty(device, x.shape)
    launch(device, f"head_rms_norm_{kind}", x, scale, y, tokens, heads, dim, eps)
    return result(y)


def gated_rms_norm(
    x: ArrayLike, z: ArrayLike, weight: ArrayLike, eps: float, *, device: DeviceLike = None
) -> Array:
    """Apply RMS norm to every head of x [tokens, heads, dim] with one weight [dim]; multiply with silu(z)."""
    x = values("gated_rms_norm", "x", x, axes=3)
    z = matching("gated_rms_norm", "z", z, x)
    tokens, heads, dim = x.shape
    scale, kind = stored_weight("gated_rms_norm", weight, (dim,))
    device = resolve(device)
    y = empty(device, x.shape)
    launch(device, f"gated_rms_norm_{kind}", x, z, scale, y, tokens, heads, dim, eps)
    return result(y)


def qk_norm(
    q: ArrayLike, k: ArrayLike, eps: float = QK_EPS, *, device: DeviceLike = None
) -> tuple[Array, Array]:
    """Apply the l2 norm to the heads of q and k [tokens, heads, dim]; q is also multiplied by dim^-1/2.

    eps is added to the sum of squares.
    """
    q = values("qk_norm", "q", q, axes=3, strided=True)
    k = matching("qk_norm", "k", k, q, strided=True)
    tokens, heads, dim = q.shape
    device = resolve(device)
    query, key = empty(device, q.shape), empty(device, q.shape)
    launch(device, "qk_norm", q, k, query, key, tokens, heads, dim, row_stride(q), eps)
    return result(query), result(key)
