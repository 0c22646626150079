"""Mixtral: the attention of Llama, and routed experts in every layer."""

from __future__ import annotations

from typing import Any

from pyturbo import ops
from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.file_layout import FileLayout, Stored
from pyturbo.layers.attention import Attention
from pyturbo.layers.config import FULL, SLIDING
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.fused import Joined
from pyturbo.layers.moe import Experts, read_choices
from pyturbo.layers.stream import Norm, Stream, add_experts
from pyturbo.layers.windows import layer_windows

#: The published names of the projections of an expert.
LAYOUT = FileLayout(
    experts={
        "gate_proj": (Stored("{}.w1"),),
        "up_proj": (Stored("{}.w3"),),
        "down_proj": (Stored("{}.w2"),),
    }
)

#: Names in GGUF files, whose architecture is called llama.
GGUF_NAMES = {
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.switch_mlp.gate_proj",
    "ffn_up_exps": "block_sparse_moe.switch_mlp.up_proj",
    "ffn_down_exps": "block_sparse_moe.switch_mlp.down_proj",
}


class SparseMoe:
    """Experts weighted by their probabilities, which are scaled to a sum of 1 for each token."""

    def __init__(self, entries: Entries, weights: Weights, path: str) -> None:
        hidden, inner = entries.count("hidden_size"), entries.count("intermediate_size")
        count, self.k = read_choices(entries, "num_local_experts")
        self.router = weights.linear(f"{path}.gate", (count, hidden), bias=False)
        self.inputs = Joined(self.router)
        self.experts = Experts(weights, f"{path}.switch_mlp", count, hidden, inner)

    def route(self, logits: Any) -> tuple[Any, Any]:
        return ops.route(logits, self.k, normalize=True)

    def __call__(self, stream: Stream, norm: Norm) -> Stream:
        x, residual, (logits,) = self.inputs.norm_project(stream, norm)
        ids, probabilities = self.route(logits)
        self.experts.request(ids, residual)
        return add_experts(residual, self.experts(x, ids), probabilities)


def build(entries: Entries, weights: Weights) -> Decoder:
    if "rope_theta" not in entries and "rope_theta" not in entries.group("rope_parameters"):
        raise entries.wrong("rope_theta", "a base")  # this architecture has another default than most
    kind = SLIDING if "sliding_window" in entries else FULL
    windows = layer_windows(entries, [kind] * entries.count("num_hidden_layers"))
    return Decoder(
        entries,
        weights,
        mixer=lambda i, path: Attention(entries, weights, f"{path}.self_attn", window=windows[i]),
        mlp=lambda i, path: SparseMoe(entries, weights, f"{path}.block_sparse_moe"),
    )
