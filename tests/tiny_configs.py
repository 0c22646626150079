"""The configurations of tests/tiny_models.py: awkward sizes, and every form of checkpoint at least once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

TOKENS = 96

_ATTENTION = {"num_attention_heads": 6, "num_key_value_heads": 2, "attention_bias": False}
_COMMON = {"hidden_act": "silu", "max_position_embeddings": 512, "torch_dtype": "float32"}
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 64}
_GATE_8BIT = {"group_size": 64, "bits": 8}
_GPT_OSS_ROPE = {
    "rope_type": "yarn",
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
}


@dataclass(frozen=True)
class TinyModel:
    """One checkpoint. `dtype`, `bits`, `group_size`, `overrides` and `mode` are of the MLX directory only."""

    name: str
    seed: int
    config: dict[str, Any]
    dtype: str
    bits: int
    group_size: int
    #: Module path, or its ending, to {"bits", "group_size"} or False; spelled out per path in config.json.
    overrides: dict[str, Any] = field(default_factory=dict)
    hf_shards: int = 1
    mlx_shards: int = 1
    mode: str = "affine"
    #: The directories that mlx-lm can read and compute. Where it cannot even its own, transformers is asked.
    mlx_lm: tuple[str, ...] = ("hf", "mlx")
    #: Entries of the configuration that the MLX directory has otherwise.
    mlx_config: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> dict[str, Any]:
        """The part of the configuration that describes the language model."""
        return self.config.get("text_config", self.config)

    @property
    def norms_are_offset(self) -> bool:
        """Whether the published files hold w of the factor 1 + w."""
        return self.config["model_type"] in ("qwen3_5_moe", "qwen3_5", "qwen3_next")

    def tokens(self) -> np.ndarray:
        rng = np.random.Generator(np.random.PCG64(self.seed))
        return rng.integers(0, self.text["vocab_size"], TOKENS)


MODELS = {
    model.name: model
    for model in (
        TinyModel(
            "qwen3_5_moe",
            seed=11,
            config={
                "model_type": "qwen3_5_moe",
                "architectures": ["Qwen3_5MoeForConditionalGeneration"],
                "tie_word_embeddings": False,
                "text_config": _COMMON | _ATTENTION | _EXPERTS | {
                    "model_type": "qwen3_5_moe_text",
                    "hidden_size": 192,
                    "num_hidden_layers": 4,
                    "full_attention_interval": 2,
                    "layer_types": ["linear_attention", "full_attention"] * 2,
                    "head_dim": 64,
                    "attn_output_gate": True,
                    "linear_num_key_heads": 2,
                    "linear_num_value_heads": 6,
                    "linear_key_head_dim": 64,
                    "linear_value_head_dim": 128,
                    "linear_conv_kernel_dim": 4,
                    "shared_expert_intermediate_size": 128,
                    "vocab_size": 203,
                    "tie_word_embeddings": False,
                    "rms_norm_eps": 1e-6,
                    "rope_parameters": {
                        "rope_type": "default",
                        "rope_theta": 20000.0,
                        "partial_rotary_factor": 0.25,
                        "mrope_interleaved": True,
                        "mrope_section": [3, 3, 2],
                    },
                },
            },
            dtype="bfloat16",
            bits=4,
            group_size=64,
            overrides={".mlp.gate": _GATE_8BIT, ".mlp.shared_expert_gate": _GATE_8BIT},
            hf_shards=2,
        ),
        TinyModel(
            "qwen3_5",
            seed=1,
            config={
                "model_type": "qwen3_5",
                "architectures": ["Qwen3_5ForConditionalGeneration"],
                "tie_word_embeddings": True,
                "text_config": _COMMON | _ATTENTION | {
                    "model_type": "qwen3_5_text",
                    "hidden_size": 128,
                    "intermediate_size": 320,
                    "num_hidden_layers": 4,
                    "full_attention_interval": 3,
                    "head_dim": 80,
                    "attn_output_gate": True,
                    "linear_num_key_heads": 2,
                    "linear_num_value_heads": 4,
                    "linear_key_head_dim": 128,
                    "linear_value_head_dim": 64,
                    "linear_conv_kernel_dim": 4,
                    "vocab_size": 197,
                    "tie_word_embeddings": True,
                    "rms_norm_eps": 1e-6,
                    "rope_parameters": {
                        "rope_type": "default",
                        "rope_theta": 1000000.0,
                        "partial_rotary_factor": 0.5,
                        "mrope_interleaved": True,
                        "mrope_section": [7, 7, 6],
                    },
                },
            },
            dtype="float16",
            bits=4,
            group_size=32,
            mlx_shards=3,
        ),
        TinyModel(
            "qwen3_next",
            seed=3,
            config=_COMMON | _ATTENTION | _EXPERTS | {
                "model_type": "qwen3_next",
                "architectures": ["Qwen3NextForCausalLM"],
                "hidden_size": 192,
                "intermediate_size": 256,
                "num_hidden_layers": 4,
                "full_attention_interval": 2,
                "head_dim": 96,
                "linear_num_key_heads": 3,
                "linear_num_value_heads": 6,
                "linear_key_head_dim": 64,
                "linear_value_head_dim": 128,
                "linear_conv_kernel_dim": 4,
                "shared_expert_intermediate_size": 64,
                "norm_topk_prob": True,
                "decoder_sparse_step": 1,
                "mlp_only_layers": [2],
                "vocab_size": 211,
                "tie_word_embeddings": False,
                "rms_norm_eps": 1e-6,
                "rope_theta": 10000.0,
                "rope_scaling": None,
                "partial_rotary_factor": 0.25,
            },
            dtype="bfloat16",
            bits=4,
            group_size=64,
            overrides={".mlp.gate": _GATE_8BIT, ".mlp.shared_expert_gate": _GATE_8BIT},
        ),
        TinyModel(
            "qwen3_moe",
            seed=2,
            config=_COMMON | _ATTENTION | _EXPERTS | {
                "model_type": "qwen3_moe",
                "architectures": ["Qwen3MoeForCausalLM"],
                "hidden_size": 192,
                "intermediate_size": 320,
                "num_hidden_layers": 3,
                "head_dim": 64,
                "norm_topk_prob": False,
                "decoder_sparse_step": 1,
                "mlp_only_layers": [1],
                "vocab_size": 223,
                "tie_word_embeddings": False,
                "rms_norm_eps": 1e-3,
                "rope_theta": 1000000.0,
                "rope_scaling": None,
            },
            dtype="float16",
            bits=4,
            group_size=64,
            overrides={".mlp.gate": _GATE_8BIT, "lm_head": {"group_size": 32, "bits": 6}},
            hf_shards=3,
            mlx_shards=2,
        ),
        TinyModel(
            "qwen3",
            seed=1,
            config=_COMMON | _ATTENTION | {
                "model_type": "qwen3",
                "architectures": ["Qwen3ForCausalLM"],
                "hidden_size": 192,
                "intermediate_size": 448,
                "num_hidden_layers": 3,
                "head_dim": 96,
                "vocab_size": 199,
                "tie_word_embeddings": True,
                "rms_norm_eps": 1e-3,
                "rope_theta": 1000000.0,
                "rope_scaling": None,
            },
            dtype="bfloat16",
            bits=4,
            group_size=64,
            overrides={
                ".down_proj": {"group_size": None, "bits": 6},
                ".v_proj": {"group_size": None, "bits": 3},
            },
        ),
        TinyModel(
            "qwen2",
            seed=1,
            config=_COMMON | _ATTENTION | {
                "model_type": "qwen2",
                "architectures": ["Qwen2ForCausalLM"],
                "hidden_size": 384,
                "intermediate_size": 256,
                "num_hidden_layers": 3,
                "use_sliding_window": False,
                "vocab_size": 193,
                "tie_word_embeddings": True,
                "rms_norm_eps": 1e-3,
                "rope_theta": 10000.0,
            },
            dtype="float16",
            bits=4,
            group_size=128,
        ),
        TinyModel(
            "qwen2_windows",
            seed=1,
            config=_COMMON | _ATTENTION | {
                "model_type": "qwen2",
                "architectures": ["Qwen2ForCausalLM"],
                "hidden_size": 192,
                "intermediate_size": 256,
                "num_hidden_layers": 4,
                "head_dim": 64,
                "use_sliding_window": True,
                "sliding_window": 21,
                "max_window_layers": 3,
                "layer_types": [
                    "sliding_attention",
                    "full_attention",
                    "sliding_attention",
                    "sliding_attention",
                ],
                "vocab_size": 187,
                "tie_word_embeddings": True,
                "rms_norm_eps": 1e-3,
                "rope_theta": 10000.0,
            },
            dtype="bfloat16",
            bits=4,
            group_size=64,
            mlx_lm=(),
        ),
        TinyModel(
            "llama",
            seed=1,
            config=_COMMON | _ATTENTION | {
                "model_type": "llama",
                "architectures": ["LlamaForCausalLM"],
                "hidden_size": 192,
                "intermediate_size": 320,
                "num_hidden_layers": 3,
                "head_dim": 80,
                "mlp_bias": False,
                "vocab_size": 229,
                "tie_word_embeddings": False,
                "rms_norm_eps": 1e-3,
                "rope_theta": 100000.0,
                "rope_scaling": None,
            },
            dtype="float32",
            bits=4,
            group_size=32,
            overrides={"lm_head": False, "embed_tokens": {"group_size": 64, "bits": 8}},
        ),
        TinyModel(
            "llama_scaled_rope",
            seed=1,
            config=_COMMON | _ATTENTION | {
                "model_type": "llama",
                "architectures": ["LlamaForCausalLM"],
                "hidden_size": 384,
                "intermediate_size": 192,
                "num_hidden_layers": 3,
                "mlp_bias": False,
                "vocab_size": 191,
                "tie_word_embeddings": True,
                "rms_norm_eps": 1e-3,
                "rope_theta": 500000.0,
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64,
                },
            },
            dtype="bfloat16",
            bits=4,
            group_size=64,
        ),
        TinyModel(
            "deepseek_v3",
            seed=1,
            config=_COMMON | {
                "model_type": "deepseek_v3",
                "architectures": ["DeepseekV3ForCausalLM"],
                "hidden_size": 192,
                "intermediate_size": 320,
                "num_hidden_layers": 3,
                "num_attention_heads": 6,
                "num_key_value_heads": 6,
                "attention_bias": False,
                "q_lora_rank": 160,
                "kv_lora_rank": 128,
                "qk_nope_head_dim": 64,
                "qk_rope_head_dim": 16,
                "v_head_dim": 96,
                "n_routed_experts": 12,
                "n_shared_experts": 2,
                "num_experts_per_tok": 3,
                "moe_intermediate_size": 64,
                "n_group": 4,
                "topk_group": 2,
                "topk_method": "noaux_tc",
                "scoring_func": "sigmoid",
                "norm_topk_prob": True,
                "routed_scaling_factor": 2.5,
                "first_k_dense_replace": 1,
                "moe_layer_freq": 1,
                "vocab_size": 227,
                "tie_word_embeddings": False,
                "rms_norm_eps": 1e-3,
                "rope_theta": 10000.0,
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 8.0,
                    "original_max_position_embeddings": 64,
                    "beta_fast": 32,
                    "beta_slow": 1,
                    "mscale": 1.0,
                    "mscale_all_dim": 0.7,
                },
            },
            dtype="bfloat16",
            bits=4,
            group_size=32,
            overrides={".mlp.gate": False},
            hf_shards=2,
        ),
        TinyModel(
            "deepseek_v3_plain",
            seed=3,
            config=_COMMON | {
                "model_type": "deepseek_v3",
                "architectures": ["DeepseekV3ForCausalLM"],
                "hidden_size": 128,
                "intermediate_size": 192,
                "num_hidden_layers": 2,
                "num_attention_heads": 3,
                "num_key_value_heads": 3,
                "attention_bias": True,
                "q_lora_rank": None,
                "kv_lora_rank": 192,
                "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 24,
                "v_head_dim": 64,
                "n_routed_experts": 7,
                "n_shared_experts": 1,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 64,
                "n_group": 1,
                "topk_group": 1,
                "norm_topk_prob": False,
                "routed_scaling_factor": 1.0,
                "first_k_dense_replace": 0,
                "vocab_size": 239,
                "tie_word_embeddings": False,
                "rms_norm_eps": 1e-6,
                "rope_theta": 50000.0,
                "rope_scaling": None,
            },
            dtype="float16",
            bits=4,
            group_size=64,
            overrides={".mlp.gate": False},
        ),
        TinyModel(
            "mixtral",
            seed=2,
            config=_COMMON | {
                "model_type": "mixtral",
                "architectures": ["MixtralForCausalLM"],
                "hidden_size": 384,
                "intermediate_size": 192,
                "num_hidden_layers": 3,
                "num_attention_heads": 6,
                "num_key_value_heads": 3,
                "num_local_experts": 5,
                "num_experts_per_tok": 2,
                "sliding_window": None,
                "vocab_size": 233,
                "tie_word_embeddings": False,
                "rms_norm_eps": 1e-3,
                "rope_theta": 1000000.0,
            },
            dtype="float16",
            bits=4,
            group_size=64,
            hf_shards=2,
            mlx_shards=2,
        ),
        TinyModel(
            "gpt_oss",
            seed=8,
            config=_COMMON | _ATTENTION | {
                "model_type": "gpt_oss",
                "architectures": ["GptOssForCausalLM"],
                "hidden_size": 192,
                "intermediate_size": 128,
                "num_hidden_layers": 3,
                "head_dim": 64,
                "attention_bias": True,
                "sliding_window": 27,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                "num_local_experts": 6,
                "num_experts_per_tok": 3,
                "swiglu_limit": 7.0,
                "vocab_size": 241,
                "tie_word_embeddings": False,
                "rms_norm_eps": 1e-3,
                "rope_theta": 150000.0,
                "rope_scaling": _GPT_OSS_ROPE,
            },
            dtype="bfloat16",
            bits=4,
            group_size=64,
            overrides={".mlp.router": _GATE_8BIT},
            hf_shards=2,
            mlx_lm=("mlx",),
            mlx_config={"rope_scaling": _GPT_OSS_ROPE | {"truncate": True}},  # mlx-lm knows nothing else
        ),
    )
}  # fmt: skip

_FP_FORMATS = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}

#: Some in formats of small floats, MLX directories only; by model, mode and seed.
FP_MODELS = {
    f"{name}_{mode}": replace(
        MODELS[name],
        name=f"{name}_{mode}",
        mode=mode,
        bits=_FP_FORMATS[mode][0],
        group_size=_FP_FORMATS[mode][1],
        seed=seed,
        overrides={} if name == "llama" else MODELS[name].overrides,
    )
    for name, mode, seed in (
        ("llama", "mxfp4", 1),
        ("llama", "mxfp8", 1),
        ("llama", "nvfp4", 1),
        ("qwen3_5_moe", "mxfp4", 30),
        ("qwen3_5_moe", "mxfp8", 32),
        ("qwen3_5_moe", "nvfp4", 11),
        ("deepseek_v3", "nvfp4", 30),
    )
} | {
    "gpt_oss_mxfp4": replace(
        MODELS["gpt_oss"],
        name="gpt_oss_mxfp4",
        seed=1,
        mode="mxfp4",
        group_size=32,
        # Its experts are published so; conversions name each of the others.
        overrides=MODELS["gpt_oss"].overrides
        | {f".{name}_proj": {"group_size": 64, "bits": 4} for name in "qkvo"}
        | {name: {"group_size": 64, "bits": 4} for name in ("embed_tokens", "lm_head")},
    )
}
