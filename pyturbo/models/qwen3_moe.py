"""Qwen3-MoE: Qwen3 with routed experts in most layers."""

from __future__ import annotations

from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.file_layout import FileLayout, Gguf
from pyturbo.layers.attention import Attention
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.moe import sparse_or_dense
from pyturbo.layers.windows import upper_windows

_EIGHT_BITS = Format(bits=8, group_size=64, mode="affine")

#: Routers and the gates of shared experts are small, and their choices decide everything after them.
FORMATS = {".mlp.gate": _EIGHT_BITS, ".mlp.shared_expert_gate": _EIGHT_BITS}

#: Names of experts in GGUF files.
GGUF_NAMES = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.switch_mlp.gate_proj",
    "ffn_up_exps": "mlp.switch_mlp.up_proj",
    "ffn_gate_up_exps": "mlp.switch_mlp.gate_up_proj",
    "ffn_down_exps": "mlp.switch_mlp.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}

LAYOUT = FileLayout(formats=FORMATS, gguf=Gguf(names=GGUF_NAMES))


def build(entries: Entries, weights: Weights) -> Decoder:
    normalize = entries.flag("norm_topk_prob", False)
    windows = upper_windows(entries, first=0)
    return Decoder(
        entries,
        weights,
        mixer=lambda i, path: Attention(
            entries, weights, f"{path}.self_attn", head_norms=True, window=windows[i]
        ),
        mlp=lambda i, path: sparse_or_dense(entries, weights, i, path, normalize=normalize),
    )
