"""Qwen3.5 and 3.6 with experts: delta nets and gated attention, each followed by routed experts."""

from __future__ import annotations

from dataclasses import replace

from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.file_layout import Gguf
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.hybrid import mixers
from pyturbo.layers.moe import Moe
from pyturbo.models import qwen3_5, qwen3_moe

LAYOUT = replace(
    qwen3_5.LAYOUT,
    formats=qwen3_moe.FORMATS,
    gguf=Gguf(names=qwen3_5.GGUF_NAMES | qwen3_moe.GGUF_NAMES),
)


def build(entries: Entries, weights: Weights) -> Decoder:
    return Decoder(
        entries,
        weights,
        mixer=mixers(entries, weights),
        mlp=lambda i, path: Moe(entries, weights, f"{path}.mlp", normalize=True),
    )
