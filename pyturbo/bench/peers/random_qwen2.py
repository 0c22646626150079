"""A GGUF file of random weights with the shapes and types of tensors of a published qwen2 in Q4_K_M."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyturbo._arrays import Array
from pyturbo.bench.peers.random_blocks import random_rows
from pyturbo.checkpoint.gguf_writer import GgufTensor, write_gguf

_ROWS = 4096  # made at a time
_LONGEST = 12  # bytes of a token


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; by default those of Qwen2.5-1.5B."""

    hidden: int = 1536
    layers: int = 28
    heads: int = 12
    kv_heads: int = 2
    head_dim: int = 128
    inner: int = 8960
    vocab: int = 151936
    merges: int = 151387
    context: int = 32768


SHAPE = Shape()


def write(path: Path, shape: Shape) -> None:
    """Write the file. The output layer is the embedding, which therefore has more bits than most matrices."""
    tensors = [_matrix("token_embd", "Q6_K", (shape.vocab, shape.hidden), 0, 0.3)]
    tensors.append(_vector("output_norm.weight", shape.hidden, mean=1.0))
    for i in range(shape.layers):
        tensors += _layer(shape, i)
    write_gguf(path, _metadata(shape), tensors)


def more_bits(layer: int, layers: int) -> bool:
    """Return whether llama.cpp gives values and the way down Q6_K in a layer: half of them in 28 layers."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def _layer(shape: Shape, i: int) -> list[GgufTensor]:
    upper = "Q6_K" if more_bits(i, shape.layers) else "Q4_K"
    keys, values = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    matrices = {
        "attn_q": ("Q4_K", (keys, shape.hidden)),
        "attn_k": ("Q4_K", (values, shape.hidden)),
        "attn_v": (upper, (values, shape.hidden)),
        "attn_output": ("Q4_K", (shape.hidden, keys)),
        "ffn_gate": ("Q4_K", (shape.inner, shape.hidden)),
        "ffn_up": ("Q4_K", (shape.inner, shape.hidden)),
        "ffn_down": (upper, (shape.hidden, shape.inner)),
    }
    place = f"blk.{i}."
    tensors = [_vector(f"{place}{name}.weight", shape.hidden, mean=1.0) for name in ("attn_norm", "ffn_norm")]
    for number, (name, (kind, sizes)) in enumerate(matrices.items()):
        tensors.append(_matrix(f"{place}{name}", kind, sizes, 1 + 7 * i + number, sizes[1] ** -0.5))
        if name in ("attn_q", "attn_k", "attn_v"):
            tensors.append(_vector(f"{place}{name}.bias", sizes[0], mean=0.0))
    return tensors


def _vector(name: str, size: int, mean: float) -> GgufTensor:
    values = mean + 0.1 * np.random.default_rng(size).standard_normal(size)
    return GgufTensor.of(name, values.astype(np.float32))


@dataclass(frozen=True)
class _Rows:
    """The rows of a matrix, made when they are written."""

    kind: str
    sizes: tuple[int, int]
    seed: int
    spread: float

    def __iter__(self) -> Iterator[Array]:
        rng = np.random.default_rng(self.seed)
        for first in range(0, self.sizes[0], _ROWS):
            count = min(_ROWS, self.sizes[0] - first)
            yield random_rows(rng, self.kind, count, self.sizes[1], self.spread)


def _matrix(name: str, kind: str, sizes: tuple[int, int], seed: int, spread: float) -> GgufTensor:
    return GgufTensor(f"{name}.weight", kind, sizes, _Rows(kind, sizes, seed, spread))


def _metadata(shape: Shape) -> dict[str, Any]:
    tokens, merges = vocabulary(shape.merges)
    tokens += [f"<|{i}|>" for i in range(len(tokens), shape.vocab)]
    types = np.ones(shape.vocab, np.int32)
    types[256 + len(merges) :] = 3  # control tokens
    entries = {
        "context_length": shape.context,
        "embedding_length": shape.hidden,
        "block_count": shape.layers,
        "feed_forward_length": shape.inner,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
    }
    return {
        "general.architecture": "qwen2",
        **{f"qwen2.{key}": value for key, value in entries.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": shape.vocab - 1,
    }


def vocabulary(count: int) -> tuple[list[str], list[str]]:
    """Return byte-level tokens: one for each byte, and `count` that join two others; with their merges."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    tokens = [chr(byte if byte in visible else next(hidden)) for byte in range(256)]
    known = set(tokens)
    merges: list[str] = []
    rng = np.random.default_rng(0)
    while len(merges) < count:
        pairs = rng.integers(0, len(tokens), (count, 2))
        for first, second in pairs.tolist():
            token = tokens[first] + tokens[second]
            if len(merges) < count and len(token) <= _LONGEST and token not in known:
                known.add(token)
                tokens.append(token)
                merges.append(f"{tokens[first]} {tokens[second]}")
    return tokens, merges
