"""Names of GGUF files in several parts, of their tensors, and of architectures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

#: Model types of transformers, by the names that llama.cpp has for architectures.
MODEL_TYPES = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "qwen3next": "qwen3_next",
    "qwen35": "qwen3_5",
    "qwen35moe": "qwen3_5_moe",
    "deepseek2": "deepseek_v3",
    "gpt-oss": "gpt_oss",
}

#: The divisors of rotary frequencies, which are part of the configuration.
ROPE_FACTORS = "rope_freqs.weight"

_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER = re.compile(r"blk\.(\d{1,6})\.(.+)")
_MODEL_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_SUFFIXES = ("weight", "bias")
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def model_name(raw: str, more: Mapping[str, str], drafts: range) -> str | None:
    """Return the MLX name of a tensor; None for those of the layers `drafts`, and of RoPE.

    The former predict further tokens. `more` has names in a layer in addition to the common ones: of modules,
    or of tensors with their suffix. A name that is not known stays as it is.
    """
    if raw == ROPE_FACTORS:
        return None
    match = _LAYER.fullmatch(raw)
    if match is None:
        module, _, suffix = raw.rpartition(".")
        known = module in _TOP_NAMES and suffix in _SUFFIXES
        return f"{_TOP_NAMES[module]}.{suffix}" if known else raw
    layer, name = int(match[1]), match[2]
    if layer in drafts:
        return None
    if name in more:
        return f"model.layers.{layer}.{more[name]}"
    module, _, suffix = name.rpartition(".")
    place = more.get(module, _LAYER_NAMES.get(module))
    return raw if place is None or suffix not in _SUFFIXES else f"model.layers.{layer}.{place}.{suffix}"


def file_name(name: str, more: Mapping[str, str]) -> str:
    """Return the name in a file of a tensor by its MLX name, as `model_name` has it the other way round."""
    module, _, suffix = name.rpartition(".")
    match = _MODEL_LAYER.fullmatch(name)
    if match is None:
        found = (raw for raw, place in _TOP_NAMES.items() if place == module)
        return next((f"{raw}.{suffix}" for raw in found), name)
    for raw, place in [*more.items(), *_LAYER_NAMES.items()]:
        if match[2] == place:
            return f"blk.{match[1]}.{raw}"
        if match[2] == f"{place}.{suffix}":
            return f"blk.{match[1]}.{raw}.{suffix}"
    return name


def part_path(path: Path, number: int, count: int) -> Path:
    """Return the path of a part, which counts from 0, of a file in several: model-00001-of-00003.gguf."""
    return path.with_name(f"{path.name.removesuffix('.gguf')}-{number + 1:05}-of-{count:05}.gguf")


def part_of(path: Path) -> tuple[Path, int, int] | None:
    """Return the path without the number of a part, that number, from 0 on, and how many parts there are.

    None if the name is not that of a part.
    """
    match = _PART.fullmatch(path.name)
    if match is None:
        return None
    return path.with_name(f"{match['stem']}.gguf"), int(match["number"]) - 1, int(match["count"])


def all_parts(name: str) -> str:
    """Return a pattern for the names of all parts of a file; `name` itself if it is not that of a part."""
    part = part_of(Path(name))
    return name if part is None else str(part_path(part[0], 0, part[2])).replace("-00001-of-", "-*-of-")
