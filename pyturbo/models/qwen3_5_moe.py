"""Qwen3.5 and 3.6 with experts: delta nets and gated attention, each followed by routed experts."""

from __future__ import annotations

from pyturbo.checkpoint import Weights
from pyturbo.models._config import Entries
from pyturbo.models._decoder import Decoder
from pyturbo.models._hybrid import mixers
from pyturbo.models._moe import Moe


def build(entries: Entries, weights: Weights) -> Decoder:
    return Decoder(
        entries,
        weights,
        mixer=mixers(entries, weights),
        mlp=lambda i, path: Moe(entries, weights, f"{path}.mlp", normalize=True),
    )
