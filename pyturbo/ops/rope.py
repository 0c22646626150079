"""Rotary position embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pyturbo._dtypes import SUFFIXES
from pyturbo.errors import ArgumentError
from pyturbo.ops._checks import flag, integer, stored_weight, values
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
    write_back,
)

#: Weights of query and key norms, float32 [dim] each, and eps.
Norms = tuple[ArrayLike, ArrayLike, float]


def rope(
    x: ArrayLike,
    position: int,
    inv_freq: ArrayLike,
    rotary_dim: int,
    scale: float = 1.0,
    interleaved: bool = False,
    *,
    device: DeviceLike = None,
) -> Array:
    """Rotate the first rotary_dim values of each head of x [tokens, heads, dim]; token t is at position + t.

    The angle of pair i is ``float32(position + t) * inv_freq[i]`` (inv_freq [rotary_dim / 2]); sine and
    cosine are multiplied by scale. Pairs are (i, i + rotary_dim / 2), or (2i, 2i + 1) when interleaved.
    """
    x = values("rope", "x", x, axes=3)
    tokens, heads, dim = x.shape
    rotary_dim = integer("rope", "rotary_dim", rotary_dim)
    if rotary_dim < 2 or rotary_dim % 2 or rotary_dim > dim:
        raise ArgumentError(f"rope: rotary_dim: expected an even number from 2 to {dim}, got {rotary_dim}")
    pairs = rotary_dim // 2
    inv_freq = operand("rope", "inv_freq", inv_freq, np.float32, (pairs,))
    constants = {"interleaved": flag("rope", "interleaved", interleaved)}
    device = resolve(device)
    y = empty(device, x.shape)
    launch(device, "rope", x, inv_freq, y, tokens, heads, dim, pairs, position, scale, constants=constants)
    return result(y)


def rope_qk(
    q: ArrayLike,
    k: ArrayLike,
    position: int,
    inv_freq: ArrayLike,
    scale: float = 1.0,
    interleaved: bool = False,
    norms: Norms | None = None,
    *,
    device: DeviceLike = None,
) -> tuple[Array, Array]:
    """Apply `rope` to q [tokens, heads, dim or more] and k [tokens, kv_heads, dim] in one launch.

    Queries are the first dim values of each head of q. `norms` are applied first, as by `head_rms_norm`. The
    rotary part has twice as many values as inv_freq.
    """
    op = "rope_qk"
    device = resolve(device)
    heads = _Heads(op, q, k, inv_freq, norms)
    out = empty(device, heads.k.shape)
    query = heads.launch(device, (None, out, None), position, scale, interleaved)
    return query, result(out)


def rope_append(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    k_cache: ArrayLike,
    v_cache: ArrayLike,
    position: int,
    inv_freq: ArrayLike,
    scale: float = 1.0,
    interleaved: bool = False,
    norms: Norms | None = None,
    *,
    device: DeviceLike = None,
) -> tuple[Array, Array, Array]:
    """Apply `rope_qk`, then `kv_append` to both caches, in one launch -> queries, k_cache, v_cache.

    v [tokens, kv_heads, dim]. The caches [capacity, kv_heads, dim] have one type, and are changed in place.
    """
    op = "rope_append"
    device = resolve(device)
    heads = _Heads(op, q, k, inv_freq, norms)
    v = operand(op, "v", v, np.float32, heads.k.shape)
    given = [
        changeable(device, op, name, cache) for name, cache in (("k_cache", k_cache), ("v_cache", v_cache))
    ]
    keys = stored_weight(op, given[0], (None, *heads.k.shape[1:]), "k_cache")[0]
    kept = operand(op, "v_cache", given[1], keys.dtype, keys.shape)
    query = heads.launch(device, (v, keys, kept), position, scale, interleaved)
    return query, write_back(given[0], keys), write_back(given[1], kept)


class _Heads:
    """Query and key heads, and what is applied to them."""

    def __init__(self, op: str, q: ArrayLike, k: ArrayLike, inv_freq: ArrayLike, norms: Norms | None) -> None:
        self.op = op
        self.k = values(op, "k", k, axes=3)
        tokens, _, dim = self.k.shape
        self.q = operand(op, "q", values(op, "q", q), np.float32, (tokens, None, None))
        if self.q.shape[2] < dim:
            raise ArgumentError(f"{op}: q: expected heads of at least {dim} values, got {self.q.shape[2]}")
        self.inv_freq = values(op, "inv_freq", inv_freq, axes=1)
        if 2 * len(self.inv_freq) > dim:
            raise ArgumentError(f"{op}: inv_freq: expected at most {dim // 2}, got {len(self.inv_freq)}")
        self.weights: tuple[Array | None, Array | None] = None, None
        self.eps = 0.0
        if norms is not None:
            if not isinstance(norms, (tuple, list)) or len(norms) != 3:
                raise ArgumentError(f"{op}: norms: expected two weights and eps, got {type(norms).__name__}")
            first, second, self.eps = norms
            self.weights = (
                operand(op, "norms: weight of q", first, np.float32, (dim,)),
                operand(op, "norms: weight of k", second, np.float32, (dim,)),
            )

    def launch(
        self, device: Target, rows: tuple[Any, Any, Any], position: int, scale: float, interleaved: bool
    ) -> Array:
        """Run the kernel with v, k_out and v_out, and return the queries."""
        v, k_out, v_out = rows
        tokens, heads, stride = self.q.shape
        _, kv_heads, dim = self.k.shape
        constants = {
            "interleaved": flag(self.op, "interleaved", interleaved),
            "has_norms": self.weights[0] is not None,
            "appends": v is not None,
        }
        y = empty(device, (tokens, heads, dim))
        arrays = self.q, self.k, v, *self.weights, self.inv_freq, y, k_out, v_out
        sizes = tokens, heads, kv_heads, dim, stride, len(self.inv_freq), k_out.shape[0], position
        name = f"rope_append_{SUFFIXES[k_out.dtype]}"
        launch(device, name, *arrays, *sizes, scale, self.eps, constants=constants)
        return result(y)
