"""Operations: every row of the kernel catalogue, NumPy in and NumPy out, on any device."""

from pyturbo.ops.activation import geglu, sigmoid_gate, swiglu, swiglu_clamped
from pyturbo.ops.affine import (
    affine_dequantize,
    affine_embed,
    affine_experts_swiglu,
    affine_matmul,
    affine_quantize,
    affine_swiglu,
    experts_matmul,
    grouped_matmul,
)
from pyturbo.ops.attention import (
    MAX_HEAD_DIM,
    attention,
    attention_merge,
    attention_partials,
    attention_scores,
    attention_values,
    kv_append,
    softmax,
)
from pyturbo.ops.delta import conv1d, decay_beta, delta_net
from pyturbo.ops.elementwise import add, add_bias, split_q_gate, weighted_sum
from pyturbo.ops.linear import dense_experts_matmul, matmul
from pyturbo.ops.moe import MAX_CHOICES, MAX_EXPERTS, gather_rows, moe_buckets, moe_combine, route
from pyturbo.ops.norm import gated_rms_norm, head_rms_norm, qk_norm, rms_norm
from pyturbo.ops.rope import rope
from pyturbo.ops.sampling import argmax
from pyturbo.ops.turbo import (
    TurboRows,
    hadamard,
    turbo_append,
    turbo_decode,
    turbo_encode,
    turbo_rotate,
    turbo_rows,
    turbo_unrotate,
)
from pyturbo.ops.turbo_attention import (
    turbo_attention,
    turbo_merge,
    turbo_partials,
    turbo_scores,
    turbo_values,
)

__all__ = [
    "MAX_CHOICES",
    "MAX_EXPERTS",
    "MAX_HEAD_DIM",
    "TurboRows",
    "add",
    "add_bias",
    "affine_dequantize",
    "affine_embed",
    "affine_experts_swiglu",
    "affine_matmul",
    "affine_quantize",
    "affine_swiglu",
    "argmax",
    "attention",
    "attention_merge",
    "attention_partials",
    "attention_scores",
    "attention_values",
    "conv1d",
    "decay_beta",
    "delta_net",
    "dense_experts_matmul",
    "experts_matmul",
    "gated_rms_norm",
    "gather_rows",
    "geglu",
    "grouped_matmul",
    "hadamard",
    "head_rms_norm",
    "kv_append",
    "matmul",
    "moe_buckets",
    "moe_combine",
    "qk_norm",
    "rms_norm",
    "rope",
    "route",
    "sigmoid_gate",
    "softmax",
    "split_q_gate",
    "swiglu",
    "swiglu_clamped",
    "turbo_append",
    "turbo_attention",
    "turbo_decode",
    "turbo_encode",
    "turbo_merge",
    "turbo_partials",
    "turbo_rotate",
    "turbo_rows",
    "turbo_scores",
    "turbo_unrotate",
    "turbo_values",
    "weighted_sum",
]
