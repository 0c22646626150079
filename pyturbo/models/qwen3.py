"""Qwen3: Llama with a norm of every query and key head."""

from __future__ import annotations

from pyturbo.checkpoint import Weights
from pyturbo.models import llama
from pyturbo.models._config import Entries
from pyturbo.models._decoder import Decoder


def build(entries: Entries, weights: Weights) -> Decoder:
    return llama.build(entries, weights, head_norms=True)
