"""Qwen3.5, dense: delta nets and gated attention, each followed by an MLP."""

from __future__ import annotations

from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.layers.decoder import Decoder, Mlp
from pyturbo.layers.hybrid import mixers


def build(entries: Entries, weights: Weights) -> Decoder:
    hidden, inner = entries.count("hidden_size"), entries.count("intermediate_size")
    return Decoder(
        entries,
        weights,
        mixer=mixers(entries, weights),
        mlp=lambda i, path: Mlp(weights, f"{path}.mlp", hidden, inner),
    )
