"""Cases of attention and of the delta net."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyturbo import ops, turbo_codec
from pyturbo.bench.gpu.cases import Case, Goal, Sizes
from pyturbo.bench.gpu.memory import Operands
from pyturbo.bench.gpu.timing import Call
from pyturbo.ops.turbo import TurboRows

_TURBO_GOALS = (12.0, 38.0)  # microseconds at the two contexts


def mixers(sizes: Sizes) -> Iterator[Case]:
    """Yield attention of one token, of a chunk, and the delta net."""
    yield from _decode(sizes)
    yield from _latents(sizes)
    yield from _prefill(sizes)
    yield from _delta(sizes)


def _normal(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def _decode(sizes: Sizes) -> Iterator[Case]:
    q, scale = _normal(1, sizes.heads, sizes.dim), sizes.dim**-0.5
    heads = f"{sizes.heads}/{sizes.kv_heads} heads of {sizes.dim}"
    for context in sizes.contexts:

        def plain(operands: Operands, context: int = context) -> Any:
            k, v = (operands.take((context, sizes.kv_heads, sizes.dim), np.float16) for _ in range(2))
            return ops.attention(q, k, v, scale)

        def peer(torch: Any, context: int = context) -> float:
            return float(torch.attention(1, sizes.heads, sizes.kv_heads, sizes.dim, context))

        yield Case(f"attention f16, {heads}, context {context}", plain, peer=peer, goal=Goal(torch=True))
    for context, goal in zip(sizes.contexts, _TURBO_GOALS):

        def turbo(operands: Operands, context: int = context) -> Any:
            k, v = (_rows(operands, sizes.kv_heads, context, sizes.dim) for _ in range(2))
            return ops.turbo_attention(q, k, v, scale, rotated=True)

        yield Case(f"attention turbo4, {heads}, context {context}", turbo, goal=Goal(us=goal))


def _rows(operands: Operands, heads: int, context: int, dim: int) -> TurboRows:
    packed = operands.take((heads, context, turbo_codec.row_words(dim, 4)), np.uint32)
    return TurboRows(packed, operands.take((heads, context), np.float16), 4, dim)


def _latents(sizes: Sizes) -> Iterator[Case]:
    heads, rank, rope = sizes.latent_heads, sizes.rank, sizes.rope
    q, q_rope, context = _normal(1, heads, rank), _normal(1, heads, rope), sizes.contexts[0]

    def plain(operands: Operands) -> Any:
        latents, keys = operands.take((context, rank), np.float16), operands.take((context, rope), np.float16)
        return ops.mla_attention(q, q_rope, latents, keys, None, 0.1)

    def turbo(operands: Operands) -> Any:
        rows = _rows(operands, 1, context, rank)
        return ops.mla_turbo_attention(q, q_rope, rows, operands.take((context, rope), np.float16), 0.1)

    sizes_text = f"{heads} heads, rank {rank} + {rope}, context {context}"
    yield Case(f"latent attention f16, {sizes_text}", plain)
    yield Case(f"latent attention turbo4, {sizes_text}", turbo)


def _prefill(sizes: Sizes) -> Iterator[Case]:
    tokens, context = sizes.prompt, sizes.prompt_context
    q = _normal(tokens, sizes.heads, sizes.dim)

    def plain(operands: Operands) -> Any:
        k, v = (operands.take((context, sizes.kv_heads, sizes.dim), np.float16) for _ in range(2))
        return ops.attention(q, k, v, sizes.dim**-0.5)

    def turbo(operands: Operands) -> Any:
        k, v = (_rows(operands, sizes.kv_heads, context, sizes.dim) for _ in range(2))
        return ops.turbo_attention(q, k, v, sizes.dim**-0.5, rotated=True)

    def peer(torch: Any) -> float:
        return float(torch.attention(tokens, sizes.heads, sizes.kv_heads, sizes.dim, context))

    flops = 4.0 * tokens * (context - tokens / 2) * sizes.heads * sizes.dim
    name = f"{tokens} tokens, {sizes.heads}/{sizes.kv_heads} heads of {sizes.dim}, context {context}"
    yield Case(f"attention f16, {name}", plain, flops, peer, Goal(us=400))
    yield Case(f"attention turbo4, {name}", turbo, flops, goal=Goal(us=600))


def _delta(sizes: Sizes) -> Iterator[Case]:
    keys, values, dim = sizes.key_heads, sizes.value_heads, sizes.delta_dim
    for tokens, method, goal in (
        (1, "auto", None),
        (sizes.prompt, "auto", Goal(us=110)),
        (sizes.prompt, "recurrent", None),
        (sizes.prompt, "chunkwise", None),
    ):
        noun = "token" if tokens == 1 else "tokens"
        way = "" if method == "auto" else f", {method}"
        yield Case(
            f"delta net, {tokens} {noun}, {keys}/{values} heads of {dim}{way}",
            _delta_call(sizes, tokens, method),
            goal=goal,
        )


def _delta_call(sizes: Sizes, tokens: int, method: str) -> Call:
    values, dim = sizes.value_heads, sizes.delta_dim
    q, k = (_unit(_normal(tokens, sizes.key_heads, dim)) for _ in range(2))
    v, g = _normal(tokens, values, dim), np.full((tokens, values), 0.9, np.float32)
    return lambda operands: ops.delta_net(q, k, v, g, g, operands.state((values, dim, dim)), method)


def _unit(x: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return unit
