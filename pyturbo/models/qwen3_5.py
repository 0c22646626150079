"""Qwen3.5, dense: delta nets and gated attention, each followed by an MLP."""

from __future__ import annotations

import re

from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.file_layout import FileLayout, Gguf
from pyturbo.layers.decoder import Decoder, Mlp
from pyturbo.layers.hybrid import mixers

#: All norms except those inside delta nets.
OFFSET_NORMS = re.compile(
    r"model\.norm\.weight"
    r"|model\.layers\.\d+\.(input_layernorm|post_attention_layernorm|self_attn\.[qk]_norm)\.weight"
)

#: Names in delta nets of GGUF files.
GGUF_NAMES = {
    "attn_qkv": "linear_attn.in_proj_qkv",
    "post_attention_norm": "post_attention_layernorm",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_a": "linear_attn.A",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
}

#: The model is published with a vision tower, so mlx-lm adds a prefix to names.
LAYOUT = FileLayout(
    offset_norms=OFFSET_NORMS, prefix="language_model.", exact=(".A_log",), gguf=Gguf(names=GGUF_NAMES)
)


def build(entries: Entries, weights: Weights) -> Decoder:
    hidden, inner = entries.count("hidden_size"), entries.count("intermediate_size")
    return Decoder(
        entries,
        weights,
        mixer=mixers(entries, weights),
        mlp=lambda i, path: Mlp(weights, f"{path}.mlp", hidden, inner),
    )
