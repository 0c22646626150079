"""Qwen3: Llama with a norm of every query and key head."""

from __future__ import annotations

from pyturbo.checkpoint import Checkpoint
from pyturbo.models import llama
from pyturbo.models._decoder import Decoder


def build(checkpoint: Checkpoint) -> Decoder:
    return llama.build(checkpoint, head_norms=True)
