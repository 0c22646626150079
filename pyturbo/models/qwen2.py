"""Qwen2: Llama with a bias on query, key and value, which the checkpoint holds."""

from __future__ import annotations

from pyturbo.models.llama import build

__all__ = ["build"]
