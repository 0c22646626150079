"""Write checkpoints of qwen3_5_moe with random weights, whose speed does not depend on the values."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from pyturbo.convert.plan import Output
from pyturbo.convert.shards import Shards

GROUP_SIZE = 64
INTERVAL = 4  # every fourth layer has full attention
KERNEL = 4  # of the convolution
ROPE_PART = 0.25
ROPE_SECTIONS = (11, 11, 10)

Array = NDArray[Any]


@dataclass(frozen=True)
class Shape:
    """Sizes of a qwen3_5_moe."""

    hidden: int
    layers: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    key_heads: int  # of the delta nets, as are the next two
    value_heads: int
    delta_dim: int
    experts: int
    chosen: int
    expert_inner: int
    shared_inner: int
    context: int = 4096

    @property
    def keys(self) -> int:
        return self.key_heads * self.delta_dim

    @property
    def values(self) -> int:
        return self.value_heads * self.delta_dim


#: About 20 million parameters.
SMALL = Shape(256, 8, 6144, 8, 2, 64, 2, 4, 128, 16, 4, 128, 256)
#: Four layers of Qwen3.6-35B-A3B. The vocabulary is small, so that the figures are those of the layers.
LARGE = Shape(2048, 4, 8192, 16, 2, 256, 16, 32, 128, 256, 8, 512, 512)


def config(shape: Shape) -> dict[str, Any]:
    quantization: dict[str, Any] = {"group_size": GROUP_SIZE, "bits": 4, "mode": "affine"}
    for i in range(shape.layers):
        for gate in ("gate", "shared_expert_gate"):
            path = f"language_model.model.layers.{i}.mlp.{gate}"
            quantization[path] = {"group_size": GROUP_SIZE, "bits": 8}
    text = {
        "model_type": "qwen3_5_moe_text",
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "full_attention_interval": INTERVAL,
        "vocab_size": shape.vocab,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "attn_output_gate": True,
        "attention_bias": False,
        "linear_num_key_heads": shape.key_heads,
        "linear_num_value_heads": shape.value_heads,
        "linear_key_head_dim": shape.delta_dim,
        "linear_value_head_dim": shape.delta_dim,
        "linear_conv_kernel_dim": KERNEL,
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.chosen,
        "moe_intermediate_size": shape.expert_inner,
        "shared_expert_intermediate_size": shape.shared_inner,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": ROPE_PART,
            "mrope_interleaved": True,
            "mrope_section": list(ROPE_SECTIONS),
        },
    }
    return {
        "model_type": "qwen3_5_moe",
        "tie_word_embeddings": False,
        "text_config": text,
        "quantization": quantization,
    }


class Maker:
    """Makes weights from one block of random bytes, each matrix from another offset."""

    def __init__(self, largest: int, *, centered: bool = False) -> None:
        """Make random bytes for matrices of up to `largest` bytes.

        `centered`: values have a mean of 0, not that of codes of which the middle one is 0.
        """
        self._center = 0.5 if centered else 0.0
        self._rng = np.random.default_rng(0)
        self._bytes = self._rng.integers(0, 1 << 32, (largest >> 2) + (1 << 16), np.uint32)
        self._tensors: dict[str, Array] = {}

    def take(self) -> dict[str, Array]:
        """Return what was made since the last call."""
        made, self._tensors = self._tensors, {}
        return made

    def linear(self, path: str, *shape: int, bits: int = 4) -> None:
        """Make a matrix with values of about 1 / sqrt(in); scales are exact in bfloat16 and float16."""
        *rows, width = shape
        words = math.prod(rows) * width * bits // 32
        start = int(self._rng.integers(0, self._bytes.size - words + 1))
        packed = self._bytes[start : start + words].reshape(*rows, -1)
        unit = 2.0 ** round(math.log2(2 / ((1 << bits) * width**0.5)))
        scales = self._rng.integers(64, 128, (*rows, width // GROUP_SIZE)).astype(np.float32) * (unit / 64)
        biases = -scales * ((1 << (bits - 1)) - self._center)
        self._tensors[path + ".weight"] = packed
        self._tensors[path + ".scales"] = scales.astype(ml_dtypes.bfloat16)
        self._tensors[path + ".biases"] = biases.astype(ml_dtypes.bfloat16)

    def norm(self, name: str, size: int) -> None:
        self._tensors[name] = np.ones(size, ml_dtypes.bfloat16)

    def uniform(self, name: str, shape: tuple[int, ...], low: float, high: float) -> None:
        drawn = self._rng.uniform(low, high, shape).astype(ml_dtypes.bfloat16)
        self._tensors[name] = drawn.astype(np.float32) if name.endswith("A_log") else drawn


def tensors(shape: Shape) -> dict[str, Array]:
    """Return the tensors by their names in an MLX checkpoint. Layers of one kind share their values."""
    make = Maker(max(shape.experts * shape.expert_inner, shape.vocab) * shape.hidden // 2)
    make.linear("language_model.model.embed_tokens", shape.vocab, shape.hidden)
    make.linear("language_model.lm_head", shape.vocab, shape.hidden)
    make.norm("language_model.model.norm.weight", shape.hidden)
    out = make.take()
    kinds = {full: layer(make, shape, full=full) | experts(make, shape) for full in (False, True)}
    for i in range(shape.layers):
        own = kinds[has_attention(i)]
        out |= {f"language_model.model.layers.{i}.{name}": array for name, array in own.items()}
    return out


def has_attention(i: int) -> bool:
    """Return whether layer `i` has full attention; the others have delta nets."""
    return (i + 1) % INTERVAL == 0


def layer(make: Maker, shape: Shape, *, full: bool) -> dict[str, Array]:
    """Return the tensors of a layer, but for its routed experts."""
    make.norm("input_layernorm.weight", shape.hidden)
    make.norm("post_attention_layernorm.weight", shape.hidden)
    (_attention if full else _delta_net)(make, shape)
    make.linear("mlp.gate", shape.experts, shape.hidden, bits=8)
    make.linear("mlp.shared_expert_gate", 1, shape.hidden, bits=8)
    _mlp(make, "mlp.shared_expert", shape, shape.shared_inner)
    return make.take()


def experts(make: Maker, shape: Shape) -> dict[str, Array]:
    """Return the routed experts of a layer."""
    _mlp(make, "mlp.switch_mlp", shape, shape.expert_inner, shape.experts)
    return make.take()


def _mlp(make: Maker, path: str, shape: Shape, inner: int, *outer: int) -> None:
    make.linear(f"{path}.gate_proj", *outer, inner, shape.hidden)
    make.linear(f"{path}.up_proj", *outer, inner, shape.hidden)
    make.linear(f"{path}.down_proj", *outer, shape.hidden, inner)


def _delta_net(make: Maker, shape: Shape) -> None:
    channels = 2 * shape.keys + shape.values
    make.linear("linear_attn.in_proj_qkv", channels, shape.hidden)
    make.linear("linear_attn.in_proj_z", shape.values, shape.hidden)
    make.linear("linear_attn.in_proj_b", shape.value_heads, shape.hidden)
    make.linear("linear_attn.in_proj_a", shape.value_heads, shape.hidden)
    make.uniform("linear_attn.conv1d.weight", (channels, KERNEL, 1), -1.0, 1.0)
    make.uniform("linear_attn.A_log", (shape.value_heads,), -1.0, 2.7)
    make.uniform("linear_attn.dt_bias", (shape.value_heads,), -6.0, -1.0)
    make.norm("linear_attn.norm.weight", shape.delta_dim)
    make.linear("linear_attn.out_proj", shape.hidden, shape.values)


def _attention(make: Maker, shape: Shape) -> None:
    make.linear("self_attn.q_proj", 2 * shape.heads * shape.head_dim, shape.hidden)
    make.linear("self_attn.k_proj", shape.kv_heads * shape.head_dim, shape.hidden)
    make.linear("self_attn.v_proj", shape.kv_heads * shape.head_dim, shape.hidden)
    make.linear("self_attn.o_proj", shape.hidden, shape.heads * shape.head_dim)
    make.norm("self_attn.q_norm.weight", shape.head_dim)
    make.norm("self_attn.k_norm.weight", shape.head_dim)


def write(folder: Path, shape: Shape, arrays: dict[str, Array]) -> None:
    """Write a directory as mlx_lm does, without a tokenizer."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config(shape)), encoding="utf-8")
    outputs = [Output(name, array.dtype, array.shape) for name, array in arrays.items()]
    shards = Shards(folder, outputs)
    try:
        for output in outputs:
            shards.write(output, 0, arrays[output.name])
    finally:
        shards.close()
