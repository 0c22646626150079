"""Checkpoints of every architecture with random weights and awkward sizes, rebuilt from a seed.

`write_hf` writes the published layout in float32, `write_mlx` the layout of ``mlx_lm.convert -q``. What the
reference implementations make of the same directories is in tests/goldens/models (tests/oracle makes it).

    python tests/tiny_models.py FOLDER     # writes FOLDER/<name>/hf and FOLDER/<name>/mlx of every model
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tiny_configs import MODELS, TinyModel
from write_safetensors import write_shards

Tensors = dict[str, np.ndarray]

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


#: Projections of an expert as Mixtral publishes them, with the names that MLX gives them.
MIXTRAL_NAMES = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


class _Maker:
    """Draws tensors in a fixed order. Normals are drawn in double: a last bit of the C library's log then
    does not survive the rounding to float32."""

    def __init__(self, seed: int, prefix: str) -> None:
        self.rng = np.random.Generator(np.random.PCG64([seed, 1]))
        self.prefix = prefix
        self.tensors: Tensors = {}

    def normal(self, name: str, *shape: int, scale: float, mean: float = 0.0) -> None:
        drawn = (mean + scale * self.rng.standard_normal(shape)).astype(np.float32)
        self.tensors[self.prefix + name] = drawn

    def uniform(self, name: str, size: int, low: float, high: float) -> None:
        self.tensors[self.prefix + name] = self.rng.uniform(low, high, size).astype(np.float32)

    def linear(self, name: str, out_dim: int, in_dim: int, gain: float = 1.0) -> None:
        self.normal(name + ".weight", out_dim, in_dim, scale=gain / in_dim**0.5)


def hf_tensors(model: TinyModel) -> Tensors:
    """Every tensor of the published layout, and a few vision and MTP tensors that a text model ignores."""
    c, nested = model.text, "text_config" in model.config
    make = _Maker(model.seed, "model.language_model." if nested else "model.")
    norm_mean = 0.0 if model.norms_are_offset else 1.0
    hidden, vocab, tied = c["hidden_size"], c["vocab_size"], c["tie_word_embeddings"]
    make.normal("embed_tokens.weight", vocab, hidden, scale=2 / hidden**0.5 if tied else 0.5)
    for i in range(c["num_hidden_layers"]):
        layer = f"layers.{i}."
        make.normal(layer + "input_layernorm.weight", hidden, scale=0.2, mean=norm_mean)
        make.normal(layer + "post_attention_layernorm.weight", hidden, scale=0.2, mean=norm_mean)
        if "kv_lora_rank" in c:
            _latent_attention(make, c, layer + "self_attn.")
        elif (i + 1) % c.get("full_attention_interval", 1):
            _delta_net(make, c, layer + "linear_attn.", fused=not nested)
        else:
            _attention(make, c, layer + "self_attn.", norm_mean)
        if c["model_type"] == "mixtral":
            _named_experts(make, c, layer + "block_sparse_moe.")
        elif "num_local_experts" in c:
            _biased_experts(make, c, layer + "mlp.")
        elif c.get("num_experts") and i not in c.get("mlp_only_layers", ()):
            _experts(make, c, layer + "mlp.", fused=nested)
        elif i >= c.get("first_k_dense_replace", i + 1):
            _grouped_experts(make, c, layer + "mlp.")
        else:
            _mlp(make, layer + "mlp.", hidden, c["intermediate_size"], biased=c.get("mlp_bias", False))
    make.normal("norm.weight", hidden, scale=0.2, mean=norm_mean)
    make.prefix = ""
    if not tied:
        make.linear("lm_head", vocab, hidden, gain=2.0)
    if nested:
        make.linear("model.visual.merger.linear_fc1", 8, 8)
    if model.norms_are_offset:
        make.linear("mtp.fc", hidden, 2 * hidden)
    return make.tensors


def _delta_net(make: _Maker, c: Mapping[str, Any], path: str, *, fused: bool) -> None:
    hidden, heads = c["hidden_size"], c["linear_num_value_heads"]
    keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    values = heads * c["linear_value_head_dim"]
    if fused:
        make.linear(path + "in_proj_qkvz", 2 * keys + 2 * values, hidden)
        make.linear(path + "in_proj_ba", 2 * heads, hidden)
    else:
        make.linear(path + "in_proj_qkv", 2 * keys + values, hidden)
        make.linear(path + "in_proj_z", values, hidden)
        make.linear(path + "in_proj_b", heads, hidden)
        make.linear(path + "in_proj_a", heads, hidden)
    make.normal(path + "conv1d.weight", 2 * keys + values, 1, c["linear_conv_kernel_dim"], scale=0.5)
    # Decay per token between about 0.9999 and 0.01: some heads remember the whole sequence, some nothing.
    make.uniform(path + "A_log", heads, -1.0, 2.7)
    make.uniform(path + "dt_bias", heads, -6.0, -1.0)
    make.normal(path + "norm.weight", c["linear_value_head_dim"], scale=0.2, mean=1.0)
    make.linear(path + "out_proj", hidden, values)


def _attention(make: _Maker, c: Mapping[str, Any], path: str, norm_mean: float) -> None:
    hidden, heads, kv_heads = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    dim = c.get("head_dim", hidden // heads)
    gated = c["model_type"] in ("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next")
    sizes = {"q_proj": (1 + gated) * heads * dim, "k_proj": kv_heads * dim, "v_proj": kv_heads * dim}
    biased = c["model_type"] in ("llama", "gpt_oss") and c["attention_bias"]
    for name, size in sizes.items():
        make.linear(path + name, size, hidden)
        if biased or c["model_type"] == "qwen2":
            make.normal(path + name + ".bias", size, scale=0.5)
    make.linear(path + "o_proj", hidden, heads * dim)
    if biased:
        make.normal(path + "o_proj.bias", hidden, scale=0.5)
    if c["model_type"] == "gpt_oss":
        make.normal(path + "sinks", heads, scale=1.0, mean=1.0)
    if c["model_type"].startswith("qwen3"):
        make.normal(path + "q_norm.weight", dim, scale=0.2, mean=norm_mean)
        make.normal(path + "k_norm.weight", dim, scale=0.2, mean=norm_mean)


def _latent_attention(make: _Maker, c: Mapping[str, Any], path: str) -> None:
    hidden, heads, rank = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"]
    nope, rope, v_dim = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    if c["q_lora_rank"] is None:
        make.linear(path + "q_proj", heads * (nope + rope), hidden)
    else:
        make.linear(path + "q_a_proj", c["q_lora_rank"], hidden)
        make.normal(path + "q_a_layernorm.weight", c["q_lora_rank"], scale=0.2, mean=1.0)
        make.linear(path + "q_b_proj", heads * (nope + rope), c["q_lora_rank"])
    make.linear(path + "kv_a_proj_with_mqa", rank + rope, hidden)
    make.normal(path + "kv_a_layernorm.weight", rank, scale=0.2, mean=1.0)
    make.linear(path + "kv_b_proj", heads * (nope + v_dim), rank)
    make.linear(path + "o_proj", hidden, heads * v_dim)
    if c["attention_bias"]:
        make.normal(path + "kv_a_proj_with_mqa.bias", rank + rope, scale=0.5)
        make.normal(path + "o_proj.bias", hidden, scale=0.5)


def _mlp(make: _Maker, path: str, hidden: int, inner: int, *, biased: bool = False) -> None:
    for name, out, width in (
        ("gate_proj", inner, hidden),
        ("up_proj", inner, hidden),
        ("down_proj", hidden, inner),
    ):
        make.linear(path + name, out, width)
        if biased:
            make.normal(path + name + ".bias", out, scale=0.5)


def _experts(make: _Maker, c: Mapping[str, Any], path: str, *, fused: bool) -> None:
    hidden, inner, experts = c["hidden_size"], c["moe_intermediate_size"], c["num_experts"]
    make.linear(path + "gate", experts, hidden, gain=3.0)
    if fused:
        make.normal(path + "experts.gate_up_proj", experts, 2 * inner, hidden, scale=hidden**-0.5)
        make.normal(path + "experts.down_proj", experts, hidden, inner, scale=inner**-0.5)
    else:
        for e in range(experts):
            _mlp(make, f"{path}experts.{e}.", hidden, inner)
    if "shared_expert_intermediate_size" in c:
        _mlp(make, path + "shared_expert.", hidden, c["shared_expert_intermediate_size"])
        make.linear(path + "shared_expert_gate", 1, hidden)


def _named_experts(make: _Maker, c: Mapping[str, Any], path: str) -> None:
    hidden, inner, experts = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    make.linear(path + "gate", experts, hidden, gain=3.0)
    for e in range(experts):
        for name, shape in (("w1", (inner, hidden)), ("w2", (hidden, inner)), ("w3", (inner, hidden))):
            make.linear(f"{path}experts.{e}.{name}", *shape)


def _grouped_experts(make: _Maker, c: Mapping[str, Any], path: str) -> None:
    hidden, inner, experts = c["hidden_size"], c["moe_intermediate_size"], c["n_routed_experts"]
    make.linear(path + "gate", experts, hidden, gain=1.5)
    # Positive: mlx-lm gives the experts of groups that are left out the choice 0, transformers -inf.
    make.uniform(path + "gate.e_score_correction_bias", experts, 0.0, 0.5)
    for e in range(experts):
        _mlp(make, f"{path}experts.{e}.", hidden, inner)
    _mlp(make, path + "shared_experts.", hidden, c["n_shared_experts"] * inner)


def _biased_experts(make: _Maker, c: Mapping[str, Any], path: str) -> None:
    hidden, inner, experts = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    make.linear(path + "router", experts, hidden, gain=3.0)
    make.normal(path + "router.bias", experts, scale=0.5)
    # Wide enough that some values meet the limit.
    make.normal(path + "experts.gate_up_proj", experts, hidden, 2 * inner, scale=3 * hidden**-0.5)
    make.normal(path + "experts.gate_up_proj_bias", experts, 2 * inner, scale=0.5)
    make.normal(path + "experts.down_proj", experts, inner, hidden, scale=0.5 * inner**-0.5)
    make.normal(path + "experts.down_proj_bias", experts, hidden, scale=0.5)


def mlx_tensors(model: TinyModel) -> tuple[Tensors, dict[str, Any]]:
    """The tensors of ``mlx_lm.convert -q``, and the `quantization` entry of its configuration."""
    from pyturbo import ops

    dtype = TYPES[model.dtype]
    tensors: Tensors = {}
    quantization: dict[str, Any] = {"group_size": model.group_size, "bits": model.bits}
    if model.name in ("qwen3_moe", "qwen3") or model.mode != "affine":  # older conversions name no mode
        quantization["mode"] = model.mode
    for name, array in mlx_layout(model, hf_tensors(model)).items():
        path = name.removesuffix(".weight")
        entry = next((e for end, e in model.overrides.items() if path.endswith(end)), None)
        if entry is not None and array.ndim > 1 and not name.endswith(".bias"):
            quantization[path] = entry
        keep_float = (
            array.ndim == 1
            or name.endswith(".bias")
            or "conv1d" in name
            or "vision_tower" in name
            or entry is False
        )
        if keep_float:
            exact = name.endswith("A_log") and "text_config" in model.config
            tensors[name] = array if exact else array.astype(dtype)
            continue
        if model.mode != "affine" and entry is None:
            packed, scales = ops.fp_quantize(array.astype(dtype), model.mode)
            tensors |= {name: packed, path + ".scales": scales}
            continue
        form = {"bits": model.bits, "group_size": model.group_size} | (entry or {})
        packed, scales, biases = ops.affine_quantize(
            array.astype(dtype), bits=form["bits"], group_size=form["group_size"] or 64
        )
        tensors |= {name: packed, path + ".scales": scales, path + ".biases": biases}
    return tensors, quantization


def mlx_layout(model: TinyModel, tensors: Tensors) -> Tensors:
    """Names and shapes of MLX: stacked experts, conv weights [C, 4, 1], offset norms with the 1 added."""
    out: Tensors = {}
    stacks: dict[str, list[np.ndarray]] = {}
    for name, array in tensors.items():
        if name.startswith("mtp."):
            continue
        name = name.replace("model.language_model.", "language_model.model.")
        name = name.replace("model.visual.", "vision_tower.")
        if "text_config" in model.config and name.startswith("lm_head"):
            name = "language_model." + name
        if model.config["model_type"] == "gpt_oss" and ".experts." in name:
            out |= _biased_stacks(name, array)
        elif name.endswith("experts.gate_up_proj"):
            stem = name.replace("experts.gate_up_proj", "switch_mlp.")
            out[stem + "gate_proj.weight"], out[stem + "up_proj.weight"] = np.split(array, 2, axis=1)
        elif name.endswith("experts.down_proj"):
            out[name.replace("experts.", "switch_mlp.") + ".weight"] = array
        elif ".experts." in name:
            path, rest = name.split(".experts.")
            projection, last = rest.split(".")[1:]
            projection = MIXTRAL_NAMES.get(projection, projection)
            stacks.setdefault(f"{path}.switch_mlp.{projection}.{last}", []).append(array)
        elif name.endswith("kv_b_proj.weight"):
            heads = array.reshape(model.text["num_attention_heads"], -1, array.shape[1])
            keys, values = np.split(heads, [model.text["qk_nope_head_dim"]], axis=1)
            out[name.replace("kv_b_proj", "embed_q")] = np.ascontiguousarray(keys.swapaxes(1, 2))
            out[name.replace("kv_b_proj", "unembed_out")] = values
        elif name.endswith("conv1d.weight"):
            out[name] = array.swapaxes(1, 2)
        elif model.norms_are_offset and name.endswith("norm.weight") and "linear_attn" not in name:
            out[name] = array + np.float32(1)
        else:
            out[name] = array
    return out | {name: np.stack(arrays) for name, arrays in stacks.items()}


def _biased_stacks(name: str, array: np.ndarray) -> Tensors:
    """The experts of gpt-oss: [experts, out, in], gate and up apart."""
    path, _, projection = name.removesuffix("_bias").rpartition(".")
    last = "bias" if name.endswith("_bias") else "weight"
    array = array if last == "bias" else array.swapaxes(1, 2)
    if projection == "down_proj":
        return {f"{path}.down_proj.{last}": np.ascontiguousarray(array)}
    return {
        f"{path}.{part}_proj.{last}": np.ascontiguousarray(array[:, i::2])
        for i, part in enumerate(("gate", "up"))
    }


def write_hf(model: TinyModel, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model.config, indent=2))
    write_shards(folder, hf_tensors(model), "pt", model.hf_shards)
    return folder


def write_mlx(model: TinyModel, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tensors, quantization = mlx_tensors(model)
    config = model.config | model.mlx_config
    config |= {"quantization": quantization, "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    write_shards(folder, tensors, "mlx", model.mlx_shards)
    return folder


def checksum(tensors: Tensors) -> int:
    """Tells whether two machines have built the same weights."""
    crc = 0
    for name in sorted(tensors):
        crc = zlib.crc32(np.ascontiguousarray(tensors[name]).view(np.uint8).data, crc)
    return crc


def main() -> None:
    for model in MODELS.values():
        write_hf(model, Path(sys.argv[1]) / model.name / "hf")
        write_mlx(model, Path(sys.argv[1]) / model.name / "mlx")


if __name__ == "__main__":
    main()
