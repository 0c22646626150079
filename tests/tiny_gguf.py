"""A GGUF file of a small model with random weights that runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from checkpoint.files import gguf, llama_metadata

SHAPES = {
    "token_embd.weight": (4, 64),
    "output_norm.weight": (64,),
    "blk.0.attn_norm.weight": (64,),
    "blk.0.ffn_norm.weight": (64,),
    "blk.0.attn_q.weight": (64, 64),
    "blk.0.attn_k.weight": (64, 64),
    "blk.0.attn_v.weight": (64, 64),
    "blk.0.attn_output.weight": (64, 64),
    "blk.0.ffn_gate.weight": (96, 64),
    "blk.0.ffn_up.weight": (96, 64),
    "blk.0.ffn_down.weight": (64, 96),
}


def write_gguf(path: Path) -> Path:
    rng = np.random.default_rng(3)
    tensors = {
        name: ("F32", shape, rng.normal(size=shape).astype(np.float32).tobytes())
        for name, shape in SHAPES.items()
    }
    heads = {f"llama.attention.head_count{kind}": ("u32", 1) for kind in ("", "_kv")}  # of 64 values
    path.write_bytes(gguf(llama_metadata() | heads, tensors))
    return path
