"""DeepSeek-V3 and R1, Kimi-K2: latent attention; after some dense layers, experts chosen in groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyturbo import ops
from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.file_layout import FileLayout, Gguf
from pyturbo.layers.decoder import Decoder, FeedForward, Mlp
from pyturbo.layers.fused import Joined
from pyturbo.layers.latent_attention import LatentAttention
from pyturbo.layers.moe import Experts, read_choices
from pyturbo.layers.stream import Norm, Stream, add_experts

#: mlx-lm cannot quantise the router. The bias that corrects its choice stays exact.
LAYOUT = FileLayout(
    formats={".mlp.gate": None},
    exact=(".e_score_correction_bias",),
    gguf=Gguf(
        names={
            "attn_q_a": "self_attn.q_a_proj",
            "attn_q_a_norm": "self_attn.q_a_layernorm",
            "attn_q_b": "self_attn.q_b_proj",
            "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
            "attn_kv_a_norm": "self_attn.kv_a_layernorm",
            "attn_kv_b": "self_attn.kv_b_proj",
            "attn_k_b": "self_attn.embed_q",
            "attn_v_b": "self_attn.unembed_out",
            "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
            "ffn_gate_inp": "mlp.gate",
            "ffn_gate_exps": "mlp.switch_mlp.gate_proj",
            "ffn_up_exps": "mlp.switch_mlp.up_proj",
            "ffn_gate_up_exps": "mlp.switch_mlp.gate_up_proj",
            "ffn_down_exps": "mlp.switch_mlp.down_proj",
            "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
            "ffn_up_shexp": "mlp.shared_experts.up_proj",
            "ffn_down_shexp": "mlp.shared_experts.down_proj",
        }
    ),
)


class GroupedMoe:
    """Experts chosen by sigmoid scores in groups, and experts that every token shares."""

    def __init__(self, entries: Entries, weights: Weights, path: str) -> None:
        if entries.text("scoring_func", "sigmoid") != "sigmoid":
            raise entries.wrong("scoring_func", "sigmoid")
        method = entries.text("topk_method", "noaux_tc")
        if method not in ("noaux_tc", "greedy"):
            raise entries.wrong("topk_method", "noaux_tc or greedy")
        hidden, inner = entries.count("hidden_size"), entries.count("moe_intermediate_size")
        count, self.k = read_choices(entries, "n_routed_experts")
        self.groups, self.kept = entries.count("n_group", 1), entries.count("topk_group", 1)
        if method == "greedy" and self.groups > 1:
            raise entries.wrong("n_group", "1 beside choices by scores alone")
        if count % self.groups or self.groups > ops.MAX_GROUPS:
            raise entries.wrong("n_group", f"a divisor of {count} up to {ops.MAX_GROUPS}")
        if not self.k * self.groups <= self.kept * count <= self.groups * count:
            raise entries.wrong("topk_group", f"groups that hold {self.k} experts, at most {self.groups}")
        self.normalize = entries.flag("norm_topk_prob", True)
        self.scale = entries.number("routed_scaling_factor", 1.0)
        self.router = weights.linear(f"{path}.gate", (count, hidden), bias=False)
        self.inputs = Joined(self.router)
        self.bias = np.zeros(count, np.float32)
        correction = f"{path}.gate.e_score_correction_bias"
        optional = entries.flag("score_corrections_optional", False)
        if method == "noaux_tc" and not (optional and correction not in weights):
            self.bias = weights.tensor(correction, (count,)).astype(np.float32)
        self.experts = Experts(weights, f"{path}.switch_mlp", count, hidden, inner)
        self.shared: Mlp | None = None
        if shared := entries.count_or_none("n_shared_experts", 0):
            self.shared = Mlp(weights, f"{path}.shared_experts", hidden, shared * inner)

    def route(self, logits: Any) -> tuple[Any, Any]:
        return ops.route_grouped(
            logits, self.bias, self.k, self.groups, self.kept, self.scale, self.normalize
        )

    def __call__(self, stream: Stream, norm: Norm) -> Stream:
        x, residual, (logits,) = self.inputs.norm_project(stream, norm)
        inner = common = None
        if self.shared is not None:
            inner = self.shared.inner(x)
        ids, weights = self.route(logits)
        self.experts.request(ids, residual)
        if self.shared is not None:
            common = self.shared.down.apply(inner)
        return add_experts(residual, self.experts(x, ids), weights, common)


def build(entries: Entries, weights: Weights) -> Decoder:
    dense, every = entries.count_or_none("first_k_dense_replace"), entries.count("moe_layer_freq", 1)

    def mlp(i: int, path: str) -> FeedForward:
        if i >= dense and i % every == 0:
            return GroupedMoe(entries, weights, f"{path}.mlp")
        return Mlp(weights, f"{path}.mlp", entries.count("hidden_size"), entries.count("intermediate_size"))

    return Decoder(
        entries,
        weights,
        mixer=lambda i, path: LatentAttention(entries, weights, f"{path}.self_attn"),
        mlp=mlp,
    )
