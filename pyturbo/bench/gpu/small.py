"""Cases of the small operations between products, whose operands the caches hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyturbo import ops
from pyturbo.bench.gpu.cases import Case, Sizes
from pyturbo.bench.gpu.memory import Operands
from pyturbo.bench.gpu.timing import Call


def small(sizes: Sizes) -> Iterator[Case]:
    """Yield norms, routing, sums and the choice of a token."""
    for tokens in (1, sizes.prompt):
        noun = f"{tokens} token{'s' if tokens > 1 else ''}"
        yield Case(f"rms norm with residual, {noun} of {sizes.hidden}", _norm(tokens, sizes.hidden))
        route = _route(tokens, sizes.experts, sizes.chosen)
        yield Case(f"route, {noun}, {sizes.chosen} of {sizes.experts} experts", route)
        combine = _combine(tokens, sizes.chosen, sizes.hidden)
        yield Case(f"combine, {noun}, {sizes.chosen} of {sizes.hidden}", combine)
    ids = np.random.default_rng(1).integers(0, sizes.experts, (sizes.prompt, sizes.chosen), np.int32)
    yield Case(
        f"buckets, {ids.size} choices of {sizes.experts} experts",
        lambda operands: ops.moe_buckets(ids, sizes.experts),
    )
    yield Case(
        f"argmax of {sizes.vocab} logits",
        lambda operands: ops.argmax(operands.take((1, sizes.vocab))),
    )
    yield Case(f"top 40 of {sizes.vocab} logits", _top(sizes.vocab, 40))


def _normal(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def _norm(tokens: int, hidden: int) -> Call:
    weight = np.ones(hidden, np.float32)

    def call(operands: Operands) -> Any:
        x, residual = operands.take((tokens, hidden)), operands.take((tokens, hidden))
        return ops.rms_norm(x, weight, 1e-6, residual)

    return call


def _route(tokens: int, experts: int, chosen: int) -> Call:
    logits = _normal(tokens, experts)
    return lambda operands: ops.route(logits, chosen)


def _top(vocab: int, count: int) -> Call:
    return lambda operands: ops.top_logits(operands.take((1, vocab)), count)


def _combine(tokens: int, chosen: int, hidden: int) -> Call:
    weights = np.full((tokens, chosen), 1 / chosen, np.float32)

    def call(operands: Operands) -> Any:
        rows = operands.take((tokens, chosen, hidden))
        return ops.moe_combine(operands.take((tokens, hidden)), rows, weights)

    return call
