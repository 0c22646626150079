"""Latent attention over a compressed cache.

A latent is encoded as one row, which serves as key and as value; the rotary key stored with it is float16.
Queries are rotated instead of latents, and the mix is rotated back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pyturbo import turbo_codec
from pyturbo.errors import ArgumentError
from pyturbo.ops._checks import integer, pair, values
from pyturbo.ops._run import Array, DeviceLike, empty, launch, operand, resolve, result
from pyturbo.ops.attention import SPLIT_TOKENS
from pyturbo.ops.mla import MAX_ROPE, latent_blocks
from pyturbo.ops.turbo import TurboRows, checked_rows, turbo_rotate, turbo_unrotate
from pyturbo.symbols import Linear


def mla_turbo_attention(
    q: ArrayLike,
    q_rope: ArrayLike,
    latents: TurboRows,
    rope_keys: ArrayLike,
    scale: float,
    *,
    own: tuple[ArrayLike, ArrayLike] | None = None,
    live: int | None = None,
    device: DeviceLike = None,
) -> Array:
    """Attend to compressed latents, TurboRows of one head, as `mla_attention` does -> [tokens, heads, rank].

    q [tokens, heads, rank], q_rope [tokens, heads, rope], rope_keys [capacity, rope] float16. live is the
    number of keys, by default that of the rows. own are the float32 latents [tokens, rank] and rotary keys
    [tokens, rope] of the queries themselves: they are not in the rows yet, follow these, and are exact.
    """
    op = "mla_turbo_attention"
    rows = checked_rows(op, "latents", latents)
    if rows.scales.ndim != 2 or rows.scales.shape[0] != 1 or rows.means is not None:
        raise ArgumentError(
            f"{op}: latents: expected rows of one head without means, got {list(rows.scales.shape)}"
        )
    capacity = rows.scales.shape[1]
    rank = rows.dim
    keys = operand(op, "rope_keys", rope_keys, np.float16, (capacity, None))
    rope = keys.shape[1]
    if rope % 8 or rope > MAX_ROPE:
        raise ArgumentError(f"{op}: rope_keys: expected rows of 8, 16, ... or {MAX_ROPE} values, got {rope}")
    q = operand(op, "q", values(op, "q", q), np.float32, (None, None, rank))
    tokens, heads = q.shape[:2]
    q_rope = operand(op, "q_rope", q_rope, np.float32, (tokens, heads, rope))
    device = resolve(device)
    exact: tuple[Any, Any] = (None, None)
    if own is not None:
        own_latents, own_keys = pair(op, "own", own, "latents and rope keys")
        own_latents = operand(op, "own latents", own_latents, np.float32, (tokens, rank))
        own_keys = operand(op, "own rope keys", own_keys, np.float32, (tokens, rope))
        exact = turbo_rotate(own_latents, device=device), own_keys
    recent = (rows.recent, rows.recent_keys)
    arrays = (turbo_rotate(q, device=device), q_rope, rows.packed, rows.scales, keys, *exact, *recent)
    context = capacity if live is None else integer(op, "live", live)
    sizes = (tokens, context, capacity, rows.recent_rows, heads, rank, rope)
    constants = {"bits": rows.bits, "has_own": own is not None, "has_recent": rows.recent is not None}
    if isinstance(tokens, Linear) or tokens > SPLIT_TOKENS:
        y = empty(device, q.shape)
        launch(device, "mla_turbo_attention", *arrays, y, *sizes, scale, constants=constants)
        return turbo_unrotate(result(y), device=device)
    blocks = latent_blocks(device, heads)
    shape = (tokens, heads, blocks)
    parts = empty(device, (*shape, rank)), empty(device, shape), empty(device, shape)
    launch(device, "mla_turbo_partials", *arrays, *parts, *sizes, blocks, scale, constants=constants)
    y = empty(device, q.shape)
    merging = {"has_sinks": False, "unrotates": True, "has_gate": False}
    args = (*parts, None, turbo_codec.signs(rank), None, y, *shape, rank)
    launch(device, "turbo_merge_f32", *args, constants=merging)
    return result(y)
