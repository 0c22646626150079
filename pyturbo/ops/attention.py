"""Attention over an uncompressed cache.

Queries are float32 [tokens, heads, dim]; keys and values are [capacity, kv_heads, dim] in float32, float16
or bfloat16. Query head a reads key head a // (heads / kv_heads).

Key j lies in row j % capacity: with more keys than rows the cache is a ring. Rows are appended before they
are attended to, so a ring needs capacity >= window + tokens - 1; a smaller one is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pyturbo._buffer import Buffer
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
    traits_of,
    write_back,
)
from pyturbo.symbols import Linear

#: The largest number of queries for which keys are split over threadgroups and merged. A tile of more queries
#: reads each key once for all of them, but gives each key head one threadgroup, however long the context.
SPLIT_TOKENS = 8

#: The head dims of the kernels; each also serves smaller ones.
_KERNEL_DIMS = (64, 128, 256, 512)
MAX_HEAD_DIM = _KERNEL_DIMS[-1]


class _Operands(NamedTuple):
    q: Array
    k: Array
    v: Array
    context: int
    suffix: str  # of the kernel name

    @property
    def sizes(self) -> tuple[int, ...]:
        """tokens, context, capacity, heads, kv_heads, dim."""
        tokens, heads, dim = self.q.shape
        capacity, kv_heads, _ = self.k.shape
        return tokens, self.context, capacity, heads, kv_heads, dim


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    scale: float,
    causal: bool = True,
    window: int = 0,
    sinks: ArrayLike | None = None,
    softcap: float = 0.0,
    *,
    context: int | None = None,
    gate: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Return ``softmax(scale * q k^T) v`` -> [tokens, heads, dim]; the last query is at the last key.

    Query i sees key j if ``0 <= i - j < window`` (window 0: no limit), or every key if not causal; the result
    of a query that sees no key is 0. With a soft cap a score s becomes ``softcap * tanh(s / softcap)``. sinks
    [heads] are additional logits, neither scaled nor capped, whose value is 0. context is the number of keys,
    by default the number of rows. Up to 8 queries may have a gate [tokens, heads, 2 * dim]: the result is
    multiplied by the sigmoid of the second half of each of its heads.
    """
    op = "attention"
    operands = _operands(op, q, k, v, context)
    causal = flag(op, "causal", causal)
    heads = operands.q.shape[1]
    logits = None if sinks is None else operand(op, "sinks", sinks, np.float32, (heads,))
    factors = None if gate is None else gates(op, gate, operands.q.shape)
    device = resolve(device)
    tokens = operands.q.shape[0]
    if not isinstance(tokens, Linear) and tokens <= SPLIT_TOKENS:
        blocks = key_blocks(device, operands.k.shape[1], operands.k.shape[2])
        parts = _partials(device, operands, blocks, scale, causal, window, softcap)
        return result(_merge(device, *parts, logits, factors))
    if factors is not None:
        raise ArgumentError(f"{op}: gate: expected None for more than {SPLIT_TOKENS} tokens, got an array")
    y = empty(device, operands.q.shape)
    constants = {"causal": causal, "has_sinks": logits is not None}
    arrays = (operands.q, operands.k, operands.v, logits, y)
    name = f"attention_{operands.suffix}"
    launch(device, name, *arrays, *operands.sizes, scale, window, softcap, constants=constants)
    return result(y)


def attention_partials(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    scale: float,
    blocks: int,
    causal: bool = True,
    window: int = 0,
    softcap: float = 0.0,
    *,
    context: int | None = None,
    device: DeviceLike = None,
) -> tuple[Array, Array, Array]:
    """Attend to each of `blocks` parts of a query's keys -> o [tokens, heads, blocks, dim], m, l.

    m [tokens, heads, blocks] is the largest score s of a block, l the sum of ``e^(s - m)`` and o the sum of
    ``e^(s - m) v``, all float32. A block without keys has l = 0. Other arguments are those of `attention`.
    """
    operands = _operands("attention_partials", q, k, v, context)
    blocks = integer("attention_partials", "blocks", blocks, least=1)
    causal = flag("attention_partials", "causal", causal)
    sums, tops, totals = _partials(resolve(device), operands, blocks, scale, causal, window, softcap)
    return result(sums), result(tops), result(totals)


def attention_merge(
    o: ArrayLike,
    m: ArrayLike,
    l: ArrayLike,  # noqa: E741
    sinks: ArrayLike | None = None,
    gate: ArrayLike | None = None,
    *,
    device: DeviceLike = None,
) -> Array:
    """Merge the parts of `attention_partials` -> [tokens, heads, dim]; sinks and gate as for `attention`."""
    op = "attention_merge"
    sums = values(op, "o", o, axes=4)
    tops = operand(op, "m", m, np.float32, sums.shape[:3])
    totals = operand(op, "l", l, np.float32, sums.shape[:3])
    logits = None if sinks is None else operand(op, "sinks", sinks, np.float32, (sums.shape[1],))
    factors = None if gate is None else gates(op, gate, (*sums.shape[:2], sums.shape[3]))
    return result(_merge(resolve(device), sums, tops, totals, logits, factors))


def attention_scores(q: ArrayLike, k: ArrayLike, scale: float, *, device: DeviceLike = None) -> Array:
    """Return ``scale * q . k`` of every query with every key -> [tokens, heads, context], without masks."""
    op = "attention_scores"
    q = values(op, "q", q, axes=3)
    k = stored_weight(op, k, (None, None, q.shape[2]), "k")[0]
    _check_heads(op, q.shape[1], k)
    device = resolve(device)
    (tokens, heads, dim), (context, kv_heads, _) = q.shape, k.shape
    scores = empty(device, (tokens, heads, context))
    name = f"attention_scores_{SUFFIXES[k.dtype]}"
    launch(device, name, q, k, scores, tokens, context, heads, kv_heads, dim, scale)
    return result(scores)


def softmax(x: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Apply softmax to the last axis of x [..., dim]."""
    x = values("softmax", "x", x)
    dim = x.shape[-1]
    device = resolve(device)
    y = empty(device, x.shape)
    launch(device, "softmax", x, y, x.size // dim, dim)
    return result(y)


def attention_values(p: ArrayLike, v: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Return ``p v``: p [tokens, heads, context], v [context, kv_heads, dim] -> [tokens, heads, dim]."""
    op = "attention_values"
    p = values(op, "p", p, axes=3)
    v = stored_weight(op, v, (p.shape[2], None, None), "v")[0]
    _check_heads(op, p.shape[1], v)
    device = resolve(device)
    (tokens, heads, context), (_, kv_heads, dim) = p.shape, v.shape
    y = empty(device, (tokens, heads, dim))
    launch(device, f"attention_values_{SUFFIXES[v.dtype]}", p, v, y, tokens, context, heads, kv_heads, dim)
    return result(y)


def kv_append(cache: ArrayLike, rows: ArrayLike, position: int, *, device: DeviceLike = None) -> Array:
    """Write rows [tokens, kv_heads, dim] at (position + t) % capacity of cache [capacity, kv_heads, dim].

    The cache is changed in place and returned. Rows are float32 and rounded to the type of the cache. More
    rows than the capacity are refused.
    """
    op = "kv_append"
    device = resolve(device)
    given = changeable(device, op, "cache", cache)
    kept = stored_weight(op, given, (None, None, None), "cache")[0]
    capacity, kv_heads, dim = kept.shape
    rows = values(op, "rows", rows, axes=3)
    rows = operand(op, "rows", rows, np.float32, (None, kv_heads, dim))
    name = f"kv_append_{SUFFIXES[kept.dtype]}"
    launch(device, name, rows, kept, rows.shape[0], capacity, kv_heads * dim, position)
    return write_back(given, kept)


def _partials(
    device: Target,
    operands: _Operands,
    blocks: int,
    scale: float,
    causal: bool,
    window: int,
    softcap: float,
) -> tuple[Buffer, Buffer, Buffer]:
    tokens, heads, dim = operands.q.shape
    rows = (tokens, heads, blocks)
    parts = empty(device, (*rows, dim)), empty(device, rows), empty(device, rows)
    arrays = (operands.q, operands.k, operands.v, *parts)
    name, constants = f"attention_partials_{operands.suffix}", {"causal": causal}
    launch(device, name, *arrays, *operands.sizes, blocks, scale, window, softcap, constants=constants)
    return parts


def _merge(
    device: Target, sums: Any, tops: Any, totals: Any, sinks: Array | None, gate: Array | None
) -> Buffer:
    tokens, heads, blocks, dim = sums.shape
    y = empty(device, (tokens, heads, dim))
    constants = {"has_sinks": sinks is not None, "has_gate": gate is not None}
    arrays = (sums, tops, totals, sinks, gate, y)
    launch(device, "attention_merge", *arrays, tokens, heads, blocks, dim, constants=constants)
    return y


def _operands(op: str, q: ArrayLike, k: ArrayLike, v: ArrayLike, context: int | None) -> _Operands:
    q = values(op, "q", q, axes=3)
    dim = q.shape[2]
    if dim % 8 or dim > _KERNEL_DIMS[-1]:
        raise ArgumentError(
            f"{op}: q: expected heads of a multiple of 8 up to {_KERNEL_DIMS[-1]} values, got {dim}"
        )
    k = stored_weight(op, k, (None, None, dim), "k")[0]
    v = operand(op, "v", v, k.dtype, k.shape)
    _check_heads(op, q.shape[1], k)
    kernel_dim = next(largest for largest in _KERNEL_DIMS if dim <= largest)
    return _Operands(
        q, k, v, k.shape[0] if context is None else context, f"d{kernel_dim}_{SUFFIXES[k.dtype]}"
    )


def key_blocks(device: Target, heads: int, dim: int) -> int:
    """Return how many parts the keys of a query are split into, with `heads` key heads of dim values."""
    traits = traits_of(device)
    if traits.attention_groups == 0:
        return traits.attention_blocks
    groups = traits.attention_groups * (1 if dim > 128 else 2)  # those of small heads are smaller
    return min(traits.attention_blocks, -(-groups // heads))


def gates(op: str, gate: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Check the heads whose second halves are the gates of a result of that shape."""
    return operand(op, "gate", gate, np.float32, (*shape[:-1], 2 * shape[-1]))


def _check_heads(op: str, heads: int, cache: Array) -> None:
    if heads % cache.shape[1]:
        raise ArgumentError(f"{op}: q: expected a multiple of {cache.shape[1]} key heads, got {heads} heads")
