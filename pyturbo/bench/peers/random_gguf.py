"""Write the weights of random_moe.py for llama.cpp: a GGUF file of its architecture qwen35moe.

Groups of 64 four-bit values become two blocks of Q4_1 with the same scale and offset, so that both files hold
the same numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyturbo.bench.peers.random_moe import (
    GROUP_SIZE,
    INTERVAL,
    KERNEL,
    ROPE_PART,
    ROPE_SECTIONS,
    Array,
    Shape,
)
from pyturbo.checkpoint.gguf_writer import GgufTensor, write_gguf

BLOCK, BLOCK_BYTES = 32, 20  # values of a block of Q4_1, and its bytes
_PREFIX = "language_model."
_ARCHITECTURE = "qwen35moe"

_NAMES = {
    "model.embed_tokens": "token_embd",
    "lm_head": "output",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
for _part in ("gate", "up", "down"):
    _NAMES[f"mlp.switch_mlp.{_part}_proj"] = f"ffn_{_part}_exps"
    _NAMES[f"mlp.shared_expert.{_part}_proj"] = f"ffn_{_part}_shexp"


def write(path: Path, shape: Shape, arrays: Mapping[str, Array]) -> None:
    tensors = []
    for name in arrays:
        if not name.endswith((".scales", ".biases")):
            place, _, kind = name.removeprefix(_PREFIX).rpartition(".")
            blocks, extents = _outline(shape, arrays[name], name)
            data = _Converted(shape, arrays, name)
            tensors.append(GgufTensor(_name(place, kind), "Q4_1" if blocks else "F32", extents, data))
    write_gguf(path, _metadata(shape), tensors)


def _metadata(shape: Shape) -> dict[str, Any]:
    entries = {
        "vocab_size": shape.vocab,
        "context_length": shape.context,
        "embedding_length": shape.hidden,
        "block_count": shape.layers,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e7,
        "rope.dimension_count": int(shape.head_dim * ROPE_PART),
        "rope.dimension_sections": [*ROPE_SECTIONS, 0],
        "full_attention_interval": INTERVAL,
        "ssm.conv_kernel": KERNEL,
        "ssm.state_size": shape.delta_dim,
        "ssm.group_count": shape.key_heads,
        "ssm.time_step_rank": shape.value_heads,
        "ssm.inner_size": shape.values,
        "expert_count": shape.experts,
        "expert_used_count": shape.chosen,
        "expert_feed_forward_length": shape.expert_inner,
        "expert_shared_feed_forward_length": shape.shared_inner,
    }
    own = {f"{_ARCHITECTURE}.{key}": value for key, value in entries.items()}
    return {"general.architecture": _ARCHITECTURE, "tokenizer.ggml.model": "no_vocab", **own}


@dataclass(frozen=True)
class _Converted:
    """The bytes of a tensor, made when they are written."""

    shape: Shape
    arrays: Mapping[str, Array]
    name: str

    def __iter__(self) -> Iterator[Array]:
        yield _converted(self.shape, self.arrays, self.name)


def _name(path: str, kind: str) -> str:
    """Return a tensor's name in GGUF; `kind` is the last part of its name: weight, A_log or dt_bias."""
    layer = re.match(r"model\.layers\.(\d+)\.(.*)", path)
    block, path = (f"blk.{layer[1]}.", layer[2]) if layer else ("", path)
    if kind == "A_log":
        return block + "ssm_a"
    if kind == "dt_bias":
        return block + "ssm_dt.bias"
    return f"{block}{_NAMES[path]}.weight"


def _outline(shape: Shape, array: Array, name: str) -> tuple[bool, tuple[int, ...]]:
    """Return whether `_converted` returns blocks, and the shape of their values."""
    *rows, width = array.shape
    blocks = array.dtype == np.uint32 and not _is_gate(name)
    if blocks:
        return True, (*rows, width * 8)
    extents = (*rows, shape.hidden) if _is_gate(name) else array.shape
    return False, tuple(extent for extent in extents if extent > 1)


def _is_gate(name: str) -> bool:
    """Return whether a matrix has 8 bits: that of a router, or of the gate of shared experts."""
    return ".mlp." in name and name.endswith("gate.weight")


def _converted(shape: Shape, arrays: Mapping[str, Array], name: str) -> Array:
    """Return an array as float32, or as bytes of Q4_1 blocks."""
    array, path = arrays[name], name.removesuffix(".weight")
    if _is_gate(name):
        scales, biases = (arrays[f"{path}.{part}"].astype(np.float32) for part in ("scales", "biases"))
        codes = array.view(np.uint8).reshape(*scales.shape, GROUP_SIZE).astype(np.float32)
        values: Array = codes * scales[..., None] + biases[..., None]
        return values.reshape(-1, shape.hidden).squeeze()
    if array.dtype == np.uint32:
        data = _blocks(array, arrays[path + ".scales"], arrays[path + ".biases"])
    else:
        data = array.astype(np.float32).squeeze()
    if name.endswith("A_log"):
        data = -np.exp(data)
    return _tiled(shape, path.rpartition(".")[2], data) if ".linear_attn." in name else data


def _blocks(packed: Array, scales: Array, biases: Array) -> Array:
    """Convert [..., in / 8] words to [..., in / 32 * 20] bytes: scale, offset, then 16 bytes.

    A byte of MLX holds two neighbours; one of Q4_1 holds two values that lie 16 apart.
    """
    rows, per_row = packed.shape[:-1], packed.shape[-1] * 8 // BLOCK
    codes = packed.view(np.uint8).reshape(-1, BLOCK // 2)
    values = np.stack([codes & 15, codes >> 4], axis=-1).reshape(-1, 2, BLOCK // 2)
    out = np.empty((codes.shape[0], BLOCK_BYTES), np.uint8)
    halves = out[:, :4].view(np.float16)
    for i, part in enumerate((scales, biases)):
        halves[:, i] = part.astype(np.float16).repeat(GROUP_SIZE // BLOCK)
    out[:, 4:] = values[:, 0] | values[:, 1] << 4
    return out.reshape(*rows, per_row * out.shape[1])


def _tiled(shape: Shape, part: str, data: Array) -> Array:
    """Reorder value heads as llama.cpp has them: the first of each key head, then the second of each, ..."""
    order = np.arange(shape.value_heads).reshape(shape.key_heads, -1).T.ravel()
    if part == "norm":
        return data
    if part == "out_proj":
        return data.reshape(shape.hidden, shape.value_heads, -1)[:, order].reshape(shape.hidden, -1)
    first = 2 * shape.keys if part in ("in_proj_qkv", "conv1d") else 0
    heads = data[first:].reshape(shape.value_heads, -1)[order]
    return np.concatenate([data[:first], heads.reshape(data[first:].shape)])
