"""Qwen3.5, dense: delta nets and gated attention, each followed by an MLP."""

from __future__ import annotations

import re

from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.file_layout import FileLayout
from pyturbo.layers.decoder import Decoder, Mlp
from pyturbo.layers.hybrid import mixers

#: All norms except those inside delta nets.
OFFSET_NORMS = re.compile(
    r"model\.norm\.weight"
    r"|model\.layers\.\d+\.(input_layernorm|post_attention_layernorm|self_attn\.[qk]_norm)\.weight"
)

#: The model is published with a vision tower, so mlx-lm adds a prefix to names.
LAYOUT = FileLayout(offset_norms=OFFSET_NORMS, prefix="language_model.", exact=(".A_log",))


def build(entries: Entries, weights: Weights) -> Decoder:
    hidden, inner = entries.count("hidden_size"), entries.count("intermediate_size")
    return Decoder(
        entries,
        weights,
        mixer=mixers(entries, weights),
        mlp=lambda i, path: Mlp(weights, f"{path}.mlp", hidden, inner),
    )
