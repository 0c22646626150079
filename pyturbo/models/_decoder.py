"""What the architectures share: linear layers, attention with a cache, a gated MLP, the stack of layers.

A layer is recorded, not run: what passes between operations are tensors without values, typed Any here
because operations are declared for arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyturbo import ops
from pyturbo.checkpoint import Affine, Linear, Weights
from pyturbo.checkpoint.file import Array

#: Shape and element type of one piece of a conversation's state.
Piece = tuple[tuple[int, ...], Any]


def apply(layer: Linear, x: Any) -> Any:
    """``x W^T + bias``: x [tokens, in] -> [tokens, out]."""
    y = ops.affine_matmul(x, *layer.weight) if isinstance(layer, Affine) else ops.matmul(x, layer.weight)
    return y if layer.bias is None else ops.add_bias(y, layer.bias)


def embed(table: Linear, ids: Any) -> Any:
    """Rows of the table: ids [tokens] -> [tokens, hidden]."""
    if isinstance(table, Affine):
        return ops.affine_embed(ids, *table.weight)
    return ops.gather_rows(np.asarray(table.weight, np.float32), ids)


@dataclass(frozen=True)
class Step:
    """Where the tokens of a program stand, and the state they read and change."""

    tokens: Any  # an integer or a symbol
    position: Any
    state: Mapping[str, Any]  # tensors


class Attention:
    """Grouped-query attention with rotary positions, optionally with a norm of every query and key head."""

    def __init__(
        self, weights: Weights, path: str, hidden: int, heads: int, kv_heads: int, dim: int, inv_freq: Array
    ) -> None:
        self.name, self.heads, self.kv_heads, self.dim = path, heads, kv_heads, dim
        self.inv_freq = inv_freq
        self.q = weights.linear(f"{path}.q_proj", (heads * dim, hidden))
        self.k = weights.linear(f"{path}.k_proj", (kv_heads * dim, hidden))
        self.v = weights.linear(f"{path}.v_proj", (kv_heads * dim, hidden))
        self.out = weights.linear(f"{path}.o_proj", (hidden, heads * dim))
        self.norm: Callable[[str, Any], Any] = lambda which, x: x

    def normalize(self, weights: Weights, eps: float) -> Attention:
        """Adds the norms of query and key heads."""
        norms = {which: weights.tensor(f"{self.name}.{which}_norm.weight", (self.dim,)) for which in "qk"}
        self.norm = lambda which, x: ops.head_rms_norm(x, norms[which], eps)
        return self

    def state(self, context: int, dtype: Any) -> dict[str, Piece]:
        shape = (context, self.kv_heads, self.dim)
        return {f"{self.name}.k": (shape, dtype), f"{self.name}.v": (shape, dtype)}

    def __call__(self, x: Any, step: Step) -> Any:
        q = self.norm("q", apply(self.q, x).reshape(step.tokens, self.heads, self.dim))
        k = self.norm("k", apply(self.k, x).reshape(step.tokens, self.kv_heads, self.dim))
        v = apply(self.v, x).reshape(step.tokens, self.kv_heads, self.dim)
        q, k = (ops.rope(part, step.position, self.inv_freq, 2 * len(self.inv_freq)) for part in (q, k))
        keys, values = step.state[f"{self.name}.k"], step.state[f"{self.name}.v"]
        ops.kv_append(keys, k, step.position)
        ops.kv_append(values, v, step.position)
        y = ops.attention(q, keys, values, self.dim**-0.5, context=step.position + step.tokens)
        return apply(self.out, y.reshape(step.tokens, self.heads * self.dim))


class Mlp:
    """``down(silu(gate x) * up x)``, gate and up in one launch where their formats are the same."""

    def __init__(self, weights: Weights, path: str, hidden: int, inner: int) -> None:
        self.gate = weights.linear(f"{path}.gate_proj", (inner, hidden), bias=False)
        self.up = weights.linear(f"{path}.up_proj", (inner, hidden), bias=False)
        self.down = weights.linear(f"{path}.down_proj", (hidden, inner), bias=False)

    def __call__(self, x: Any) -> Any:
        gate, up = self.gate, self.up
        if isinstance(gate, Affine) and isinstance(up, Affine) and gate.weight[3:] == up.weight[3:]:
            return apply(self.down, ops.affine_swiglu(x, gate.weight, up.weight))
        return apply(self.down, ops.swiglu(apply(gate, x), apply(up, x)))


class Layer:
    """``x + attention(norm(x))``, then ``x + mlp(norm(x))``."""

    def __init__(
        self, weights: Weights, path: str, hidden: int, eps: float, attention: Attention, mlp: Mlp
    ) -> None:
        self.name, self.eps, self.attention, self.mlp = path, eps, attention, mlp
        self.before = weights.tensor(f"{path}.input_layernorm.weight", (hidden,))
        self.between = weights.tensor(f"{path}.post_attention_layernorm.weight", (hidden,))

    def __call__(self, x: Any, step: Step) -> Any:
        mixed = self.attention(ops.rms_norm(x, self.before, self.eps), step)
        h, x = ops.rms_norm(mixed, self.between, self.eps, x)
        return ops.add(x, self.mlp(h))


class Decoder:
    """Embedding, layers, norm and output layer. Architectures make the layers."""

    def __init__(self, weights: Weights, hidden: int, vocab: int, eps: float) -> None:
        self.vocab, self.eps = vocab, eps
        self.embedding = weights.linear("model.embed_tokens", (vocab, hidden))
        self.norm = weights.tensor("model.norm.weight", (hidden,))
        self.head = weights.linear("lm_head", (vocab, hidden), bias=False)
        self.layers: list[Layer] = []

    def state(self, context: int, dtype: Any) -> dict[str, Piece]:
        """Every piece of a conversation's state for so many tokens."""
        pieces: dict[str, Piece] = {}
        for layer in self.layers:
            pieces.update(layer.attention.state(context, dtype))
        return pieces

    def norms(self) -> Iterator[Array]:
        """The weights of all norms of the residual stream."""
        for layer in self.layers:
            yield layer.before
            yield layer.between
        yield self.norm

    def logits(self, x: Any) -> Any:
        return apply(self.head, ops.rms_norm(x, self.norm, self.eps))
