"""One valid call of every operation, as small as it may be, by the names of its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyturbo import ops

Arguments = dict[str, Any]


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _ints(values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def operation_calls() -> dict[str, Arguments]:
    """Return the arguments by operation; every function in `ops.__all__` has an entry."""
    packed, scales, biases = ops.affine_quantize(_floats(3, 64), 4, 32)
    stack = tuple(np.stack([array] * 2) for array in (packed, scales, biases))
    affine = {"packed": packed, "scales": scales, "biases": biases, "bits": 4, "group_size": 32}
    experts = {"packed": stack[0], "scales": stack[1], "biases": stack[2], "bits": 4, "group_size": 32}
    matrix, matrices = tuple(affine.values()), tuple(experts.values())
    halves = (packed, scales.astype(np.float16), biases.astype(np.float16), 4, 32)
    codes, powers = ops.fp_quantize(_floats(3, 64), "nvfp4")
    fp = {"packed": codes, "scales": powers, "mode": "nvfp4", "global_scale": np.ones(1, np.float32)}
    fp_experts = {
        "packed": np.stack([codes] * 2),
        "scales": np.stack([powers] * 2),
        "mode": "nvfp4",
        "global_scale": np.ones(2, np.float32),
    }
    blocks = np.zeros((3, 36), np.uint8)
    gguf, gguf_experts = ({"blocks": each, "kind": "Q4_0"} for each in (blocks, np.stack([blocks] * 2)))
    ids, offsets, slots = _ints([[0, 1]]), _ints([0, 1, 2]), _ints([1, 0])
    rows = ops.turbo_encode(_floats(5, 2, 64), 4)
    latents = ops.turbo_encode(_floats(5, 1, 64), 4)
    queries = {"q": _floats(2, 4, 64), "k": _floats(5, 2, 64), "v": _floats(5, 2, 64), "scale": 0.1}
    masks = {"window": 3, "softcap": 30.0}
    turbo = {"q": _floats(2, 4, 64), "k_rows": rows, "v_rows": rows, "scale": 0.1}
    ring = {"ring_start": 1, "live": 4}
    parts = dict(zip("oml", ops.attention_partials(*queries.values(), 2)))
    latent_cache = {"latents": _floats(5, 16), "rope_keys": _floats(5, 8)}
    own, own_rows = (_floats(2, 64), _floats(2, 8)), (_floats(2, 2, 64), _floats(2, 2, 64))
    heads = {"q": _floats(2, 3, 12), "k": _floats(2, 2, 6)}
    turn = {
        "position": 7,
        "inv_freq": _floats(2),
        "scale": 1.0,
        "interleaved": True,
        "norms": (_floats(6), _floats(6), 1e-6),
    }
    return {
        "add": {"a": _floats(3), "b": _floats(3)},
        "add_bias": {"x": _floats(2, 3), "bias": _floats(3)},
        "add_expert_bias": {
            "x": _floats(2, 3),
            "bias": _floats(4, 3),
            "ids": _ints([[0, 3]]),
            "order": _ints([1, 0]),
            "slots": _ints([0, 1, 3, 2]),
        },
        "affine_dequantize": affine,
        "affine_conv_project": {
            "x": _floats(1, 64),
            "weights": (halves, halves),
            "history": _floats(3, 3),
            "taps": _floats(3, 4).astype(np.float16),
            "bias": _floats(6),
        },
        "affine_embed": {"ids": [0, 2], **affine},
        "affine_experts_matmul": {"x": _floats(1, 64), "ids": ids, **experts, "slots": slots},
        "affine_experts_swiglu": {
            "x": _floats(1, 64),
            "ids": ids,
            "gate": matrices,
            "up": matrices,
            "slots": slots,
        },
        "affine_grouped_matmul": {"x": _floats(2, 64), "offsets": offsets, **experts, "slots": slots},
        "affine_grouped_swiglu": {
            "x": _floats(2, 64),
            "offsets": offsets,
            "gate": matrices,
            "up": matrices,
            "slots": slots,
        },
        "affine_matmul": {"x": _floats(2, 64), **affine},
        "affine_norm_project": {
            "x": _floats(1, 64),
            "residual": _floats(1, 64),
            "norm_weight": _floats(64).astype(np.float16),
            "eps": 1e-6,
            "weights": (halves,),
            "bias": _floats(3),
        },
        "affine_project": {"x": _floats(1, 64), "weights": (halves, halves), "bias": _floats(6)},
        "affine_quantize": {"w": _floats(3, 64), "bits": 4, "group_size": 32},
        "affine_swiglu": {"x": _floats(2, 64), "gate": matrix, "up": matrix},
        "argmax": {"x": _floats(2, 5)},
        "attention": {
            **queries,
            "causal": True,
            **masks,
            "sinks": _floats(4),
            "context": 5,
            "gate": _floats(2, 4, 128),
        },
        "attention_merge": {**parts, "sinks": _floats(4), "gate": _floats(2, 4, 128)},
        "attention_partials": {**queries, "blocks": 2, "causal": True, **masks, "context": 5},
        "attention_scores": {"q": queries["q"], "k": queries["k"], "scale": 0.1},
        "attention_values": {"p": _floats(2, 4, 5), "v": queries["v"]},
        "bucket_accumulate": {
            "out": _floats(2, 3),
            "rows": _floats(4, 3),
            "tokens": _ints([0, 1, 1, 0]),
            "weights": _floats(4),
        },
        "choice_rule": {
            "top_k": 2,
            "top_p": 0.5,
            "min_p": 0.1,
            "temperature": 0.7,
            "draw": 0.3,
            "forbidden": [3],
        },
        "choose_token": {
            "logits": _floats(3),
            "tokens": np.arange(3, dtype=np.int32),
            "rule": ops.choice_rule(2),
        },
        "conv1d": {"x": _floats(2, 5), "history": _floats(3, 5), "weight": _floats(5, 4)},
        "decay_beta": {"a": _floats(2, 3), "b": _floats(2, 3), "a_log": _floats(3), "dt_bias": _floats(3)},
        "delta_net": {
            "q": _floats(2, 1, 32),
            "k": _floats(2, 1, 32),
            "v": _floats(2, 3, 8),
            "g": _floats(2, 3),
            "beta": _floats(2, 3),
            "state": _floats(3, 8, 32),
            "method": "recurrent",
            "tiled": True,
        },
        "delta_step": {
            "mixed": _floats(1, 128 + 24),
            "z": _floats(1, 3, 8),
            "a": _floats(1, 3),
            "b": _floats(1, 3),
            "a_log": _floats(3),
            "dt_bias": _floats(3),
            "weight": _floats(8),
            "state": _floats(3, 8, 64),
            "eps": 1e-6,
            "tiled": True,
        },
        "dense_experts_matmul": {"x": _floats(1, 5), "ids": ids, "w": _floats(2, 3, 5), "slots": slots},
        "dense_grouped_matmul": {
            "x": _floats(2, 64),
            "offsets": offsets,
            "w": _floats(2, 3, 64).astype(np.float16),
            "slots": slots,
        },
        "dense_project": {"x": _floats(1, 64), "weights": (_floats(3, 64),), "bias": _floats(3)},
        "find_slots": {
            "ids": ids,
            "table": slots,
            "counts": np.zeros(2, np.uint32),
            "slots": _ints([0, 0]),
            "missing": np.zeros(1, np.uint32),
        },
        "fp_dequantize": {**fp, "global_scale": 2.0},
        "fp_embed": {"ids": [0, 2], **fp},
        "fp_experts_matmul": {"x": _floats(1, 64), "ids": ids, **fp_experts, "slots": slots},
        "fp_experts_swiglu": {
            "x": _floats(1, 64),
            "ids": ids,
            "gate": tuple(fp_experts.values()),
            "up": tuple(fp_experts.values()),
            "slots": slots,
        },
        "fp_grouped_matmul": {"x": _floats(2, 64), "offsets": offsets, **fp_experts, "slots": slots},
        "fp_grouped_swiglu": {
            "x": _floats(2, 64),
            "offsets": offsets,
            "gate": tuple(fp_experts.values()),
            "up": tuple(fp_experts.values()),
            "slots": slots,
        },
        "fp_matmul": {"x": _floats(2, 64), **fp},
        "fp_project": {"x": _floats(1, 64), "weights": ((codes, powers, "nvfp4", None),)},
        "fp_quantize": {"w": _floats(3, 64), "mode": "nvfp4", "global_scale": 2.0},
        "fp_swiglu": {"x": _floats(2, 64), "gate": tuple(fp.values()), "up": tuple(fp.values())},
        "gated_rms_norm": {"x": _floats(2, 3, 5), "z": _floats(2, 3, 5), "weight": _floats(5), "eps": 1e-6},
        "gather_rows": {"x": _floats(2, 3), "index": _ints([0, 1, 3]), "repeat": 2},
        "geglu": {"gate": _floats(3), "up": _floats(3)},
        "gguf_embed": {"ids": [0, 2], **gguf},
        "gguf_experts_matmul": {"x": _floats(1, 64), "ids": ids, **gguf_experts, "slots": slots},
        "gguf_experts_swiglu": {
            "x": _floats(1, 64),
            "ids": ids,
            "gate": gguf_experts["blocks"],
            "up": gguf_experts["blocks"],
            "kind": "Q4_0",
            "slots": slots,
        },
        "gguf_grouped_matmul": {"x": _floats(2, 64), "offsets": offsets, **gguf_experts, "slots": slots},
        "gguf_grouped_swiglu": {
            "x": _floats(2, 64),
            "offsets": offsets,
            "gate": gguf_experts["blocks"],
            "up": gguf_experts["blocks"],
            "kind": "Q4_0",
            "slots": slots,
        },
        "gguf_matmul": {"x": _floats(2, 64), **gguf},
        "gguf_project": {
            "x": _floats(1, 64),
            "weights": ((np.zeros((3, 68), np.uint8), "Q8_0"),),
            "bias": _floats(3),
        },
        "gguf_swiglu": {"x": _floats(2, 64), "gate": blocks, "up": blocks, "kind": "Q4_0"},
        "hadamard": {"x": _floats(2, 16), "signs": np.ones(16, np.float32), "inverse": True},
        "head_rms_norm": {"x": _floats(2, 3, 5), "weight": _floats(5), "eps": 1e-6},
        "kv_append": {"cache": _floats(5, 2, 3), "rows": _floats(2, 2, 3), "position": 4},
        "matmul": {"x": _floats(2, 3), "w": _floats(5, 3)},
        "mla_append": {
            "cache": (_floats(5, 16), _floats(5, 8)),
            "latent": _floats(2, 16),
            "rope_key": _floats(2, 8),
            "position": 1,
        },
        "mla_attention": {
            "q": _floats(2, 3, 6),
            "q_rope": _floats(2, 3, 8),
            **latent_cache,
            "weights": _floats(3 * (6 + 4), 16),
            "scale": 0.1,
            "causal": True,
            "context": 4,
        },
        "mla_project_out": {"mix": _floats(2, 3, 16), "weight": _floats(3 * (6 + 4), 16), "v_dim": 4},
        "mla_project_q": {"q_nope": _floats(2, 3, 6), "weight": _floats(3 * (6 + 4), 16)},
        "mla_split": {"q": _floats(2, 3 * (6 + 8)), "kv": _floats(2, 16 + 8), "heads": 3, "rope": 8},
        "mla_turbo_attention": {
            "q": _floats(2, 3, 64),
            "q_rope": _floats(2, 3, 8),
            "latents": latents,
            "rope_keys": _floats(5, 8).astype(np.float16),
            "scale": 0.1,
            "own": own,
            "live": 4,
        },
        "moe_buckets": {"ids": ids, "experts": 2},
        "moe_combine": {
            "residual": _floats(2, 3),
            "expert_out": _floats(2, 4, 3),
            "weights": _floats(2, 4),
            "shared": _floats(2, 3),
            "shared_gate": _floats(2),
        },
        "moe_combine_norm": {
            "residual": _floats(2, 3),
            "expert_out": _floats(2, 4, 3),
            "weights": _floats(2, 4),
            "norm_weight": _floats(3),
            "eps": 1e-6,
            "shared": _floats(2, 3),
            "shared_gate": _floats(2),
        },
        "qk_norm": {"q": _floats(2, 3, 5), "k": _floats(2, 3, 5), "eps": 1e-6},
        "rms_norm": {"x": _floats(2, 3), "weight": _floats(3), "eps": 1e-6, "residual": _floats(2, 3)},
        "rope": {
            "x": _floats(2, 3, 6),
            "position": 7,
            "inv_freq": _floats(2),
            "rotary_dim": 4,
            "scale": 1.0,
            "interleaved": True,
        },
        "rope_append": {
            **heads,
            "v": heads["k"],
            "k_cache": _floats(5, 2, 6),
            "v_cache": _floats(5, 2, 6),
            **turn,
        },
        "rope_qk": {**heads, **turn},
        "route": {"logits": _floats(2, 5), "k": 3, "normalize": False},
        "route_grouped": {
            "logits": _floats(2, 6),
            "bias": _floats(6),
            "k": 2,
            "groups": 3,
            "top_groups": 2,
            "scale": 2.0,
            "normalize": True,
        },
        "route_topk_softmax": {"logits": _floats(2, 5), "k": 3},
        "sigmoid_gate": {"x": _floats(3), "gate": _floats(3)},
        "softmax": {"x": _floats(2, 3)},
        "split_q_gate": {"x": _floats(2, 12), "heads": 3},
        "swiglu": {"gate": _floats(3), "up": _floats(3)},
        "swiglu_clamped": {"gate": _floats(3), "up": _floats(3), "alpha": 1.7, "limit": 7.0},
        "top_logits": {"x": _floats(2, 5), "k": 3},
        "turbo_append": {"rows": rows, "x": _floats(2, 2, 64), "position": 4, "rotated": True},
        "turbo_attention": {
            **turbo,
            **masks,
            "sinks": _floats(4),
            "method": "split",
            **ring,
            "own": own_rows,
            "rotated": True,
            "gate": _floats(2, 4, 128),
        },
        "turbo_decode": {"rows": rows, "rotated": True, **ring},
        "turbo_encode": {"x": _floats(2, 3, 64), "bits": 3, "means": True},
        "turbo_merge": {
            **dict(zip("oml", ops.turbo_partials(*turbo.values(), 2))),
            "sinks": _floats(4),
            "gate": _floats(2, 4, 128),
            "dtype": "float16",
            "unrotate": True,
        },
        "turbo_partials": {**turbo, "blocks": 2, **masks, **ring, "own": own_rows, "rotated": True},
        "turbo_rotate": {"x": _floats(2, 64)},
        "turbo_rows": {
            "capacity": 5,
            "kv_heads": 2,
            "dim": 64,
            "bits": 4,
            "batch": 3,
            "means": True,
            "recent": 4,
        },
        "turbo_scores": {"q": turbo["q"], "k_rows": rows, "scale": 0.1, **masks, **ring, "rotated": True},
        "turbo_unrotate": {"x": _floats(2, 64)},
        "turbo_values": {
            "weights": _floats(2, 4, 5),
            "v_rows": rows,
            "threshold": 0.1,
            "ring_start": 1,
            "rotated": True,
        },
        "weighted_sum": {"rows": _floats(2, 3, 5), "weights": _floats(2, 3)},
    }


def _weights(rows: int, columns: int) -> list[tuple[Any, ...]]:
    """Return a matrix in each form that projections of latents take."""
    values = _floats(rows, columns)
    return [
        (*ops.affine_quantize(values, 4, 32), 4, 32),
        (*ops.fp_quantize(values, "mxfp4"), "mxfp4", None),
        (np.zeros((rows, columns // 32 * 18), np.uint8), "Q4_0"),
    ]


def _stack(weight: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    return tuple(np.stack([part] * count) if isinstance(part, np.ndarray) else part for part in weight)


def other_calls() -> list[tuple[str, Arguments]]:
    """Return valid calls with other forms of arguments: quantised projections, rows with every part."""
    calls: list[tuple[str, Arguments]] = []
    folded = {"q_rope": _floats(2, 3, 8), "latents": _floats(5, 64), "rope_keys": _floats(5, 8), "scale": 0.1}
    for both, embed, unembed in zip(_weights(120, 64), _weights(64, 32), _weights(8, 64)):
        pair = _stack(embed, 3), _stack(unembed, 3)
        for to_keys, to_values in ((both, both), pair):
            calls += [
                ("mla_project_q", {"q_nope": _floats(2, 3, 32), "weight": to_keys}),
                ("mla_project_out", {"mix": _floats(2, 3, 64), "weight": to_values, "v_dim": 8}),
            ]
        calls += [
            ("mla_attention", {"q": _floats(2, 3, 32), **folded, "weights": weights})
            for weights in (both, pair)
        ]
    calls.append(("mla_attention", {"q": _floats(2, 3, 64), **folded, "weights": None}))
    for batch in ((), (3,)):
        rows = ops.turbo_rows(5, 2, 64, 4, batch=batch[0] if batch else None, means=True, recent=4)
        q, own = _floats(*batch, 2, 4, 64), (_floats(*batch, 2, 2, 64), _floats(*batch, 2, 2, 64))
        keys = {"q": q, "k_rows": rows}
        calls += [
            ("turbo_attention", {**keys, "v_rows": rows, "scale": 0.1, "method": method, "own": own})
            for method in ("split", "tiled", "fused")
        ]
        calls += [
            ("turbo_append", {"rows": rows, "x": own[0], "position": 1}),
            ("turbo_decode", {"rows": rows}),
            ("turbo_scores", keys),
            ("turbo_values", {"weights": _floats(*batch, 2, 4, 5), "v_rows": rows}),
        ]
    return calls
