"""Qwen2: Llama with biases of query, key and value, seldom of the output, which layers find in the files."""

from __future__ import annotations

from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.file_layout import FileLayout, Gguf
from pyturbo.layers.decoder import Decoder
from pyturbo.models import llama

LAYOUT = FileLayout(gguf=Gguf())


def build(entries: Entries, weights: Weights) -> Decoder:
    return llama.build(entries, weights, head_bias=None)
