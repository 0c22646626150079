"""Qwen2: Llama with biases of query, key and value, which layers find in the checkpoint."""

from __future__ import annotations

from pyturbo.checkpoint.file_layout import FileLayout, Gguf
from pyturbo.models.llama import build

__all__ = ["LAYOUT", "build"]

LAYOUT = FileLayout(gguf=Gguf())
