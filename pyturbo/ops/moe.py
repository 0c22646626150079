"""Mixture of experts: routing, sorting tokens by expert, and combining the results."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._checks import flag, integer, matching, stored_weight, values
from pyturbo.ops._run import (
    Array,
    DeviceLike,
    as_array,
    changeable,
    empty,
    launch,
    operand,
    resolve,
    result,
    write_back,
)
from pyturbo.ops._stacks import experts_of, stack_memory, stack_stride

#: The most experts that a token can have; a lane of the router keeps each of them.
MAX_CHOICES = 16

#: The most experts that a router can choose among.
MAX_EXPERTS = 512

#: The most groups of experts that a router can have; a lane keeps each of them.
MAX_GROUPS = 32


def route(
    logits: ArrayLike, k: int, normalize: bool = True, *, device: DeviceLike = None
) -> tuple[Array, Array]:
    """Choose the k largest of each row of logits [tokens, experts] -> ids, weights [tokens, k].

    Ids are int32, largest logit first, the lower id first among equals. Weights are the softmax over all
    experts; `normalize` divides them by their sum, which gives the softmax over the k logits alone. A NaN
    makes the weights of its row NaN.
    """
    logits = values("route", "logits", logits, axes=2)
    tokens, experts = logits.shape
    k = integer("route", "k", k, least=1, most=min(experts, MAX_CHOICES))
    constants = {"normalize": flag("route", "normalize", normalize)}
    device = resolve(device)
    ids, weights = empty(device, (tokens, k), np.int32), empty(device, (tokens, k))
    launch(device, "route", logits, ids, weights, tokens, experts, k, constants=constants)
    return result(ids), result(weights)


def route_topk_softmax(logits: ArrayLike, k: int, *, device: DeviceLike = None) -> tuple[Array, Array]:
    """Choose the k experts of largest logit, weighted by the softmax over these k: `route` with normalize."""
    return route(logits, k, normalize=True, device=device)


def route_grouped(
    logits: ArrayLike,
    bias: ArrayLike,
    k: int,
    groups: int = 1,
    top_groups: int = 1,
    scale: float = 1.0,
    normalize: bool = True,
    *,
    device: DeviceLike = None,
) -> tuple[Array, Array]:
    """Choose k experts by sigmoid scores of logits [tokens, experts] -> ids, weights [tokens, k].

    The score of an expert is ``sigmoid(logits) + bias``. Of `groups` equal runs of experts, the `top_groups`
    with the largest sum of their two best scores stay. In these the k largest scores are chosen, largest
    first, the lower id first among equals. Weights are ``scale * sigmoid(logits)``; `normalize` divides them
    by their sum first.
    """
    op = "route_grouped"
    logits = values(op, "logits", logits, axes=2)
    tokens, experts = logits.shape
    bias = operand(op, "bias", bias, np.float32, (experts,))
    groups = integer(op, "groups", groups, least=1, most=MAX_GROUPS)
    if experts % groups:
        raise ArgumentError(f"{op}: groups: expected a divisor of {experts} up to {MAX_GROUPS}, got {groups}")
    top_groups = integer(op, "top_groups", top_groups, least=1, most=groups)
    k = integer(op, "k", k, least=1, most=min(experts // groups * top_groups, MAX_CHOICES))
    constants = {"normalize": flag(op, "normalize", normalize)}
    device = resolve(device)
    ids, weights = empty(device, (tokens, k), np.int32), empty(device, (tokens, k))
    sizes = tokens, experts, k, groups, top_groups, scale
    launch(device, op, logits, bias, ids, weights, *sizes, constants=constants)
    return result(ids), result(weights)


def moe_buckets(ids: ArrayLike, experts: int, *, device: DeviceLike = None) -> tuple[Array, Array, Array]:
    """Sort the choices of all tokens, int32 ids [tokens, k], by expert -> offsets, order, inverse.

    order [tokens * k] lists the positions token * k + choice by expert, then by position. Expert e has the
    rows offsets[e] .. offsets[e + 1] of it, offsets [experts + 1]. inverse [tokens, k] is the row of each
    choice. An id that is no expert is in no bucket: its inverse is -1, its position at the end of order.
    """
    op = "moe_buckets"
    chosen = operand(op, "ids", ids, np.int32, (None, None))
    if chosen.size == 0:
        raise ArgumentError(f"{op}: ids: expected at least one, got shape {list(chosen.shape)}")
    experts = integer(op, "experts", experts, least=1)
    device = resolve(device)
    offsets = empty(device, (experts + 1,), np.int32)
    order, inverse = empty(device, (chosen.size,), np.int32), empty(device, chosen.shape, np.int32)
    launch(device, op, chosen, offsets, order, inverse, chosen.size, experts)
    return result(offsets), result(order), result(inverse)


def find_slots(
    ids: ArrayLike,
    table: ArrayLike,
    counts: ArrayLike,
    slots: ArrayLike,
    missing: ArrayLike,
    *,
    device: DeviceLike = None,
) -> tuple[Array, Array, Array]:
    """Look up the slots of experts in a table, and count the choices of all tokens, int32 ids [tokens, k].

    Of int32 table [experts] the entry of an expert is its slot, negative if it has none. The table is copied
    to int32 slots [experts]. The choices of each expert are added to uint32 counts [experts]. uint32 missing
    [1] becomes the number of experts that are chosen and have no slot. Ids that are no expert are ignored.
    counts, slots and missing are changed in place and returned.
    """
    op = "find_slots"
    device = resolve(device)
    chosen = operand(op, "ids", ids, np.int32, (None, None))
    if chosen.size == 0:
        raise ArgumentError(f"{op}: ids: expected at least one, got shape {list(chosen.shape)}")
    known = operand(op, "table", table, np.int32, (None,))
    experts = known.shape[0]
    if experts == 0:
        raise ArgumentError(f"{op}: table: expected at least one, got shape [0]")
    totals = changeable(device, op, "counts", counts)
    found = changeable(device, op, "slots", slots)
    number = changeable(device, op, "missing", missing)
    used = (
        operand(op, "counts", totals, np.uint32, (experts,)),
        operand(op, "slots", found, np.int32, (experts,)),
        operand(op, "missing", number, np.uint32, (1,)),
    )
    launch(device, op, chosen, known, *used, chosen.size, experts)
    return write_back(totals, used[0]), write_back(found, used[1]), write_back(number, used[2])


def gather_rows(x: ArrayLike, index: ArrayLike, repeat: int = 1, *, device: DeviceLike = None) -> Array:
    """Return ``x[index // repeat]``: x [rows, dim], int32 index [...] -> [..., dim].

    x is float32, float16 or bfloat16, the result float32. An index out of range gives NaN.

    The order of `moe_buckets` with repeat = k brings x [tokens, dim] into the order of the buckets; the
    inverse brings their results back to [tokens, k, dim].
    """
    op = "gather_rows"
    x, kind = stored_weight(op, x, (None, None), "x")
    rows = as_array(op, "index", index, np.int32)
    rows = operand(op, "index", rows, np.int32, (None,) * rows.ndim)
    if rows.size == 0:
        raise ArgumentError(f"{op}: index: expected at least one, got shape {list(rows.shape)}")
    device = resolve(device)
    y = empty(device, (*rows.shape, x.shape[1]))
    launch(device, f"{op}_{kind}", x, rows, y, rows.size, *x.shape, repeat)
    return result(y)


def add_expert_bias(
    x: ArrayLike,
    bias: ArrayLike,
    ids: ArrayLike,
    order: ArrayLike | None = None,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Return ``x + bias[ids]``: x [..., dim], bias [experts, dim], int32 ids [...].

    The bias is float32, float16 or bfloat16. With the order of `moe_buckets`, the rows of x [tokens * k,
    dim] are in that order, and ids is [tokens, k]. An id that is no expert gives NaN. `slots` as for
    `affine_experts_matmul`.
    """
    op = "add_expert_bias"
    x = values(op, "x", x)
    dim = x.shape[-1]
    added, kind = stored_weight(op, bias, (None, dim), "bias", stack=True)
    experts = experts_of(op, slots, added.shape[0])
    places = None
    if order is None:
        chosen = operand(op, "ids", ids, np.int32, x.shape[:-1])
    else:
        places = operand(op, "order", order, np.int32, x.shape[:-1])
        chosen = as_array(op, "ids", ids, np.int32)
        chosen = operand(op, "ids", chosen, np.int32, (None,) * chosen.ndim)
        if chosen.size != places.size:
            raise ArgumentError(f"{op}: ids: expected {places.size} values, got {chosen.size}")
    device = resolve(device)
    y = empty(device, x.shape)
    constants = {"has_order": places is not None, **experts.constants}
    arrays = x, stack_memory(added), chosen, places, experts.slots, y
    sizes = chosen.size, *experts.sizes, dim, stack_stride(added)
    launch(device, f"{op}_{kind}", *arrays, *sizes, constants=constants)
    return result(y)


def moe_combine(
    residual: ArrayLike,
    expert_out: ArrayLike,
    weights: ArrayLike,
    shared: ArrayLike | None = None,
    shared_gate: ArrayLike | None = None,
    *,
    device: DeviceLike = None,
) -> Array:
    """Return ``residual + sum_k weights[:, k] * expert_out[:, k] + sigmoid(shared_gate) * shared``.

    residual, shared [tokens, dim], expert_out [tokens, k, dim], weights [tokens, k], shared_gate [tokens] or
    [tokens, 1]. Without a gate the shared expert is added unscaled.
    """
    op = "moe_combine"
    joined = _Combined.read(op, residual, expert_out, weights, shared, shared_gate)
    device = resolve(device)
    y = empty(device, joined.arrays[0].shape)
    launch(device, op, *joined.arrays, y, *joined.sizes, constants=joined.constants)
    return result(y)


def moe_combine_norm(
    residual: ArrayLike,
    expert_out: ArrayLike,
    weights: ArrayLike,
    norm_weight: ArrayLike,
    eps: float,
    shared: ArrayLike | None = None,
    shared_gate: ArrayLike | None = None,
    *,
    device: DeviceLike = None,
) -> tuple[Array, Array]:
    """Apply `moe_combine`, then `rms_norm` with norm_weight [dim] to the sum -> (normalised, sum)."""
    op = "moe_combine_norm"
    joined = _Combined.read(op, residual, expert_out, weights, shared, shared_gate)
    shape = joined.arrays[0].shape
    scale, kind = stored_weight(op, norm_weight, shape[1:], "norm_weight")
    device = resolve(device)
    y, total = empty(device, shape), empty(device, shape)
    args = *joined.arrays, scale, y, total, *joined.sizes, eps
    launch(device, f"{op}_{kind}", *args, constants=joined.constants)
    return result(y), result(total)


class _Combined(NamedTuple):
    """What `moe_combine` adds up."""

    arrays: tuple[Any, ...]  # residual, expert_out, weights, shared, shared_gate
    sizes: tuple[int, int, int]

    @property
    def constants(self) -> dict[str, bool]:
        return {"has_shared": self.arrays[3] is not None, "has_shared_gate": self.arrays[4] is not None}

    @staticmethod
    def read(
        op: str,
        residual: ArrayLike,
        expert_out: ArrayLike,
        weights: ArrayLike,
        shared: ArrayLike | None,
        shared_gate: ArrayLike | None,
    ) -> _Combined:
        residual = values(op, "residual", residual, axes=2)
        tokens, dim = residual.shape
        rows = values(op, "expert_out", expert_out)
        rows = operand(op, "expert_out", rows, np.float32, (tokens, None, dim))
        k = rows.shape[1]
        weights = operand(op, "weights", weights, np.float32, (tokens, k))
        common = None if shared is None else matching(op, "shared", shared, residual)
        gate = None
        if shared_gate is not None:
            if common is None:
                raise ArgumentError(f"{op}: shared: expected a value for shared_gate to scale, got None")
            gate = as_array(op, "shared_gate", shared_gate, np.float32)
            gate = operand(op, "shared_gate", gate, np.float32, (tokens,) if gate.ndim == 1 else (tokens, 1))
        return _Combined((residual, rows, weights, common, gate), (tokens, k, dim))


def bucket_accumulate(
    out: ArrayLike, rows: ArrayLike, tokens: ArrayLike, weights: ArrayLike, *, device: DeviceLike = None
) -> Array:
    """Add ``weights[i] * rows[i]`` to row ``tokens[i]`` of out [tokens, dim], for each i in order.

    out is changed in place and returned. rows [count, dim] are the results of a bucket, int32 tokens [count]
    the tokens they belong to, weights [count] their weights. Tokens outside of out are skipped.
    """
    op = "bucket_accumulate"
    device = resolve(device)
    given = changeable(device, op, "out", out)
    total = values(op, "out", given, axes=2)
    rows = operand(op, "rows", values(op, "rows", rows), np.float32, (None, total.shape[1]))
    count, dim = rows.shape
    owners = operand(op, "tokens", tokens, np.int32, (count,))
    weights = operand(op, "weights", weights, np.float32, (count,))
    launch(device, op, rows, owners, weights, total, total.shape[0], count, dim)
    return write_back(given, total)
