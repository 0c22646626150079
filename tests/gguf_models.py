"""GGUF files of tiny models of each architecture, as llama.cpp's converter would write them.

Names, metadata and layouts are those of llama.cpp: heads of delta nets in another order, norms with the 1
that is added, matrices of one row as vectors. tests/oracle/make_gguf_goldens.py has llama.cpp read the files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pyturbo.checkpoint.gguf_writer import GgufTensor, write_gguf
from reference import gguf as reference
from tiny_configs import MODELS, TinyModel
from tiny_models import hf_tensors, mlx_layout

VOCAB = 300

#: Logits of llama.cpp at some positions of the tokens of each model.
GOLDEN = Path(__file__).parent / "goldens" / "gguf_logits.npz"
POSITIONS = (0, 1, 33, 64, 70, 95)

Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class GgufModel:
    """A file: the model, what llama.cpp calls it, and how the file differs from the usual one."""

    name: str
    model: TinyModel
    architecture: str
    #: Changes the tensors of the file.
    change: Callable[[Tensors, dict[str, Any]], Tensors] = lambda tensors, config: tensors
    #: More metadata, or other; None leaves an entry out. "{}" stands for the architecture.
    more: dict[str, Any] | None = None
    #: Whether llama.cpp reads it.
    golden: bool = True
    #: Whether a directory of the same model can be read.
    published: bool = True


def _tiny(name: str, seed: int, **changes: Any) -> TinyModel:
    """A tiny model as GGUF files can hold it; None leaves an entry of its configuration out."""
    model = MODELS[name]
    changes = {"vocab_size": VOCAB, "mlp_only_layers": None, "rms_norm_eps": 1e-6, **changes}
    text = {key: value for key, value in (model.text | changes).items() if changes.get(key, 0) is not None}
    config = model.config | {"text_config": text} if "text_config" in model.config else text
    return replace(model, seed=seed, config=config)


def _fused_kv(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Older files of deepseek2 have one tensor for the projections of keys and values."""
    out = {}
    for name, array in tensors.items():
        if name.endswith("attn_k_b.weight"):
            values = tensors[name.replace("attn_k_b", "attn_v_b")]
            both = np.concatenate([array.swapaxes(1, 2), values], axis=1)
            out[name.replace("attn_k_b", "attn_kv_b")] = both.reshape(-1, both.shape[2])
        elif not name.endswith("attn_v_b.weight"):
            out[name] = array
    return out


def _without(ending: str | tuple[str, ...]) -> Callable[[Tensors, dict[str, Any]], Tensors]:
    return lambda tensors, config: {
        name: array for name, array in tensors.items() if not name.endswith(ending)
    }


def _fused_inputs(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Older files of qwen3next have queries, keys, values and gates in one tensor, by key head."""
    keys, groups = config["linear_key_head_dim"], config["linear_num_key_heads"]
    out = {}
    for name, array in tensors.items():
        if name.endswith("attn_qkv.weight"):
            q, k, v = np.split(array, [keys * groups, 2 * keys * groups])
            z = tensors[name.replace("attn_qkv", "attn_gate")]
            parts = [part.reshape(groups, -1, array.shape[1]) for part in (q, k, v, z)]
            out[name.replace("attn_qkv", "ssm_in")] = np.concatenate(parts, axis=1).reshape(
                -1, array.shape[1]
            )
        elif not name.endswith("attn_gate.weight"):
            out[name] = array
    return out


def _fused_gates(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Gate and up of experts in one tensor, as the option --fuse-gate-up-exps of the converter has them."""
    out = {}
    for name, array in tensors.items():
        if "ffn_gate_exps" in name:
            up = tensors[name.replace("gate", "up")]
            out[name.replace("gate", "gate_up")] = np.concatenate([array, up], axis=1)
        elif "ffn_up_exps" not in name:
            out[name] = array
    return out


def _output_bias(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    return tensors | {"output.bias": np.random.default_rng(5).normal(size=VOCAB).astype(np.float32)}


def _qkv_biases(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Biases that llama.cpp adds wherever a file has them."""
    rng, out = np.random.default_rng(9), dict(tensors)
    for name, array in tensors.items():
        if re.search(r"attn_[qkv]\.weight", name):
            out[name.replace("weight", "bias")] = rng.normal(size=len(array)).astype(np.float32)
    return out


def _fused_qkv(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Queries, keys and values in one tensor, as the option --fuse-qkv of the converter has them."""
    out = {}
    for name, array in tensors.items():
        if ".attn_q." in name:
            parts = [array, *(tensors[name.replace("attn_q", f"attn_{part}")] for part in "kv")]
            out[name.replace("attn_q", "attn_qkv")] = np.concatenate(parts)
        elif ".attn_k." not in name and ".attn_v." not in name:
            out[name] = array
    return out


def _fused_matrices(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Some older files have biases of each."""
    fused = _fused_qkv(tensors, config)
    biases = {name: array for name, array in tensors.items() if re.search(r"attn_[qkv]\.bias", name)}
    return {name: array for name, array in fused.items() if not name.endswith("qkv.bias")} | biases


def _rope_factors(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """A divisor for each frequency, as files of Llama 3 have them."""
    pairs = config["head_dim"] // 2
    return {"rope_freqs.weight": np.linspace(1, 8, pairs, dtype=np.float32)} | tensors


def _drafts(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """One more layer of full attention, which predicts further tokens."""
    like = f"blk.{config['full_attention_interval'] - 1}."
    layer = f"blk.{config['num_hidden_layers']}."
    more = {name.replace(like, layer): array for name, array in tensors.items() if name.startswith(like)}
    hidden = config["hidden_size"]
    for name in ("enorm", "hnorm", "shared_head_norm"):
        more[f"{layer}nextn.{name}.weight"] = np.ones(hidden, np.float32)
    more[f"{layer}nextn.eh_proj.weight"] = np.ones((hidden, 2 * hidden), np.float32)
    return tensors | more


#: Heads of keys and of values have one size in GGUF files.
_HEADS = {"linear_key_head_dim": 64, "linear_value_head_dim": 64}
_YARN = {
    "type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 64,
    "mscale": 0.7,
    "mscale_all_dim": 0.7,
}
#: The ramp ends beyond the pairs on both sides: llama.cpp rounds its ends, the model does not.
_WIDE_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "original_max_position_embeddings": 128,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
}

#: What llama.cpp multiplies sine and cosine by, beside what YaRN does.
_GROWTH = {"{}.rope.scaling.attn_factor": 1.5}
_LONG = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
_FARTHER = {"rope_type": "linear", "factor": 4.0}

_LLAMA = _tiny("llama", 1)
_LLAMA_LONG = _tiny("llama", 1, rope_scaling=_LONG)
_QWEN2_LONG = _tiny("qwen2", 1, rope_scaling=_LONG)
_QWEN3_LONG = _tiny("qwen3", 1, rope_scaling=_LONG)
_DEEPSEEK = _tiny("deepseek_v3", 1, rope_scaling=_YARN)
_DEEPSEEK_PLAIN = _tiny("deepseek_v3_plain", 3, attention_bias=False)
_QWEN3_MOE = _tiny("qwen3_moe", 2, norm_topk_prob=True)
_NEXT = _tiny("qwen3_next", 3, **_HEADS)
_DENSE = _tiny("qwen3_5", 1, **_HEADS)
_MOE = _tiny("qwen3_5_moe", 11, **_HEADS)
_OSS = _tiny("gpt_oss", 8, rope_scaling=_WIDE_YARN, rope_theta=3.0)

GGUF_MODELS = {
    one.name: one
    for one in (
        GgufModel("llama", _LLAMA, "llama"),
        GgufModel("llama_biases", _tiny("llama", 4, attention_bias=True, mlp_bias=True), "llama"),
        GgufModel("llama_tied", _tiny("llama_scaled_rope", 1, rope_scaling=None), "llama"),
        GgufModel("llama_yarn", _LLAMA_LONG, "llama"),
        GgufModel("llama_linear", _tiny("llama", 1, rope_scaling=_FARTHER), "llama"),
        GgufModel("llama_no_factor", _LLAMA, "llama", more={"{}.rope.scaling.factor": 0.0}, golden=False),
        GgufModel("llama_factor", _LLAMA, "llama", more={"{}.rope.scaling.factor": 4.0}, published=False),
        GgufModel("llama_scale", _LLAMA, "llama", more={"{}.rope.scale_linear": 4.0}, published=False),
        GgufModel("llama_growth", _LLAMA, "llama", more=_GROWTH, published=False),
        GgufModel("llama_yarn_growth", _LLAMA_LONG, "llama", more=_GROWTH, published=False),
        GgufModel("llama_freqs", _LLAMA, "llama", change=_rope_factors, published=False),
        GgufModel("llama_freqs_scaled", _LLAMA, "llama", change=_rope_factors, published=False, more={
            "{}.rope.scaling.factor": 2.0,
            "{}.rope.scaling.attn_factor": 0.8,
        }),
        GgufModel("llama_qkv", _LLAMA, "llama", change=_fused_qkv),
        GgufModel("llama_biases_qkv", _tiny("llama", 4, attention_bias=True, mlp_bias=True), "llama",
                  change=_fused_qkv),
        GgufModel("mistral", _LLAMA, "mistral", golden=False),
        GgufModel("mixtral", _tiny("mixtral", 2), "llama"),
        GgufModel("mixtral_biases", _tiny("mixtral", 2), "llama", change=_qkv_biases, published=False),
        GgufModel("mixtral_qkv", _tiny("mixtral", 2), "llama", change=_fused_qkv),
        GgufModel("qwen2", _tiny("qwen2", 1), "qwen2"),
        GgufModel("qwen2_bias", _tiny("qwen2", 1), "qwen2", change=_output_bias, published=False),
        GgufModel("qwen2_bias_untied", _tiny("qwen2", 1, tie_word_embeddings=False), "qwen2",
                  change=_output_bias, published=False),
        GgufModel("qwen2_unbiased", _tiny("qwen2", 1), "qwen2", change=_without(".bias"), published=False),
        GgufModel("qwen2_qkv", _tiny("qwen2", 1), "qwen2", change=_fused_qkv),
        GgufModel("qwen2_qkv_matrices", _tiny("qwen2", 1), "qwen2", change=_fused_matrices, golden=False),
        GgufModel("qwen2_yarn", _QWEN2_LONG, "qwen2"),
        GgufModel("qwen2_linear", _tiny("qwen2", 1, rope_scaling=_FARTHER), "qwen2"),
        GgufModel("qwen2_yarn_growth", _QWEN2_LONG, "qwen2", more=_GROWTH, published=False),
        GgufModel("qwen3", _tiny("qwen3", 1), "qwen3"),
        GgufModel("qwen3_biases", _tiny("qwen3", 1), "qwen3", change=_qkv_biases, published=False),
        GgufModel("qwen3_qkv", _tiny("qwen3", 1), "qwen3", change=_fused_qkv),
        GgufModel("qwen3_yarn", _QWEN3_LONG, "qwen3"),
        GgufModel("qwen3_yarn_growth", _QWEN3_LONG, "qwen3", more=_GROWTH, published=False),
        GgufModel("qwen3_yarn_context", _QWEN3_LONG, "qwen3", published=False, more={
            "{}.rope.scaling.original_context_length": None,
        }),
        GgufModel("qwen3moe", _QWEN3_MOE, "qwen3moe"),
        GgufModel("qwen3moe_biases", _QWEN3_MOE, "qwen3moe", change=_qkv_biases, published=False),
        GgufModel("qwen3moe_qkv", _QWEN3_MOE, "qwen3moe", change=_fused_qkv),
        GgufModel("qwen3moe_none", _QWEN3_MOE, "qwen3moe", published=False,
                  more={"{}.rope.scaling.type": "none", "{}.rope.scaling.factor": 4.0} | _GROWTH),
        GgufModel("qwen3next", _NEXT, "qwen3next"),
        GgufModel("qwen3next_biases", _NEXT, "qwen3next", change=_qkv_biases, published=False),
        GgufModel("qwen3next_qkv", _NEXT, "qwen3next", change=_fused_qkv),
        GgufModel("qwen3next_fused", _NEXT, "qwen3next", change=_fused_inputs),
        GgufModel("qwen35", _DENSE, "qwen35"),
        GgufModel("qwen35_qkv", _DENSE, "qwen35", change=_fused_qkv),
        GgufModel("qwen35_drafts", _DENSE, "qwen35", change=_drafts, more={
            "{}.nextn_predict_layers": 1,
            "{}.block_count": 5,
        }),
        GgufModel("qwen35moe", _MOE, "qwen35moe"),
        GgufModel("qwen35moe_biases", _MOE, "qwen35moe", change=_qkv_biases, published=False),
        GgufModel("qwen35moe_qkv", _MOE, "qwen35moe", change=_fused_qkv),
        GgufModel("qwen35moe_layers", _MOE, "qwen35moe", more={
            "{}.full_attention_interval": None,
            "{}.attention.recurrent_layers": np.array([True, False, True, False]),
        }),
        GgufModel("qwen35moe_gates", _MOE, "qwen35moe", change=_fused_gates),
        GgufModel("deepseek2", _DEEPSEEK, "deepseek2"),
        GgufModel("deepseek2_gates", _DEEPSEEK, "deepseek2", change=_fused_gates),
        GgufModel("deepseek2_fused", _DEEPSEEK, "deepseek2", change=_fused_kv),
        GgufModel("deepseek2_plain", _DEEPSEEK_PLAIN, "deepseek2"),
        GgufModel("deepseek2_unbiased", _DEEPSEEK_PLAIN, "deepseek2",
                  change=_without("exp_probs_b.bias"), published=False),
        GgufModel("deepseek2_defaults", _DEEPSEEK, "deepseek2", published=False, more={
            "{}.expert_weights_norm": None,
            "{}.expert_weights_scale": None,
            "{}.expert_group_count": None,
            "{}.expert_group_used_count": None,
        }),
        GgufModel("deepseek2_some_biases", _DEEPSEEK, "deepseek2", published=False,
                  change=_without("blk.2.exp_probs_b.bias")),
        GgufModel("gpt-oss", _OSS, "gpt-oss"),
        GgufModel("gpt-oss_pattern", _OSS, "gpt-oss", more={
            "{}.attention.sliding_window_pattern": np.array([True, False, True]),
        }),
        GgufModel("gpt-oss_unbiased", _OSS, "gpt-oss", published=False, change=_without(
            ("attn_q.bias", "attn_k.bias", "attn_v.bias")
        )),
        GgufModel("gpt-oss_qkv", _OSS, "gpt-oss", change=_fused_qkv),
        GgufModel("gpt-oss_rope", _tiny("gpt_oss", 8), "gpt-oss", golden=False),
    )
}  # fmt: skip

#: Sizes that are multiples of 256, so that every matrix can be in blocks of any type.
_BLOCKS = {"hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2}
_BLOCK_EXPERTS = _BLOCKS | {"moe_intermediate_size": 256, "shared_expert_intermediate_size": 256}
_BLOCK_NEXT = _tiny(
    "qwen3_next",
    3,
    **_BLOCK_EXPERTS,
    **_HEADS,
    head_dim=64,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
)
_BLOCK_DEEPSEEK = _tiny(
    "deepseek_v3",
    1,
    **_BLOCKS,
    moe_intermediate_size=256,
    intermediate_size=256,
    q_lora_rank=256,
    kv_lora_rank=256,
    qk_nope_head_dim=256,
    v_head_dim=64,
    rope_scaling=_YARN,
)

#: Models whose matrices are all rows of whole blocks.
BLOCK_MODELS = {
    one.name: one
    for one in (
        GgufModel("qwen2", _tiny("qwen2", 1, **_BLOCKS, intermediate_size=512), "qwen2"),
        GgufModel("llama", _tiny("llama", 1, **_BLOCKS, intermediate_size=512, head_dim=64), "llama"),
        GgufModel(
            "llama_qkv",
            _tiny("llama", 1, **_BLOCKS, intermediate_size=512, head_dim=64),
            "llama",
            change=_fused_qkv,
        ),
        GgufModel("qwen3moe", _tiny("qwen3_moe", 2, **_BLOCKS, moe_intermediate_size=256), "qwen3moe"),
        GgufModel("qwen3next", _BLOCK_NEXT, "qwen3next"),
        GgufModel("qwen3next_qkv", _BLOCK_NEXT, "qwen3next", change=_fused_qkv),
        GgufModel("qwen3next_fused", _BLOCK_NEXT, "qwen3next", change=_fused_inputs),
        GgufModel(
            "qwen35moe",
            _tiny("qwen3_5_moe", 11, **_BLOCK_EXPERTS, **_HEADS, linear_num_value_heads=4),
            "qwen35moe",
        ),
        GgufModel("deepseek2", _BLOCK_DEEPSEEK, "deepseek2"),
        GgufModel("deepseek2_fused", _BLOCK_DEEPSEEK, "deepseek2", change=_fused_kv),
        GgufModel("deepseek2_gates", _BLOCK_DEEPSEEK, "deepseek2", change=_fused_gates),
        GgufModel(
            "gpt-oss", _tiny("gpt_oss", 8, **_BLOCKS, intermediate_size=256, layer_types=None), "gpt-oss"
        ),
    )
}

_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.embed_q": "attn_k_b",
    "self_attn.unembed_out": "attn_v_b",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
for _part in ("gate", "up", "down"):
    _NAMES[f"mlp.{_part}_proj"] = f"ffn_{_part}"
    for _experts in ("mlp.switch_mlp", "mlp.experts", "block_sparse_moe.switch_mlp"):
        _NAMES[f"{_experts}.{_part}_proj"] = f"ffn_{_part}_exps"
    for _experts in ("mlp.shared_expert", "mlp.shared_experts"):
        _NAMES[f"{_experts}.{_part}_proj"] = f"ffn_{_part}_shexp"

#: Tensors whose last part is not that of a module.
_WHOLE = {
    "self_attn.sinks": "attn_sinks.weight",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
}

#: Architectures whose norm after attention has a name of its own.
_POST_NORMS = ("qwen3next", "qwen35", "qwen35moe", "gpt-oss")


def gguf_tensors(one: GgufModel) -> Tensors:
    """The tensors of a model by their names in the file."""
    c = one.model.text
    out = {}
    for name, array in mlx_layout(one.model, hf_tensors(one.model)).items():
        name = name.removeprefix("language_model.")
        if name.startswith("vision_tower"):
            continue
        module, _, suffix = name.rpartition(".")
        if module in _TOP:
            out[f"{_TOP[module]}.{suffix}"] = array
            continue
        _, _, layer, place = name.split(".", 3)
        module, _, suffix = place.rpartition(".")
        array = _changed(one.architecture, c, place, array)
        if module.endswith("in_proj_qkvz"):
            rows = _split_rows(c, array)
            out |= {f"blk.{layer}.attn_qkv.weight": rows[0], f"blk.{layer}.attn_gate.weight": rows[1]}
        elif module == "post_attention_layernorm":
            norm = "post_attention_norm" if one.architecture in _POST_NORMS else "ffn_norm"
            out[f"blk.{layer}.{norm}.weight"] = array
        else:
            out[f"blk.{layer}.{_WHOLE.get(place) or f'{_NAMES[module]}.{suffix}'}"] = array
    return {name: np.ascontiguousarray(array) for name, array in one.change(out, c).items()}


def _changed(architecture: str, c: dict[str, Any], place: str, array: np.ndarray) -> np.ndarray:
    module = place.rpartition(".")[0]
    if architecture in ("llama", "mistral") and module in ("self_attn.q_proj", "self_attn.k_proj"):
        heads = c["num_attention_heads" if module.endswith("q_proj") else "num_key_value_heads"]
        return reference.permuted(array, heads)
    if place.endswith(".A_log"):
        array = -np.exp(array.astype(np.float64)).astype(np.float32)  # the same bits everywhere
    elif place.endswith((".conv1d.weight", ".shared_expert_gate.weight")):
        array = array.squeeze()
    if place.startswith("linear_attn.") and architecture in ("qwen35", "qwen35moe"):
        return _tiled(c, place.removeprefix("linear_attn."), array)
    return array


def _tiled(c: dict[str, Any], part: str, array: np.ndarray) -> np.ndarray:
    """Value heads as llama.cpp orders them: the first of each key head, then the second of each, ..."""
    heads = c["linear_num_value_heads"]
    order = np.arange(heads).reshape(c["linear_num_key_heads"], -1).T.ravel()
    if part == "norm.weight":
        return array
    if part == "out_proj.weight":
        return array.reshape(len(array), heads, -1)[:, order].reshape(array.shape)
    first = 0
    if part in ("in_proj_qkv.weight", "conv1d.weight"):
        first = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"]
    values = array[first:].reshape(heads, -1)[order].reshape(array[first:].shape)
    return np.concatenate([array[:first], values])


def _split_rows(c: dict[str, Any], array: np.ndarray) -> list[np.ndarray]:
    """Rows grouped by key head, as queries, keys and values of all heads, and gates."""
    groups, dim = c["linear_num_key_heads"], c["linear_key_head_dim"]
    values = c["linear_num_value_heads"] // groups * c["linear_value_head_dim"]
    rows = array.reshape(groups, -1, array.shape[1])
    q, k, v, z = np.split(rows, np.cumsum([dim, dim, values]), axis=1)
    q, k, v, z = (part.reshape(-1, array.shape[1]) for part in (q, k, v, z))
    return [np.concatenate([q, k, v]), z]


def metadata(one: GgufModel) -> dict[str, Any]:
    c = one.model.text
    entries = {
        "general.architecture": one.architecture,
        "general.name": one.name,
        "{}.block_count": c["num_hidden_layers"],
        "{}.context_length": c["max_position_embeddings"],
        "{}.embedding_length": c["hidden_size"],
        "{}.feed_forward_length": c.get("intermediate_size"),
        "{}.attention.head_count": c["num_attention_heads"],
        "{}.attention.head_count_kv": c["num_key_value_heads"],
        "{}.attention.layer_norm_rms_epsilon": c["rms_norm_eps"],
        "{}.attention.key_length": c.get("head_dim"),
        "{}.attention.value_length": c.get("head_dim"),
        "{}.expert_count": c.get("num_experts", c.get("num_local_experts", c.get("n_routed_experts"))),
        "{}.expert_used_count": c.get("num_experts_per_tok"),
        "{}.expert_feed_forward_length": c.get("moe_intermediate_size"),
        "{}.expert_shared_feed_forward_length": c.get("shared_expert_intermediate_size"),
        "{}.vocab_size": VOCAB,
    }
    entries |= _rope(one.architecture, c)
    if "linear_num_key_heads" in c:
        entries |= _delta_nets(c)
    if "kv_lora_rank" in c:
        entries |= _latent(one, c)
    if one.architecture == "gpt-oss":
        entries["{}.attention.sliding_window"] = c["sliding_window"]
        entries["{}.expert_feed_forward_length"] = c["intermediate_size"]
    entries |= _tokenizer() | (one.more or {})
    return {key.replace("{}", one.architecture): value for key, value in entries.items() if value is not None}


def _rope(architecture: str, c: dict[str, Any]) -> dict[str, Any]:
    given = c.get("rope_parameters", {})
    dim = c.get("qk_rope_head_dim", c.get("head_dim", c["hidden_size"] // c["num_attention_heads"]))
    part = given.get("partial_rotary_factor", c.get("partial_rotary_factor", 1.0))
    entries: dict[str, Any] = {
        "{}.rope.freq_base": float(given.get("rope_theta", c.get("rope_theta"))),
        "{}.rope.dimension_count": int(dim * part),
    }
    if "mrope_section" in given:
        entries["{}.rope.dimension_sections"] = [*given["mrope_section"], 0]
    if scaling := c.get("rope_scaling"):
        entries |= {
            "{}.rope.scaling.type": scaling.get("rope_type", "yarn"),
            "{}.rope.scaling.factor": scaling["factor"],
            "{}.rope.scaling.original_context_length": scaling.get("original_max_position_embeddings"),
        }
        for name in ("beta_fast", "beta_slow"):
            if name in scaling:
                entries[f"{{}}.rope.scaling.yarn_{name}"] = scaling[name]
        if "mscale_all_dim" in scaling:
            entries["{}.rope.scaling.yarn_log_multiplier"] = 0.1 * scaling["mscale_all_dim"]
    return entries


def _delta_nets(c: dict[str, Any]) -> dict[str, Any]:
    return {
        "{}.ssm.conv_kernel": c["linear_conv_kernel_dim"],
        "{}.ssm.state_size": c["linear_key_head_dim"],
        "{}.ssm.group_count": c["linear_num_key_heads"],
        "{}.ssm.time_step_rank": c["linear_num_value_heads"],
        "{}.ssm.inner_size": c["linear_value_head_dim"] * c["linear_num_value_heads"],
        "{}.full_attention_interval": c["full_attention_interval"],
    }


def _latent(one: GgufModel, c: dict[str, Any]) -> dict[str, Any]:
    sizes = c["qk_nope_head_dim"] + c["qk_rope_head_dim"], c["v_head_dim"]
    entries = {
        "{}.attention.q_lora_rank": c.get("q_lora_rank") or 0,
        "{}.attention.kv_lora_rank": c["kv_lora_rank"],
        "{}.leading_dense_block_count": c["first_k_dense_replace"],
        "{}.expert_shared_count": c["n_shared_experts"],
        "{}.expert_weights_scale": c["routed_scaling_factor"],
        "{}.expert_weights_norm": c["norm_topk_prob"],
        "{}.expert_gating_func": 2,
        "{}.expert_group_count": c["n_group"],
        "{}.expert_group_used_count": c["topk_group"],
    }
    if one.change is _fused_kv:
        return entries | {"{}.attention.key_length": sizes[0], "{}.attention.value_length": sizes[1]}
    return entries | {
        "{}.attention.head_count_kv": 1,
        "{}.attention.key_length": c["kv_lora_rank"] + c["qk_rope_head_dim"],
        "{}.attention.value_length": c["kv_lora_rank"],
        "{}.attention.key_length_mla": sizes[0],
        "{}.attention.value_length_mla": sizes[1],
    }


def _tokenizer() -> dict[str, Any]:
    """A byte-level vocabulary with two merges and a token that ends a turn."""
    letters = [chr(code) for code in _byte_letters()]
    tokens = [*letters, "th", "the", "<|im_start|>", "<|im_end|>"]
    tokens += [f"[PAD{i}]" for i in range(len(tokens), VOCAB)]
    types = [1] * 258 + [3, 3] + [5] * (VOCAB - 260)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": ["t h", "th e"],
        "tokenizer.ggml.bos_token_id": 258,
        "tokenizer.ggml.eos_token_id": 259,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": (
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
        ),
    }


def _byte_letters() -> list[int]:
    """The letter of each byte in vocabularies of GPT-2: visible ones stand for themselves."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [byte if byte in visible else next(others) for byte in range(256)]


def write(one: GgufModel, path: Path, parts: Sequence[int] = ()) -> list[Path]:
    """Write a model in floats, in one file or in several."""
    tensors = [GgufTensor.of(name, array) for name, array in gguf_tensors(one).items()]
    return write_gguf(path, metadata(one), tensors, parts=parts)
