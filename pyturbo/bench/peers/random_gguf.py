"""Write the weights of random_moe.py for llama.cpp: a GGUF file of its architecture qwen35moe.

Groups of 64 four-bit values become two blocks of Q4_1 with the same scale and offset, so that both files hold
the same numbers. Needs the package gguf.
"""

from __future__ import annotations

import importlib
import math
import re
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

BLOCK, BLOCK_BYTES = 32, 20  # values of a block of Q4_1, and its bytes
_PREFIX = "language_model."

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


def write(path: Path, shape: Shape, arrays: dict[str, Array]) -> None:
    gguf = importlib.import_module("gguf")
    writer = gguf.GGUFWriter(path, "qwen35moe")
    writer.add_vocab_size(shape.vocab)
    writer.add_tokenizer_model("no_vocab")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e7)
    writer.add_rope_dimension_count(int(shape.head_dim * ROPE_PART))
    writer.add_rope_dimension_sections([*ROPE_SECTIONS, 0])
    writer.add_full_attention_interval(INTERVAL)
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_state_size(shape.delta_dim)
    writer.add_ssm_group_count(shape.key_heads)
    writer.add_ssm_time_step_rank(shape.value_heads)
    writer.add_ssm_inner_size(shape.values)
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.chosen)
    writer.add_expert_feed_forward_length(shape.expert_inner)
    writer.add_expert_shared_feed_forward_length(shape.shared_inner)
    names = [name for name in arrays if not name.endswith((".scales", ".biases"))]
    for name in names:
        path_of, _, kind = name.removeprefix(_PREFIX).rpartition(".")
        extents, dtype = _outline(shape, arrays[name], name)
        raw = gguf.GGMLQuantizationType.Q4_1 if dtype == np.uint8 else None
        nbytes = math.prod(extents) * dtype.itemsize
        writer.add_tensor_info(_name(path_of, kind), extents, dtype, nbytes, raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name in names:
        writer.write_tensor_data(_converted(shape, arrays, name))
    writer.close()


def _name(path: str, kind: str) -> str:
    """Return a tensor's name in GGUF; `kind` is the last part of its name: weight, A_log or dt_bias."""
    layer = re.match(r"model\.layers\.(\d+)\.(.*)", path)
    block, path = (f"blk.{layer[1]}.", layer[2]) if layer else ("", path)
    if kind == "A_log":
        return block + "ssm_a"
    if kind == "dt_bias":
        return block + "ssm_dt.bias"
    return f"{block}{_NAMES[path]}.weight"


def _outline(shape: Shape, array: Array, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of what `_converted` returns."""
    *rows, width = array.shape
    if _is_gate(name):
        extents: tuple[int, ...] = (*rows, shape.hidden)
    elif array.dtype == np.uint32:
        return (*rows, width * 8 // BLOCK * BLOCK_BYTES), np.dtype(np.uint8)
    else:
        extents = array.shape
    return tuple(extent for extent in extents if extent > 1), np.dtype(np.float32)


def _is_gate(name: str) -> bool:
    """Return whether a matrix has 8 bits: that of a router, or of the gate of shared experts."""
    return ".mlp." in name and name.endswith("gate.weight")


def _converted(shape: Shape, arrays: dict[str, Array], name: str) -> Array:
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
