"""The configuration in the metadata of a GGUF file, under the names that transformers has for its entries."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pyturbo.checkpoint.gguf_fields import Fields
from pyturbo.checkpoint.gguf_names import ROPE_FACTORS
from pyturbo.checkpoint.tensors import Tensors
from pyturbo.errors import FormatError
from pyturbo.ops import MAX_HEAD_DIM

_SIGMOID = 2  # of expert_gating_func


def read_config(fields: Fields, tensors: Tensors, model_type: str) -> dict[str, Any]:
    """Return the entries of a configuration; some depend on which tensors the file has."""
    hidden, heads = fields.integer("{}.embedding_length"), fields.integer("{}.attention.head_count")
    key_heads = fields.integer("{}.attention.head_count_kv", heads)
    if heads % key_heads and model_type != "deepseek_v3":  # latents have no heads
        fields.refuse("{}.attention.head_count_kv", f"a divisor of the {heads} heads", key_heads)
    drafts = fields.integer("{}.nextn_predict_layers", 0, smallest=0)
    layers = fields.integer("{}.block_count")
    if drafts >= layers:
        fields.refuse("{}.nextn_predict_layers", f"fewer than the {layers} layers", drafts)
    config: dict[str, Any] = {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers - drafts,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "rms_norm_eps": fields.number("{}.attention.layer_norm_rms_epsilon"),
        "rope_theta": fields.number("{}.rope.freq_base", 10000.0),
        "max_position_embeddings": fields.integer("{}.context_length"),
        "vocab_size": fields.integer("{}.vocab_size", tensors.info("token_embd.weight").shape[0]),
        "tie_word_embeddings": "output.weight" not in tensors,
    }
    if "{}.feed_forward_length" in fields or "{}.expert_feed_forward_length" not in fields:
        config["intermediate_size"] = fields.integer("{}.feed_forward_length")
    config |= _experts(fields, config)
    config |= _MORE[model_type](fields, tensors, config) if model_type in _MORE else {}
    head_dim = config.get("qk_rope_head_dim") or _head_dim(fields, config)
    rotary = fields.integer("{}.rope.dimension_count", head_dim)
    if rotary > head_dim or rotary % 2:
        fields.refuse("{}.rope.dimension_count", f"an even number up to {head_dim}", rotary)
    if rotary != head_dim:
        config["partial_rotary_factor"] = rotary / head_dim
    scaling = _rope_scaling(fields, tensors, config, rotary // 2)
    _check_tokens(fields, tensors)
    return config if scaling is None else config | {"rope_scaling": scaling}


def _check_tokens(fields: Fields, tensors: Tensors) -> None:
    """Refuse tokens that the embedding has no rows for; rows without tokens are common."""
    rows, tokens = tensors.info("token_embd.weight").shape[0], len(fields.texts("tokenizer.ggml.tokens"))
    if tokens > rows:
        raise FormatError(
            f"{fields.path}: tokenizer.ggml.tokens: "
            f"expected at most {rows}, the rows of 'token_embd.weight', got {tokens}"
        )


def _head_dim(fields: Fields, config: dict[str, Any]) -> int:
    """Return the size of all heads, and note it in the configuration."""
    size = max(1, config["hidden_size"] // config["num_attention_heads"])
    size = fields.integer("{}.attention.key_length", size)
    if size % 2 or size > MAX_HEAD_DIM:
        fields.refuse("{}.attention.key_length", f"an even number up to {MAX_HEAD_DIM}", size)
    if (values := fields.integer("{}.attention.value_length", size)) != size:
        fields.refuse("{}.attention.value_length", f"{size}, as many as keys have", values)
    config["head_dim"] = size
    return size


def _experts(fields: Fields, config: dict[str, Any]) -> dict[str, Any]:
    count = fields.integer("{}.expert_count", 0, smallest=0)
    if not count:
        return {}
    used = fields.integer("{}.expert_used_count")
    # Configurations of transformers use any of these names.
    entries: dict[str, Any] = dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), count)
    entries["num_experts_per_tok"] = used
    inner = config.get("intermediate_size", 0) // used or None
    entries["moe_intermediate_size"] = fields.integer("{}.expert_feed_forward_length", inner)
    if "{}.expert_shared_feed_forward_length" in fields:
        shared = fields.integer("{}.expert_shared_feed_forward_length")
        entries["shared_expert_intermediate_size"] = shared
    return entries


def _llama(fields: Fields, tensors: Tensors, config: dict[str, Any]) -> dict[str, Any]:
    """Return the order of rows of queries and keys, in which the two of a rotary pair are neighbours."""
    return {"rope_interleave": True}


def _normalized(fields: Fields, tensors: Tensors, config: dict[str, Any]) -> dict[str, Any]:
    """Return whether weights of experts have a sum of 1: llama.cpp divides by it, and writes no entry."""
    return {"norm_topk_prob": fields.flag("{}.expert_weights_norm") is not False}


def _delta_nets(fields: Fields, tensors: Tensors, config: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of delta nets, whose heads of keys and of values have one size."""
    size, values = fields.integer("{}.ssm.state_size"), fields.integer("{}.ssm.time_step_rank")
    if fields.integer("{}.ssm.inner_size") != size * values:
        fields.refuse("{}.ssm.inner_size", f"{values} heads of {size}", fields.integer("{}.ssm.inner_size"))
    entries: dict[str, Any] = {
        "linear_num_key_heads": fields.integer("{}.ssm.group_count"),
        "linear_num_value_heads": values,
        "linear_key_head_dim": size,
        "linear_value_head_dim": size,
        "linear_conv_kernel_dim": fields.integer("{}.ssm.conv_kernel"),
        "full_attention_interval": fields.integer("{}.full_attention_interval", 4),
    }
    if (recurrent := fields.each("{}.attention.recurrent_layers")) is not None:
        if len(recurrent) < config["num_hidden_layers"]:
            fields.refuse("{}.attention.recurrent_layers", "a value for each layer", recurrent)
        kinds = ("full_attention", "linear_attention")
        entries["layer_types"] = [kinds[bool(one)] for one in recurrent[: config["num_hidden_layers"]]]
    return entries


def _qwen3_next(fields: Fields, tensors: Tensors, config: dict[str, Any]) -> dict[str, Any]:
    return _delta_nets(fields, tensors, config) | _normalized(fields, tensors, config)


def _qwen3_5(fields: Fields, tensors: Tensors, config: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of delta nets, whose value heads llama.cpp reorders: see `ops.delta_net`."""
    return _delta_nets(fields, tensors, config) | {"linear_value_heads_tiled": True}


def _deepseek_v3(fields: Fields, tensors: Tensors, config: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of latent attention and of experts in groups.

    Files whose keys and values are split by head state the sizes of latents as those of heads, and others
    under names of their own.
    """
    sizes = [
        fields.integer(f"{{}}.attention.{name}_length_mla", fields.integer(f"{{}}.attention.{name}_length"))
        for name in ("key", "value")
    ]
    rotary = fields.integer("{}.rope.dimension_count")
    if sizes[0] <= rotary:
        fields.refuse("{}.rope.dimension_count", f"less than the {sizes[0]} values of a head", rotary)
    entries: dict[str, Any] = {
        "num_key_value_heads": config["num_attention_heads"],
        "kv_lora_rank": fields.integer("{}.attention.kv_lora_rank"),
        "q_lora_rank": fields.integer("{}.attention.q_lora_rank", 0, smallest=0) or None,
        "qk_nope_head_dim": sizes[0] - rotary,
        "qk_rope_head_dim": rotary,
        "v_head_dim": sizes[1],
        "first_k_dense_replace": fields.integer("{}.leading_dense_block_count", 0, smallest=0),
        "n_shared_experts": fields.integer("{}.expert_shared_count", 0, smallest=0),
        "n_group": fields.integer("{}.expert_group_count", 0, smallest=0) or 1,
        "topk_group": fields.integer("{}.expert_group_used_count", 0, smallest=0) or 1,
        "routed_scaling_factor": fields.number("{}.expert_weights_scale", 1.0),
        "norm_topk_prob": bool(fields.flag("{}.expert_weights_norm")),
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
    }
    if (gate := fields.integer("{}.expert_gating_func", 1, smallest=0)) != _SIGMOID:
        fields.refuse("{}.expert_gating_func", f"{_SIGMOID}, scores of sigmoid", gate)
    fields.refuse_set("{}.attention.temperature_scale", "scores that depend on positions")
    entries["score_corrections_optional"] = True
    if not any(name.endswith(".exp_probs_b.bias") for name in tensors):
        entries["topk_method"] = "greedy"
    return entries


def _gpt_oss(fields: Fields, tensors: Tensors, config: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of windows; without a pattern, layers 0, 2, 4, ... have one.

    A pattern is a period, whose last layer has none, or a flag for each layer.
    """
    fields.integer("{}.expert_count")
    entries = {
        "intermediate_size": config["moe_intermediate_size"],
        "sliding_window": fields.integer("{}.attention.sliding_window"),
    }
    key, kinds = "{}.attention.sliding_window_pattern", ("full_attention", "sliding_attention")
    layers = min(config["num_hidden_layers"], len(tensors))  # more are refused later
    if fields.is_list(key):
        sliding = fields.each(key) or []
        if len(sliding) < layers:
            fields.refuse(key, "a value for each layer", sliding)
        entries["layer_types"] = [kinds[bool(one)] for one in sliding[:layers]]
    elif key in fields:
        period = fields.integer(key)
        entries["layer_types"] = [kinds[i % period < period - 1] for i in range(layers)]
    return entries


_MORE: dict[str, Callable[[Fields, Tensors, dict[str, Any]], dict[str, Any]]] = {
    "llama": _llama,
    "qwen3_moe": _normalized,
    "qwen3_next": _qwen3_next,
    "qwen3_5": _qwen3_5,
    "qwen3_5_moe": _qwen3_5,
    "deepseek_v3": _deepseek_v3,
    "gpt_oss": _gpt_oss,
}


def _rope_scaling(
    fields: Fields, tensors: Tensors, config: dict[str, Any], pairs: int
) -> dict[str, Any] | None:
    """Return how positions are scaled. A factor without a type is linear."""
    kind = fields.text("{}.rope.scaling.type", "linear")
    growth = fields.number("{}.rope.scaling.attn_factor", 1.0)
    if growth != 1 and config["model_type"] == "deepseek_v3":
        fields.refuse("{}.rope.scaling.attn_factor", "1 beside latent attention", growth)
    if kind == "yarn":
        if ROPE_FACTORS in tensors:
            fields.refuse("{}.rope.scaling.type", f"none or linear beside {ROPE_FACTORS}", kind)
        return _yarn(fields, config, growth)
    if kind not in ("none", "linear"):
        fields.refuse("{}.rope.scaling.type", "none, linear or yarn", kind)
    factor = 1.0 if kind == "none" else _factor(fields)
    if ROPE_FACTORS in tensors or growth != 1:
        factors = _rope_factors(tensors, pairs) if ROPE_FACTORS in tensors else [1.0] * pairs
        return _divided([factor * one for one in factors], growth, config["max_position_embeddings"])
    return None if factor == 1 else {"rope_type": "linear", "factor": factor}


def _factor(fields: Fields) -> float:
    """Return the divisor of positions; older files have another name for it. 0 is none."""
    names = "{}.rope.scaling.factor", "{}.rope.scale_linear"
    name = next((name for name in names if name in fields and not fields.is_zero(name)), None)
    return 1.0 if name is None else fields.number(name)


def _yarn(fields: Fields, config: dict[str, Any], growth: float) -> dict[str, Any]:
    """Return the entries of YaRN, whose factor of sine and cosine is multiplied by `growth`."""
    factor = _factor(fields)
    scaling: dict[str, Any] = {"rope_type": "yarn", "factor": factor}
    scaling["original_max_position_embeddings"] = fields.integer(
        "{}.rope.scaling.original_context_length", config["max_position_embeddings"]
    )
    if growth != 1:
        scaling["attention_factor"] = growth * (1 + 0.1 * math.log(max(1.0, factor)))
    for name in ("beta_fast", "beta_slow"):
        if f"{{}}.rope.scaling.yarn_{name}" in fields:
            scaling[name] = fields.number(f"{{}}.rope.scaling.yarn_{name}")
    if config["model_type"] == "gpt_oss":
        # As config.json of the model says; files do not state it, and llama.cpp rounds the ends of the ramp.
        scaling["truncate"] = False
    if config["model_type"] == "deepseek_v3" and "{}.rope.scaling.yarn_log_multiplier" in fields:
        scale = fields.number("{}.rope.scaling.yarn_log_multiplier") / 0.1
        scaling |= {"mscale": scale, "mscale_all_dim": scale}
    return scaling


def _rope_factors(tensors: Tensors, pairs: int) -> list[float]:
    """Return the divisor of each frequency."""
    info = tensors.info(ROPE_FACTORS)
    if info.dtype != "F32" or info.shape != (pairs,):
        raise FormatError(
            f"{info}: expected {pairs} numbers in F32, one for each rotary pair, "
            f"got {list(info.shape)} in {info.dtype}"
        )
    factors: list[float] = tensors.read(ROPE_FACTORS).tolist()
    if not all(math.isfinite(factor) and factor > 0 for factor in factors):
        raise FormatError(f"{info}: expected positive numbers")
    return factors


def _divided(factors: list[float], growth: float, context: int) -> dict[str, Any]:
    """Return a divisor for each frequency. In transformers that is "longrope", here for any context."""
    return {
        "rope_type": "longrope",
        "short_factor": factors,
        "long_factor": factors,
        "attention_factor": growth,
        "original_max_position_embeddings": context,
    }
