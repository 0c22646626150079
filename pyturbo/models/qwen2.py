"""Qwen2: Llama with a bias on query, key and value, which the checkpoint holds."""

from __future__ import annotations

from pyturbo.checkpoint.file_layout import FileLayout, Gguf
from pyturbo.models.llama import build

__all__ = ["LAYOUT", "build"]

LAYOUT = FileLayout(gguf=Gguf())
