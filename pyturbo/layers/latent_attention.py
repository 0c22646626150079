"""Latent attention: the cache keeps one compressed row per position, which all heads share."""

from __future__ import annotations

from typing import Any

from pyturbo import ops
from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.errors import FormatError
from pyturbo.formats import Linear
from pyturbo.layers.fused import Joined
from pyturbo.layers.head_inputs import HeadInputs
from pyturbo.layers.rope import Rope, score_growth
from pyturbo.layers.step import KvFormat, KvLatents, Piece, Step, Steps
from pyturbo.recording import fuses

_EPS = 1e-6  # of the norms in here; the configuration only has that of the other norms


class LatentAttention:
    """Attention to the latents themselves: the projections of keys and values are absorbed."""

    kind = "attention"

    def __init__(self, entries: Entries, weights: Weights, path: str) -> None:
        hidden, self.heads = entries.count("hidden_size"), entries.count("num_attention_heads")
        self.rank, self.v_dim = entries.count("kv_lora_rank"), entries.count("v_head_dim")
        self.nope, self.rope_dim = entries.count("qk_nope_head_dim"), entries.count("qk_rope_head_dim")
        for name, value, most in (
            ("kv_lora_rank", self.rank, ops.MAX_RANK),
            ("qk_rope_head_dim", self.rope_dim, ops.MAX_ROPE),
        ):
            if value % 8 or value > most:
                raise entries.wrong(name, f"a multiple of 8 up to {most}")
        self.name, dim = path, self.nope + self.rope_dim
        self.latents = KvLatents(path, self.rank, self.rope_dim)
        self.scale = dim**-0.5 * score_growth(entries)
        self.rope = Rope.read(entries, self.rope_dim, interleaved=True)
        self.q_norm = None
        if "q_lora_rank" in entries:
            rank = entries.count("q_lora_rank")
            q = weights.linear(f"{path}.q_a_proj", (rank, hidden))
            self.q_norm = weights.tensor(f"{path}.q_a_layernorm.weight", (rank,))
            self.q_high = weights.linear(f"{path}.q_b_proj", (self.heads * dim, rank))
        else:
            q = weights.linear(f"{path}.q_proj", (self.heads * dim, hidden))
        kv = weights.linear(f"{path}.kv_a_proj_with_mqa", (self.rank + self.rope_dim, hidden))
        self.inputs = Joined(kv, q)
        self.kv_norm = weights.tensor(f"{path}.kv_a_layernorm.weight", (self.rank,))
        self.keys, self.values = self._folded(weights)
        for layer in (self.keys, self.values):
            if not layer.foldable:
                raise FormatError(
                    f"{path}: expected projections of latents without global_scale, got {layer}"
                )
        self.out = Joined(weights.linear(f"{path}.o_proj", (hidden, self.heads * self.v_dim)))

    def _folded(self, weights: Weights) -> tuple[Linear, Linear]:
        """Read the projections of keys and values: a matrix per head for each, or one matrix for both."""
        if f"{self.name}.embed_q.weight" in weights:
            if f"{self.name}.kv_b_proj.weight" in weights:
                weights.info(f"{self.name}.kv_b_proj.weight")  # some GGUF files have both forms
            return (
                weights.experts(f"{self.name}.embed_q", (self.heads, self.rank, self.nope)),
                weights.experts(f"{self.name}.unembed_out", (self.heads, self.v_dim, self.rank)),
            )
        shape = (self.heads * (self.nope + self.v_dim), self.rank)
        both = weights.linear(f"{self.name}.kv_b_proj", shape, bias=False)
        return both, both

    def state(self, context: int, chunk: int, kv: KvFormat) -> dict[str, Piece]:
        return kv.latent_state(self.latents, context)

    def __call__(self, x: Any, step: Step | Steps) -> Any:
        kv, q = self.inputs.project(x)
        if self.q_norm is not None:
            q = self.q_high.apply(ops.rms_norm(q, self.q_norm, _EPS))
        q, q_rope, latent, rope_key = ops.mla_split(q, kv, self.heads, self.rope_dim)
        latent = ops.rms_norm(latent, self.kv_norm, _EPS)
        q = self.keys.project_q(q)
        mix = step.each(self._attend, q, q_rope, latent, rope_key)
        y = self.values.project_out(mix, self.v_dim)
        (mixed,) = self.out.project(y.reshape(step.tokens, self.heads * self.v_dim))
        return mixed

    def _attend(self, step: Step, q: Any, q_rope: Any, latent: Any, rope_key: Any) -> Any:
        rope_key = rope_key.reshape(step.tokens, 1, self.rope_dim)
        joined = step.single and fuses()
        inputs = HeadInputs(q_rope, rope_key, None, step.position, self.rope, joined=joined)
        q_rope, rope_key = inputs.rotate()
        rope_key = rope_key.reshape(step.tokens, self.rope_dim)
        return step.kv.attend_latents(self.latents, step, q, q_rope, latent, rope_key, self.scale)
