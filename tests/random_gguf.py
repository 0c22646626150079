"""GGUF files of dense models with random blocks, in any mixture of types that loads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from checkpoint import files
from reference import gguf as reference

#: The type of a tensor by its name and layer; layer -1: outside of all.
Mixture = Callable[[str, int], str]


@dataclass(frozen=True)
class Sizes:
    hidden: int = 256
    inner: int = 512
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    vocab: int = 300


SMALL = Sizes()


def q4_k_m(name: str, layer: int) -> str:
    """As Q4_K_M files mix: more bits for the head, and in some layers for values and the way down."""
    return "Q6_K" if name == "output" or (name in ("attn_v", "ffn_down") and layer % 2 == 0) else "Q4_K"


def only(kind: str) -> Mixture:
    return lambda name, layer: kind


def write(
    path: Path,
    mixture: Mixture,
    sizes: Sizes = SMALL,
    architecture: str = "llama",
    alignment: int = 32,
    tied: bool = False,
    more: dict[str, Any] | None = None,
) -> Path:
    """Norms are F32, as everywhere. `more` is metadata that goes before the usual."""
    rng = np.random.default_rng(7)
    dim = sizes.hidden // sizes.heads
    matrices = {("token_embd", -1): (sizes.vocab, sizes.hidden)}
    norms = {"output_norm": sizes.hidden}
    for i in range(sizes.layers):
        matrices |= {
            ("attn_q", i): (sizes.hidden, sizes.hidden),
            ("attn_k", i): (sizes.kv_heads * dim, sizes.hidden),
            ("attn_v", i): (sizes.kv_heads * dim, sizes.hidden),
            ("attn_output", i): (sizes.hidden, sizes.hidden),
            ("ffn_gate", i): (sizes.inner, sizes.hidden),
            ("ffn_up", i): (sizes.inner, sizes.hidden),
            ("ffn_down", i): (sizes.hidden, sizes.inner),
        }
        norms |= {f"blk.{i}.attn_norm": sizes.hidden, f"blk.{i}.ffn_norm": sizes.hidden}
        if architecture == "qwen3":
            norms |= {f"blk.{i}.attn_q_norm": dim, f"blk.{i}.attn_k_norm": dim}
    if not tied:
        matrices["output", -1] = (sizes.vocab, sizes.hidden)
    tensors = {f"{name}.weight": ("F32", (size,), np.ones(size, np.float32)) for name, size in norms.items()}
    for (name, layer), shape in matrices.items():
        kind = mixture(name, layer)
        place = f"blk.{layer}.{name}.weight" if layer >= 0 else f"{name}.weight"
        tensors[place] = (kind, shape, _random(rng, kind, shape))
    described = metadata(sizes, architecture) | {"general.alignment": ("u32", alignment)} | (more or {})
    with path.open("wb") as file:
        file.writelines(files.gguf_parts(described, tensors, alignment))
    return path


def metadata(sizes: Sizes, architecture: str = "llama") -> dict[str, Any]:
    return files.llama_metadata(
        architecture,
        **{
            f"{architecture}.block_count": ("u32", sizes.layers),
            f"{architecture}.embedding_length": ("u32", sizes.hidden),
            f"{architecture}.feed_forward_length": ("u32", sizes.inner),
            f"{architecture}.attention.head_count": ("u32", sizes.heads),
            f"{architecture}.attention.head_count_kv": ("u32", sizes.kv_heads),
        },
    )


def _random(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    if kind in ("F32", "F16", "BF16"):
        dtype = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}[kind]
        return ((rng.random(shape, np.float32) - 0.5) / shape[1] ** 0.5).astype(dtype)
    size, values = reference.SIZES[kind]
    return files.blocks(rng, kind, size, (shape[0], shape[1] // values * size))
