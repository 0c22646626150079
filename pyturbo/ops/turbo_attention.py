"""Attention over a compressed cache.

Queries are [tokens, heads, dim], or [heads, dim] for a single one, in float32, float16 or bfloat16; with rows
of a batch they have one more leading axis. Keys and values are TurboRows of one size. Query head a reads key
head a // (heads / kv_heads), and the last query has the position of the last key.

Key j of `live`, by default all, lies in row (ring_start + j) % capacity. For a ring that has wrapped around,
`live` may also be the number of all keys so far, with ring_start 0, if a window hides the overwritten keys.
Of rows with exact ones, which need a ring_start of 0, attention reads these for the last keys. Which keys
these are, recent_keys of k_rows says for keys and values; that of v_rows is not read.

The kernels work on rotated vectors. All functions here take and return plain vectors, unless `rotated` says
that inputs and results are rotated.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pyturbo import turbo_codec
from pyturbo._buffer import Buffer
from pyturbo._dtypes import SUFFIXES
from pyturbo._messages import shown
from pyturbo.errors import ArgumentError
from pyturbo.ops._checks import flag, integer, pair, stored_weight, values
from pyturbo.ops._run import (
    Array,
    DeviceLike,
    Target,
    as_array,
    empty,
    launch,
    operand,
    resolve,
    result,
)
from pyturbo.ops.attention import SPLIT_TOKENS, gates, key_blocks
from pyturbo.ops.turbo import TurboRows, checked_rows, rotated_ones, turbo_rotate, turbo_unrotate
from pyturbo.symbols import Linear

#: "split" attends to parts of the keys and merges them, "tiled" reads each key once for many queries, "fused"
#: is one launch. "auto" is "split" for few queries and "tiled" for many.
Method = Literal["auto", "split", "tiled", "fused"]

_KERNEL_DIMS = (64, 128, 256, 512)


class _Operands(NamedTuple):
    """The operands of the attention kernels, in their order."""

    q: Array  # rotated, [batch, tokens, heads, dim] but for leading axes of 1
    k: TurboRows
    v: TurboRows
    own: tuple[Array, Array] | None  # rotated
    context: int
    ring_start: int

    @property
    def inputs(self) -> tuple[Any, ...]:
        k, v = self.k, self.v
        ones = None if k.means is None else rotated_ones(k.dim)
        own = (None, None) if self.own is None else self.own
        rows = (k.packed, k.scales, v.packed, v.scales, k.means, v.means, ones, *own)
        return self.q, *rows, k.recent, v.recent, k.recent_keys

    @property
    def sizes(self) -> tuple[int, ...]:
        """batch, tokens, context, capacity, ring_start, recent, heads, kv_heads, dim."""
        batch, kv_heads, capacity = self.k.sizes
        heads, dim = self.q.shape[-2:]
        ring = (capacity, self.ring_start, self.k.recent_rows)
        return batch, self.tokens, self.context, *ring, heads, kv_heads, dim

    @property
    def tokens(self) -> int:
        return self.q.shape[-3] if self.q.ndim == self.k.scales.ndim + 1 else 1

    @property
    def constants(self) -> dict[str, Any]:
        optional = {"has_means": self.k.means, "has_own": self.own, "has_recent": self.k.recent}
        present = {name: part is not None for name, part in optional.items()}
        return {"key_bits": self.k.bits, "value_bits": self.v.bits, **present}

    @property
    def kernel_dim(self) -> int:
        return next(largest for largest in _KERNEL_DIMS if self.k.dim <= largest)


def turbo_attention(
    q: ArrayLike,
    k_rows: TurboRows,
    v_rows: TurboRows,
    scale: float,
    window: int = 0,
    sinks: ArrayLike | None = None,
    softcap: float = 0.0,
    method: Method = "auto",
    ring_start: int = 0,
    live: int | None = None,
    *,
    own: tuple[ArrayLike, ArrayLike] | None = None,
    rotated: bool = False,
    gate: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Return ``softmax(scale * q k^T) v`` in the type and shape of q.

    window, sinks and softcap are those of `attention`, and so is gate, for the method split. own are the
    float32 keys and values [tokens, kv_heads, dim] of the queries themselves. They are not in the rows yet,
    follow the keys of the rows, and are exact. Where both rows have exact ones, k_rows.recent_keys says which
    keys they are of, for the values too.
    """
    op = "turbo_attention"
    device = resolve(device)
    operands = _operands(op, q, k_rows, v_rows, own, ring_start, live, rotated, device)
    heads = operands.q.shape[-2]
    logits = None if sinks is None else operand(op, "sinks", sinks, np.float32, (heads,))
    chosen = _method(op, method, operands)
    factors = None if gate is None else gates(op, gate, operands.q.shape)
    if factors is not None and chosen != "split":
        raise ArgumentError(f"{op}: gate: expected None for the method {chosen}")
    if chosen == "split":
        batch, kv_heads, _ = operands.k.sizes
        blocks = key_blocks(device, batch * kv_heads, operands.k.dim)
        parts = _partials(device, operands, blocks, scale, window, softcap)
        y = _merge(device, *parts, operands.q.shape, logits, factors, operands.q.dtype, unrotate=not rotated)
        return result(y)
    y = empty(device, operands.q.shape, operands.q.dtype)
    constants = {**operands.constants, "has_sinks": logits is not None}
    name = f"turbo_prefill_d{operands.kernel_dim}"
    if chosen == "fused":
        name = f"turbo_attention_d{operands.kernel_dim}_{SUFFIXES[operands.q.dtype]}"
    arrays = (*operands.inputs, logits, y)
    launch(device, name, *arrays, *operands.sizes, scale, window, softcap, constants=constants)
    return result(y) if rotated else turbo_unrotate(result(y), device=device)


def turbo_partials(
    q: ArrayLike,
    k_rows: TurboRows,
    v_rows: TurboRows,
    scale: float,
    blocks: int,
    window: int = 0,
    softcap: float = 0.0,
    ring_start: int = 0,
    live: int | None = None,
    *,
    own: tuple[ArrayLike, ArrayLike] | None = None,
    rotated: bool = False,
    device: DeviceLike = None,
) -> tuple[Array, Array, Array]:
    """Attend to each of `blocks` parts of a query's keys -> float32 o [..., heads, blocks, dim], m, l.

    m [..., heads, blocks] is the largest score s of a block, l the sum of ``e^(s - m)`` and o the sum of
    ``e^(s - m) v``. A block without keys has l = 0. Other arguments are those of `turbo_attention`.
    """
    op = "turbo_partials"
    blocks = integer(op, "blocks", blocks, least=1)
    device = resolve(device)
    operands = _operands(op, q, k_rows, v_rows, own, ring_start, live, rotated, device)
    sums, tops, totals = (
        result(part) for part in _partials(device, operands, blocks, scale, window, softcap)
    )
    return sums if rotated else turbo_unrotate(sums, device=device), tops, totals


def turbo_merge(
    o: ArrayLike,
    m: ArrayLike,
    l: ArrayLike,  # noqa: E741
    sinks: ArrayLike | None = None,
    gate: ArrayLike | None = None,
    *,
    dtype: Any = np.float32,
    unrotate: bool = False,
    device: DeviceLike = None,
) -> Array:
    """Merge the parts of `turbo_partials` -> [..., heads, dim]; sinks and gate are those of `attention`.

    unrotate rotates the result of rotated parts back.
    """
    op = "turbo_merge"
    sums = values(op, "o", o)
    if sums.ndim < 3:
        raise ArgumentError(f"{op}: o: expected shape [..., heads, blocks, dim], got {list(sums.shape)}")
    tops = operand(op, "m", m, np.float32, sums.shape[:-1])
    totals = operand(op, "l", l, np.float32, sums.shape[:-1])
    logits = None if sinks is None else operand(op, "sinks", sinks, np.float32, (sums.shape[-3],))
    kind = _dtype(op, dtype)
    unrotate = flag(op, "unrotate", unrotate)
    shape = (*sums.shape[:-2], sums.shape[-1])
    factors = None if gate is None else gates(op, gate, shape)
    return result(_merge(resolve(device), sums, tops, totals, shape, logits, factors, kind, unrotate))


def turbo_scores(
    q: ArrayLike,
    k_rows: TurboRows,
    scale: float = 1.0,
    window: int = 0,
    softcap: float = 0.0,
    ring_start: int = 0,
    live: int | None = None,
    *,
    rotated: bool = False,
    device: DeviceLike = None,
) -> Array:
    """Return ``scale * q . k`` of every query with every key -> float32 [..., heads, live].

    A query sees keys up to its own, the last `window` of them if that is not 0; other scores are -inf. Exact
    rows are not read.
    """
    op = "turbo_scores"
    device = resolve(device)
    operands = _operands(op, q, k_rows, k_rows, None, ring_start, live, rotated, device)
    k, (batch, tokens, context, capacity, _, _, *heads) = operands.k, operands.sizes
    sizes = (batch, tokens, context, capacity, ring_start, *heads)
    scores = empty(device, (*operands.q.shape[:-1], operands.context))
    ones = None if k.means is None else rotated_ones(k.dim)
    arrays = (operands.q, k.packed, k.scales, k.means, ones, scores)
    constants = {"key_bits": k.bits, "has_means": k.means is not None}
    name = f"turbo_scores_{SUFFIXES[operands.q.dtype]}"
    launch(device, name, *arrays, *sizes, scale, window, softcap, constants=constants)
    return result(scores)


def turbo_values(
    weights: ArrayLike,
    v_rows: TurboRows,
    threshold: float = 0.0,
    ring_start: int = 0,
    *,
    rotated: bool = False,
    device: DeviceLike = None,
) -> Array:
    """Sum values with weights [..., heads, live] -> [..., heads, dim], in the type of the weights.

    Weights below the threshold are skipped, which saves work where most weights are close to 0. Exact rows
    are not read.
    """
    op = "turbo_values"
    rows = checked_rows(op, "v_rows", v_rows)
    rotated = flag(op, "rotated", rotated)
    p = _queries(op, "weights", weights, rows, None)
    batch, kv_heads, capacity = rows.sizes
    heads, context = p.shape[-2:]
    _check_heads(op, "weights", heads, kv_heads)
    device = resolve(device)
    y = empty(device, (*p.shape[:-1], rows.dim), p.dtype)
    tokens = p.shape[-3] if p.ndim == rows.scales.ndim + 1 else 1
    ones = None if rows.means is None else rotated_ones(rows.dim)
    arrays = (p, rows.packed, rows.scales, rows.means, ones, y)
    sizes = (batch, tokens, context, capacity, ring_start, heads, kv_heads, rows.dim)
    constants = {"bits": rows.bits, "has_means": rows.means is not None}
    launch(device, f"turbo_values_{SUFFIXES[p.dtype]}", *arrays, *sizes, threshold, constants=constants)
    return result(y) if rotated else turbo_unrotate(result(y), device=device)


def _partials(
    device: Target, operands: _Operands, blocks: int, scale: float, window: int, softcap: float
) -> tuple[Buffer, Buffer, Buffer]:
    rows = (*operands.q.shape[:-1], blocks)
    parts = empty(device, (*rows, operands.k.dim)), empty(device, rows), empty(device, rows)
    name = f"turbo_partials_d{operands.kernel_dim}_{SUFFIXES[operands.q.dtype]}"
    arguments = (*operands.inputs, *parts, *operands.sizes, blocks, scale, window, softcap)
    launch(device, name, *arguments, constants=operands.constants)
    return parts


def _merge(
    device: Target,
    sums: Any,
    tops: Any,
    totals: Any,
    shape: tuple[int, ...],
    sinks: Array | None,
    gate: Array | None,
    dtype: Any,
    unrotate: bool,
) -> Buffer:
    blocks, dim = sums.shape[-2:]
    heads = shape[-2]
    y = empty(device, shape, dtype)
    constants = {"has_sinks": sinks is not None, "unrotates": unrotate, "has_gate": gate is not None}
    arrays = (sums, tops, totals, sinks, turbo_codec.signs(dim) if unrotate else None, gate, y)
    tokens = math.prod(shape[:-2])
    launch(device, f"turbo_merge_{SUFFIXES[dtype]}", *arrays, tokens, heads, blocks, dim, constants=constants)
    return y


def _dtype(op: str, given: Any) -> np.dtype[Any]:
    with suppress(TypeError):
        dtype: np.dtype[Any] = np.dtype(given)
        if dtype in SUFFIXES:
            return dtype
    raise ArgumentError(f"{op}: dtype: expected float32, float16 or bfloat16, got {shown(given)}")


def _method(op: str, method: str, operands: _Operands) -> str:
    if method not in ("auto", "split", "tiled", "fused"):
        raise ArgumentError(f"{op}: method: expected auto, split, tiled or fused, got {shown(method)}")
    is_float = operands.q.dtype == np.float32
    if method == "tiled" and not is_float:
        raise ArgumentError(f"{op}: q: expected float32 for the method tiled, got {operands.q.dtype}")
    if method != "auto":
        return method
    few = not isinstance(operands.tokens, Linear) and operands.tokens <= SPLIT_TOKENS
    return "split" if few else "tiled" if is_float else "fused"


def _operands(
    op: str,
    q: ArrayLike,
    k_rows: TurboRows,
    v_rows: TurboRows,
    own: tuple[ArrayLike, ArrayLike] | None,
    ring_start: int,
    live: int | None,
    rotated: bool,
    device: Target,
) -> _Operands:
    k, v = checked_rows(op, "k_rows", k_rows), checked_rows(op, "v_rows", v_rows)
    rotated = flag(op, "rotated", rotated)
    if v.scales.shape != k.scales.shape or v.dim != k.dim:
        raise ArgumentError(
            f"{op}: v_rows: expected rows {list(k.scales.shape)} of {k.dim} values, "
            f"got {list(v.scales.shape)} of {v.dim}"
        )
    if (k.means is None) != (v.means is None):
        raise ArgumentError(f"{op}: v_rows: expected means of both keys and values, or of none")
    if k.recent_rows != v.recent_rows:
        raise ArgumentError(
            f"{op}: v_rows: expected {k.recent_rows} exact rows, as many as keys have, got {v.recent_rows}"
        )
    if k.recent is not None and ring_start != 0:
        raise ArgumentError(f"{op}: ring_start: expected 0 with exact rows, got {ring_start}")
    q = _queries(op, "q", q, k, k.dim)
    _check_heads(op, "q", q.shape[-2], k.scales.shape[-2])
    rows = None
    if own is not None:
        shape = (
            *k.scales.shape[:-2],
            q.shape[-3] if q.ndim == k.scales.ndim + 1 else 1,
            k.scales.shape[-2],
            k.dim,
        )
        keys, own_values = pair(op, "own", own, "keys and values")
        keys = operand(op, "own keys", keys, np.float32, shape)
        rows = keys, operand(op, "own values", own_values, np.float32, shape)
        if not rotated:
            rows = turbo_rotate(rows[0], device=device), turbo_rotate(rows[1], device=device)
    q = q if rotated else turbo_rotate(q, device=device)
    context = k.scales.shape[-1] if live is None else integer(op, "live", live)
    return _Operands(q, k, v, rows, context, ring_start)


def _queries(op: str, name: str, value: ArrayLike, rows: TurboRows, last: int | None) -> Array:
    """Check [tokens, heads, last] or [heads, last], with the batch axis of the rows in front."""
    array = as_array(op, name, value, np.float32)
    batch = rows.scales.shape[:-2]
    tokens = (None,) if array.ndim == len(batch) + 3 else ()
    return stored_weight(op, array, (*batch, *tokens, None, last), name)[0]


def _check_heads(op: str, name: str, heads: int, kv_heads: int) -> None:
    if heads % kv_heads:
        raise ArgumentError(f"{op}: {name}: expected a multiple of {kv_heads} key heads, got {heads} heads")
