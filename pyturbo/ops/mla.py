"""Latent attention (MLA): one compressed row for each position, which all heads share.

The cache keeps latents [capacity, rank] and rotary keys [capacity, rope] in float32, float16 or bfloat16; key
j lies in row j. The projections of keys and values are absorbed: a query is projected into the space of the
latents (`mla_project_q`), attends to the latents themselves (`mla_attention`), and the mix of latents is
projected to values (`mla_project_out`).

The weights of both projections are dense, or quantised as (packed, scales, biases, bits, group_size),
(packed, scales, mode, None) or (blocks, kind). They have one of two layouts: kv_b [heads * (nope + v), rank],
in which each head has `nope` rows for keys and then `v` rows for values; or one matrix per head, embed_q
[heads, rank, nope] and unembed_out [heads, v, rank].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pyturbo._dtypes import SUFFIXES
from pyturbo.errors import ArgumentError
from pyturbo.ops import fp, gguf
from pyturbo.ops._checks import flag, integer, pair, stored_weight, values
from pyturbo.ops._products import row_teams
from pyturbo.ops._run import (
    Array,
    DeviceLike,
    Target,
    aligned,
    as_array,
    changeable,
    empty,
    launch,
    operand,
    resolve,
    result,
    traits_of,
    write_back,
)
from pyturbo.ops.affine import Weight, matrix
from pyturbo.ops.attention import SPLIT_TOKENS, attention_merge
from pyturbo.ops.linear import span_of
from pyturbo.symbols import Linear

#: The largest sizes of latents and rotary keys that the attention kernels support.
MAX_RANK, MAX_ROPE = 512, 64

_SHARED_HEADS = 16  # of a threadgroup of the kernels for few tokens, which reads a row once for all of them


class _Matrix(NamedTuple):
    """A weight of a projection; `shape` is [rows, columns] or [heads, rows, columns]."""

    arrays: tuple[Array, ...]
    shape: tuple[int, ...]
    kernel: str  # the kernel name in front of the direction
    suffix: str  # the kernel name after it
    span: int  # values that a lane of the kernel multiplies at once
    sizes: tuple[int, ...]  # the last arguments of the kernels of this form


def mla_split(
    q: ArrayLike, kv: ArrayLike, heads: int, rope: int, *, device: DeviceLike = None
) -> tuple[Array, Array, Array, Array]:
    """Split q [tokens, heads * (nope + rope)] and kv [tokens, rank + rope].

    Return q_nope [tokens, heads, nope], q_rope [tokens, heads, rope], latent [tokens, rank] and rope_key
    [tokens, rope].
    """
    op = "mla_split"
    q = values(op, "q", q, axes=2)
    tokens, width = q.shape
    heads, rope = integer(op, "heads", heads, least=1), integer(op, "rope", rope, least=1)
    if width % heads or rope >= width // heads:
        raise ArgumentError(f"{op}: q: expected {heads} heads of more than {rope} values, got {width} values")
    kv = operand(op, "kv", kv, np.float32, (tokens, None))
    rank, nope = kv.shape[1] - rope, width // heads - rope
    if rank < 1:
        raise ArgumentError(f"{op}: kv: expected rows of more than {rope} values, got {kv.shape[1]}")
    device = resolve(device)
    parts = [
        empty(device, shape)
        for shape in ((tokens, heads, nope), (tokens, heads, rope), (tokens, rank), (tokens, rope))
    ]
    launch(device, op, q, kv, *parts, tokens, heads, nope, rope, rank)
    q_nope, q_rope, latent, rope_key = (result(part) for part in parts)
    return q_nope, q_rope, latent, rope_key


def mla_append(
    cache: tuple[ArrayLike, ArrayLike],
    latent: ArrayLike,
    rope_key: ArrayLike,
    position: int,
    *,
    device: DeviceLike = None,
) -> tuple[Array, Array]:
    """Write latent [tokens, rank] and rope_key [tokens, rope] to the cache, from row `position` on.

    The cache, latents [capacity, rank] and rope_keys [capacity, rope], is changed in place and returned. Rows
    are float32 and rounded to the type of the cache.
    """
    op = "mla_append"
    device = resolve(device)
    parts = pair(op, "cache", cache, "latents and rope keys")
    given = [changeable(device, op, name, part) for name, part in zip(("latents", "rope_keys"), parts)]
    latents, rope_keys = _cache(op, *given)
    (capacity, rank), rope = latents.shape, rope_keys.shape[1]
    latent = operand(op, "latent", values(op, "latent", latent), np.float32, (None, rank))
    tokens = latent.shape[0]
    rope_key = operand(op, "rope_key", rope_key, np.float32, (tokens, rope))
    name = f"{op}_{SUFFIXES[latents.dtype]}"
    launch(device, name, latent, rope_key, latents, rope_keys, tokens, capacity, rank, rope, position)
    return write_back(given[0], latents), write_back(given[1], rope_keys)


def mla_project_q(
    q_nope: ArrayLike, weight: ArrayLike | Weight | fp.Weight | gguf.Weight, *, device: DeviceLike = None
) -> Array:
    """Project q_nope [tokens, heads, nope] into the space of latents, by kv_b or embed_q -> [..., rank]."""
    op = "mla_project_q"
    x = values(op, "q_nope", q_nope, axes=3)
    heads, nope = x.shape[1:]
    w = _weight(op, weight)
    if len(w.shape) == 3:
        rank = w.shape[1]
        _check(op, w, (heads, rank, nope))
        return _project(x, w, rank, stride=rank, first=0, transposed=False, device=device)
    stride = w.shape[0] // heads
    if w.shape[0] % heads or stride <= nope:
        raise ArgumentError(
            f"{op}: weight: expected {heads} times more than {nope} rows, got {w.shape[0]} rows"
        )
    return _project(x, w, w.shape[1], stride=stride, first=0, transposed=True, device=device)


def mla_project_out(
    mix: ArrayLike,
    weight: ArrayLike | Weight | fp.Weight | gguf.Weight,
    v_dim: int,
    *,
    device: DeviceLike = None,
) -> Array:
    """Project a mix of latents [tokens, heads, rank] to values, by kv_b or unembed_out -> [..., v_dim]."""
    op = "mla_project_out"
    x = values(op, "mix", mix, axes=3)
    heads, rank = x.shape[1:]
    w, v_dim = _weight(op, weight), integer(op, "v_dim", v_dim, least=1)
    if len(w.shape) == 3:
        _check(op, w, (heads, v_dim, rank))
        return _project(x, w, v_dim, stride=v_dim, first=0, transposed=False, device=device)
    _check(op, w, (w.shape[0], rank))
    stride = w.shape[0] // heads
    if w.shape[0] % heads or v_dim >= stride:
        raise ArgumentError(
            f"{op}: weight: expected {heads} times more than {v_dim} rows, got {w.shape[0]} rows"
        )
    return _project(x, w, v_dim, stride=stride, first=stride - v_dim, transposed=False, device=device)


def mla_attention(
    q: ArrayLike,
    q_rope: ArrayLike,
    latents: ArrayLike,
    rope_keys: ArrayLike,
    weights: Any,
    scale: float,
    causal: bool = True,
    *,
    context: int | None = None,
    device: DeviceLike = None,
) -> Array:
    """Attend to latents with q [tokens, heads, nope], q_rope [tokens, heads, rope] -> [tokens, heads, v].

    weights are kv_b, or embed_q and unembed_out as a pair. Without weights (None) q [..., rank] is in the
    space of the latents already, and so is the result, ``softmax(scale * (q latents^T + q_rope rope_keys^T))
    latents``. The last query has the position of the last key. A query sees keys up to its own, or every key
    if not causal; the result of one that sees no key is 0. context is the number of keys, by default the
    number of rows.
    """
    if weights is None:
        return _folded(q, q_rope, latents, rope_keys, scale, causal, context, device)
    op = "mla_attention"
    two = isinstance(weights, (tuple, list)) and len(weights) == 2 and not isinstance(weights[1], str)
    keys, outs = weights if two else (weights, weights)
    queries = values(op, "q", q, axes=3)
    _, rows = (_weight(op, each, "weights").shape for each in (keys, outs))
    v_dim = rows[1] if len(rows) == 3 else rows[0] // queries.shape[1] - queries.shape[2]
    folded = mla_project_q(queries, keys, device=device)
    mix = _folded(folded, q_rope, latents, rope_keys, scale, causal, context, device)
    return mla_project_out(mix, outs, v_dim, device=device)


def _folded(
    q: ArrayLike,
    q_rope: ArrayLike,
    latents: ArrayLike,
    rope_keys: ArrayLike,
    scale: float,
    causal: bool,
    context: int | None,
    device: DeviceLike,
) -> Array:
    """Compute `mla_attention` in the space of the latents."""
    op = "mla_attention"
    causal = flag(op, "causal", causal)
    latents, rope_keys = _cache(op, latents, rope_keys)
    (capacity, rank), rope = latents.shape, rope_keys.shape[1]
    for name, width, most in (("latents", rank, MAX_RANK), ("rope_keys", rope, MAX_ROPE)):
        if width % 8 or width > most:
            raise ArgumentError(
                f"{op}: {name}: expected rows of a multiple of 8 up to {most} values, got {width}"
            )
    q = operand(op, "q", values(op, "q", q), np.float32, (None, None, rank))
    tokens, heads = q.shape[:2]
    q_rope = operand(op, "q_rope", q_rope, np.float32, (tokens, heads, rope))
    if not causal:
        # All heads share the latents, so the heads of many queries are heads of one query at the last key.
        one = q.reshape(1, tokens * heads, rank), q_rope.reshape(1, tokens * heads, rope)
        return _folded(*one, latents, rope_keys, scale, True, context, device).reshape(q.shape)
    keys = capacity if context is None else context
    device = resolve(device)
    kind = SUFFIXES[latents.dtype]
    arrays, sizes = (q, q_rope, latents, rope_keys), (tokens, keys, capacity, heads, rank, rope)
    if not isinstance(tokens, Linear) and tokens <= SPLIT_TOKENS:
        blocks = latent_blocks(device, heads)
        rows = (tokens, heads, blocks)
        parts = empty(device, (*rows, rank)), empty(device, rows), empty(device, rows)
        launch(device, f"mla_partials_{kind}", *arrays, *parts, *sizes, blocks, scale)
        return attention_merge(*(result(part) for part in parts), device=device)
    y = empty(device, q.shape)
    launch(device, f"mla_attention_{kind}", *arrays, y, *sizes, scale)
    return result(y)


def latent_blocks(device: Target, heads: int) -> int:
    """Return how many parts the keys of a query are split into where `heads` heads share the latents.

    There are two threadgroups for each one of attention over large heads that fills the device.
    """
    traits = traits_of(device)
    if traits.attention_groups == 0:
        return traits.attention_blocks
    parts = -(-heads // _SHARED_HEADS)
    return min(traits.attention_blocks, -(-2 * traits.attention_groups // parts))


def _cache(op: str, latents: ArrayLike, rope_keys: ArrayLike) -> tuple[Array, Array]:
    rows = stored_weight(op, latents, (None, None), "latents")[0]
    return rows, operand(op, "rope_keys", rope_keys, rows.dtype, (rows.shape[0], None))


def _weight(op: str, weight: Any, name: str = "weight") -> _Matrix:
    """Check a weight. An array is dense; a tuple with a mode or kind has that, any other is affine."""
    if not isinstance(weight, tuple):
        return _dense(op, weight, name)
    if len(weight) == 4 and isinstance(weight[2], str):
        return _small_floats(op, weight, name)
    if len(weight) == 2 and isinstance(weight[1], str):
        return _blocks(op, weight, name)
    return _affine(op, weight, name)


def _axes(op: str, name: str, array: Any) -> int:
    """Return the number of axes of a weight's array."""
    shape = as_array(op, name, array).shape
    if len(shape) not in (2, 3):
        raise ArgumentError(f"{op}: {name}: expected 2 or 3 axes, got shape {list(shape)}")
    return len(shape)


def _dense(op: str, weight: Any, name: str) -> _Matrix:
    array = as_array(op, name, weight, np.float32)
    array, kind = stored_weight(op, array, (None,) * _axes(op, name, array), name)
    return _Matrix((array,), array.shape, "mla_dense_project", f"_{kind}", span_of(array), ())


def _affine(op: str, weight: Any, name: str) -> _Matrix:
    axes = _axes(op, f"{name} packed", weight[0]) if len(weight) == 5 else 2
    w = matrix(op, name, weight, axes=axes)
    shape = (*w.packed.shape[:-1], w.in_dim)
    return _Matrix(w.arrays, shape, "mla_affine_project", w.suffix, w.span, (w.group_size,))


def _small_floats(op: str, weight: fp.Weight, name: str) -> _Matrix:
    packed, scales, mode, global_scale = weight
    w = fp.matrix(op, packed, scales, mode, global_scale, axes=_axes(op, f"{name} packed", packed))
    if w.global_scale is not None:
        raise ArgumentError(f"{op}: {name}: expected no global scale, got one")
    shape = (*w.packed.shape[:-1], w.in_dim)
    return _Matrix((w.packed, w.scales), shape, "mla_fp_project", f"_{mode}", fp.SPAN, ())


def _blocks(op: str, weight: gguf.Weight, name: str) -> _Matrix:
    blocks, kind = weight
    w = gguf.matrix(op, name, blocks, kind, axes=_axes(op, f"{name} blocks", blocks))
    shape = (*w.blocks.shape[:-1], w.in_dim)
    return _Matrix((aligned(w.blocks),), shape, "mla_gguf_project", w.suffix, gguf.SPAN, ())


def _check(op: str, w: _Matrix, shape: tuple[int, ...]) -> None:
    if w.shape != shape:
        raise ArgumentError(f"{op}: weight: expected shape {list(shape)}, got {list(w.shape)}")


def _project(
    x: Array, w: _Matrix, out: int, *, stride: int, first: int, transposed: bool, device: DeviceLike
) -> Array:
    """Multiply each head of x with its matrix, which starts at row head * stride + first."""
    tokens, heads, inner = x.shape
    device = resolve(device)
    y = empty(device, (tokens, heads, out))
    name = w.kernel + ("_transposed" if transposed else "") + w.suffix
    constants = {} if transposed else row_teams(device, heads * out, inner, w.span)
    sizes = tokens, heads, inner, out, stride, first, *w.sizes
    launch(device, name, x, *w.arrays, y, *sizes, constants=constants)
    return result(y)
