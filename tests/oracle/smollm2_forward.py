"""The forward pass of a llama GGUF file in float64 NumPy, over weights that the gguf package dequantises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


class Llama:
    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        self.fields = {name: field.contents() for name, field in reader.fields.items()}
        self.tensors = {t.name: dequantize(t.data, t.tensor_type) for t in reader.tensors}
        self.heads = int(self.fields["llama.attention.head_count"])
        self.kv_heads = int(self.fields["llama.attention.head_count_kv"])
        self.head_dim = int(self.fields["llama.rope.dimension_count"])
        self.eps = float(self.fields["llama.attention.layer_norm_rms_epsilon"])

    def logits(self, tokens: np.ndarray) -> np.ndarray:
        """[tokens, vocab] float64."""
        x = self.weight("token_embd")[tokens]
        for i in range(int(self.fields["llama.block_count"])):
            x = x + self.attention(self.norm(x, f"blk.{i}.attn_norm"), f"blk.{i}.attn_")
            x = x + self.mlp(self.norm(x, f"blk.{i}.ffn_norm"), f"blk.{i}.ffn_")
        return self.norm(x, "output_norm") @ self.weight("token_embd").T

    def weight(self, name: str) -> np.ndarray:
        return self.tensors[name + ".weight"].astype(np.float64)

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + self.eps) * self.weight(name)

    def mlp(self, x: np.ndarray, path: str) -> np.ndarray:
        gate, up = x @ self.weight(path + "gate").T, x @ self.weight(path + "up").T
        return (gate / (1 + np.exp(-gate)) * up) @ self.weight(path + "down").T

    def attention(self, x: np.ndarray, path: str) -> np.ndarray:
        n = len(x)
        q, k, v = (np.reshape(x @ self.weight(path + name).T, (n, -1, self.head_dim)) for name in "qkv")
        q, k = self.rope(q), self.rope(k)
        k, v = (np.repeat(a, self.heads // self.kv_heads, axis=1) for a in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
        scores += np.triu(np.full((n, n), -np.inf), 1)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", weights, v).reshape(n, -1) @ self.weight(path + "output").T

    def rope(self, x: np.ndarray) -> np.ndarray:
        """Interleaved pairs, as the rows of GGUF's q and k are ordered; the angle is rounded to float32."""
        dim = x.shape[-1]
        base = float(self.fields["llama.rope.freq_base"])
        frequencies = (base ** (-np.arange(0, dim, 2) / dim)).astype(np.float32)
        angles = np.arange(len(x), dtype=np.float32)[:, None, None] * frequencies
        turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles.astype(np.float64))
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
