"""Grouped-query attention over a cache of keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyturbo import ops
from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.layers.config import norm_eps
from pyturbo.layers.fused import Joined
from pyturbo.layers.head_inputs import HeadInputs, HeadNorms
from pyturbo.layers.rope import Rope
from pyturbo.layers.step import KvFormat, KvHeads, Piece, Step, Steps
from pyturbo.recording import fuses


class Attention:
    """Attention with options: norms of query and key heads, an output gate, a sliding window, and sinks.

    `window` is the number of tokens that a query sees (0: all). A sink is an extra logit of a head, which
    takes weight from all keys.
    """

    def __init__(
        self,
        entries: Entries,
        weights: Weights,
        path: str,
        *,
        head_norms: bool = False,
        gated: bool = False,
        window: int = 0,
        sinks: bool = False,
    ) -> None:
        hidden, heads = entries.count("hidden_size"), entries.count("num_attention_heads")
        kv_heads = entries.count("num_key_value_heads", heads)
        dim = entries.count("head_dim", max(1, hidden // heads))
        if heads % kv_heads:
            raise entries.wrong("num_key_value_heads", f"a divisor of {heads}")
        if dim > ops.MAX_HEAD_DIM:
            raise entries.wrong("head_dim", f"at most {ops.MAX_HEAD_DIM}")
        self.name, self.heads, self.dim, self.gated = path, heads, dim, gated
        self.kind = f"attention over {window} tokens" if window else "attention"
        self.rope = Rope.read(entries, dim)
        q = weights.linear(f"{path}.q_proj", ((2 if gated else 1) * heads * dim, hidden))
        k = weights.linear(f"{path}.k_proj", (kv_heads * dim, hidden))
        v = weights.linear(f"{path}.v_proj", (kv_heads * dim, hidden))
        self.inputs = Joined(q, k, v)
        self.out = Joined(weights.linear(f"{path}.o_proj", (hidden, heads * dim)))
        biased = k.bias is not None or v.bias is not None
        self.kv_heads = KvHeads(path, kv_heads, dim, biased, window)
        self.sinks = None
        if sinks:
            self.sinks = weights.tensor(f"{path}.sinks", (heads,)).astype(np.float32)
        self.norms = None
        if head_norms:
            q_norm, k_norm = (weights.tensor(f"{path}.{which}_norm.weight", (dim,)) for which in "qk")
            self.norms = HeadNorms(q_norm, k_norm, norm_eps(entries))

    def state(self, context: int, chunk: int, kv: KvFormat) -> dict[str, Piece]:
        return kv.state(self.kv_heads, context, chunk)

    def __call__(self, x: Any, step: Step | Steps) -> Any:
        q, k, v = self.inputs.project(x)
        joined, gate = step.single and fuses(), None
        if self.gated and not joined:
            q, gate = ops.split_q_gate(q, self.heads)
        gated = self.gated and joined
        q = q.reshape(step.tokens, self.heads, (2 if gated else 1) * self.dim)
        k, v = (part.reshape(step.tokens, self.kv_heads.count, self.dim) for part in (k, v))
        if self.norms is not None and not joined:
            q, k = self.norms(q, k)

        def attend(one: Step, q: Any, k: Any, v: Any) -> Any:
            norms = self.norms if joined else None
            inputs = HeadInputs(q, k, v, one.position, self.rope, norms, joined, gated)
            return one.kv.attend(self.kv_heads, one, inputs, self.dim**-0.5, self.sinks)

        y = step.each(attend, q, k, v)
        if gate is not None:
            y = ops.sigmoid_gate(y, gate)
        (mixed,) = self.out.project(y.reshape(step.tokens, self.heads * self.dim))
        return mixed
