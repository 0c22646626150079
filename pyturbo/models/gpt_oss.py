"""gpt-oss: attention with sinks, over a sliding window in every other layer, and experts with biases."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyturbo import ops
from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.file_layout import FileLayout, Gguf, Stored
from pyturbo.layers.attention import Attention
from pyturbo.layers.config import FULL, SLIDING
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.fused import Joined
from pyturbo.layers.moe import Experts, read_choices
from pyturbo.layers.stream import Norm, Stream, add_experts
from pyturbo.layers.windows import layer_windows

#: Rows of gate and up alternate in one tensor; tensors in floating point are [experts, in, out].
LAYOUT = FileLayout(
    experts={
        "gate_proj": (Stored("gate_up_proj", 0, 2, interleaved=True, transposed=True),),
        "up_proj": (Stored("gate_up_proj", 1, 2, interleaved=True, transposed=True),),
        "down_proj": (Stored("down_proj", transposed=True),),
    },
    formats={".mlp.router": Format(bits=8, group_size=64, mode="affine")},
    gguf=Gguf(
        names={
            "attn_sinks.weight": "self_attn.sinks",
            "ffn_gate_inp": "mlp.router",
            "ffn_gate_exps": "mlp.experts.gate_proj",
            "post_attention_norm": "post_attention_layernorm",
            "ffn_up_exps": "mlp.experts.up_proj",
            "ffn_down_exps": "mlp.experts.down_proj",
        }
    ),
)


class ClampedMoe:
    """Experts with biases and a clamped SwiGLU; the softmax is taken over the logits of the chosen ones."""

    def __init__(self, entries: Entries, weights: Weights, path: str) -> None:
        hidden, inner = entries.count("hidden_size"), entries.count("intermediate_size")
        alpha, limit = entries.number("swiglu_alpha", 1.702), entries.number("swiglu_limit", 7.0)
        if limit < 0:
            raise entries.wrong("swiglu_limit", "a number that is not negative")
        count, self.k = read_choices(entries, "num_local_experts")
        self.router = weights.linear(f"{path}.router", (count, hidden), bias=True)
        self.inputs = Joined(self.router)
        activation = partial(ops.swiglu_clamped, alpha=alpha, limit=limit)
        self.experts = Experts(
            weights, f"{path}.experts", count, hidden, inner, bias=True, activation=activation
        )

    def route(self, logits: Any) -> tuple[Any, Any]:
        return ops.route_topk_softmax(logits, self.k)

    def __call__(self, stream: Stream, norm: Norm) -> Stream:
        x, residual, (logits,) = self.inputs.norm_project(stream, norm)
        ids, probabilities = self.route(logits)
        self.experts.request(ids, residual)
        return add_experts(residual, self.experts(x, ids), probabilities)


def build(entries: Entries, weights: Weights) -> Decoder:
    positions = entries.group("rope_parameters", "rope_scaling")
    if "rope_theta" not in entries and "rope_theta" not in positions:
        raise entries.wrong("rope_theta", "a base")  # implementations differ in their default
    layers = entries.count("num_hidden_layers")
    windows = layer_windows(entries, [FULL if i % 2 else SLIDING for i in range(layers)])
    return Decoder(
        entries,
        weights,
        mixer=lambda i, path: Attention(entries, weights, f"{path}.self_attn", window=windows[i], sinks=True),
        mlp=lambda i, path: ClampedMoe(entries, weights, f"{path}.mlp"),
    )
