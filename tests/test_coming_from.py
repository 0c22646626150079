"""Every name that docs/coming-from.md sends people to exists, and runs over the range of what it stands for.

Does not catch: wrong results; tests/kernels has those.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from pyturbo import ops, turbo_codec

PAGE = Path(__file__).parents[1] / "docs" / "coming-from.md"
RNG = np.random.default_rng(0)

Run = Callable[..., None]


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def weight(*shape: int, bits: int = 4) -> ops.affine.Weight:
    return (*ops.affine_quantize(normal(*shape), bits, 32), bits, 32)


def finite(result: object, *shapes: tuple[int, ...]) -> None:
    """The arrays of a result have these shapes and no value that is not finite."""
    arrays = result if isinstance(result, tuple) else (result,)
    assert [array.shape for array in arrays] == list(shapes)
    assert all(np.isfinite(array).all() for array in arrays)


def rows(dim: int, bits: int, tokens: int = 9) -> ops.TurboRows:
    return ops.turbo_encode(normal(tokens, 2, dim), bits)


IDS = np.array([[2, 0], [1, 2]], np.int32)
POSITIVE = np.abs(normal(4, 64)) + 0.1


def affine_matmul(device: str) -> None:
    for bits, tokens in itertools.product((2, 3, 4, 5, 6, 8), (1, 33)):
        finite(ops.affine_matmul(normal(tokens, 64), *weight(12, 64, bits=bits), device=device), (tokens, 12))


def affine_experts_matmul(device: str) -> None:
    finite(ops.affine_experts_matmul(normal(2, 64), IDS, *weight(3, 12, 64), device=device), (2, 2, 12))


def affine_experts_matvec(device: str) -> None:
    """The kernel itself: the second of three experts has the first of two matrices."""
    packed, scales, biases, _, _ = weight(2, 8, 2048)
    target = pyturbo.Device(device)
    y = target.empty((1, 1, 8))
    x, ids, slots = normal(1, 2048), np.ones((1, 1), np.int32), np.array([-1, 0, 1], np.int32)
    kernel = target.kernel("affine_experts_matvec_b4_f32", {"by_slot": True})
    strides = packed[0].size, scales[0].size, biases[0].size
    kernel(x, ids, packed, scales, biases, slots, y, 1, 1, 1, 2048, 8, 32, 3, 2, *strides)
    finite(y.numpy(), (1, 1, 8))


def affine_swiglu(device: str) -> None:
    finite(ops.affine_swiglu(normal(3, 64), weight(12, 64), weight(12, 64), device=device), (3, 12))


def affine_experts_swiglu(device: str) -> None:
    both = weight(3, 12, 64), weight(3, 12, 64)
    finite(ops.affine_experts_swiglu(normal(2, 64), IDS, *both, device=device), (2, 2, 12))


def affine_embed(device: str) -> None:
    for bits in (4, 8):
        finite(ops.affine_embed([3, 0], *weight(5, 64, bits=bits), device=device), (2, 64))


def matmul(device: str) -> None:
    for tokens in (1, 9):
        finite(ops.matmul(normal(tokens, 20), normal(7, 20), device=device), (tokens, 7))


def rms_norm(device: str) -> None:
    finite(ops.rms_norm(normal(3, 64), POSITIVE[0], 1e-6, device=device), (3, 64))


def head_rms_norm(device: str) -> None:
    finite(ops.head_rms_norm(normal(3, 2, 64), POSITIVE[0], 1e-6, device=device), (3, 2, 64))


def qk_norm(device: str) -> None:
    finite(ops.qk_norm(normal(3, 2, 64), normal(3, 2, 64), device=device), (3, 2, 64), (3, 2, 64))


def gated_rms_norm(device: str) -> None:
    args = normal(3, 2, 64), normal(3, 2, 64), POSITIVE[0], 1e-6
    finite(ops.gated_rms_norm(*args, device=device), (3, 2, 64))


def swiglu(device: str) -> None:
    finite(ops.swiglu(normal(2, 3, 20), normal(2, 3, 20), device=device), (2, 3, 20))


def sigmoid_gate(device: str) -> None:
    finite(ops.sigmoid_gate(normal(3, 20), normal(3, 20), device=device), (3, 20))


def add(device: str) -> None:
    finite(ops.add(normal(3, 20), normal(3, 20), device=device), (3, 20))


def weighted_sum(device: str) -> None:
    finite(ops.weighted_sum(normal(3, 4, 20), normal(3, 4), device=device), (3, 20))


def rope(device: str) -> None:
    for interleaved in (False, True):
        y = ops.rope(normal(3, 2, 64), 7, POSITIVE[0, :16], 32, interleaved=interleaved, device=device)
        finite(y, (3, 2, 64))


def split_q_gate(device: str) -> None:
    finite(ops.split_q_gate(normal(3, 2 * 2 * 8), 2, device=device), (3, 2, 8), (3, 2, 8))


def attention(device: str) -> None:
    for tokens in (1, 12):
        args = normal(tokens, 4, 64), normal(20, 2, 64), normal(20, 2, 64), 0.125
        finite(ops.attention(*args, device=device), (tokens, 4, 64))


def attention_scores(device: str) -> None:
    finite(ops.attention_scores(normal(3, 4, 64), normal(20, 2, 64), 0.125, device=device), (3, 4, 20))


def softmax(device: str) -> None:
    finite(ops.softmax(normal(3, 4, 20), device=device), (3, 4, 20))


def attention_values(device: str) -> None:
    finite(ops.attention_values(normal(3, 4, 20), normal(20, 2, 64), device=device), (3, 4, 64))


def kv_append(device: str) -> None:
    finite(ops.kv_append(normal(9, 2, 64), normal(3, 2, 64), 4, device=device), (9, 2, 64))


def delta_net(device: str, method: str) -> None:
    args = normal(5, 2, 64), 0.1 * normal(5, 2, 64), normal(5, 4, 64)
    gates = RNG.uniform(0.5, 1, (2, 5, 4)).astype(np.float32)
    finite(
        ops.delta_net(*args, *gates, normal(4, 64, 64), method=method, device=device), (5, 4, 64), (4, 64, 64)
    )


def conv1d(device: str) -> None:
    finite(ops.conv1d(normal(5, 20), normal(3, 20), normal(20, 4), device=device), (5, 20), (3, 20))


def decay_beta(device: str) -> None:
    finite(ops.decay_beta(normal(3, 4), normal(3, 4), normal(4), normal(4), device=device), (3, 4), (3, 4))


def mla_split(device: str) -> None:
    parts = ops.mla_split(normal(3, 2 * 24), normal(3, 40), 2, 8, device=device)
    finite(parts, (3, 2, 16), (3, 2, 8), (3, 32), (3, 8))


def mla_append(device: str) -> None:
    cache = normal(9, 32), normal(9, 8)
    finite(ops.mla_append(cache, normal(3, 32), normal(3, 8), 4, device=device), (9, 32), (9, 8))


def mla_project_q(device: str) -> None:
    finite(ops.mla_project_q(normal(3, 2, 32), weight(2, 64, 32), device=device), (3, 2, 64))


def mla_project_out(device: str) -> None:
    finite(ops.mla_project_out(normal(3, 2, 64), weight(2, 32, 64), 32, device=device), (3, 2, 32))


def mla_attention(device: str) -> None:
    for tokens in (1, 12):
        queries = normal(tokens, 2, 32), normal(tokens, 2, 8)
        y = ops.mla_attention(*queries, normal(70, 64), normal(70, 8), weight(2 * 56, 64), 0.1, device=device)
        finite(y, (tokens, 2, 24))


def route(device: str) -> None:
    for normalize in (False, True):
        finite(ops.route(normal(3, 32), 4, normalize, device=device), (3, 4), (3, 4))


def moe_combine(device: str) -> None:
    args = normal(3, 20), normal(3, 2, 20), normal(3, 2)
    for shared in ((), (normal(3, 20),), (normal(3, 20), normal(3, 1))):
        finite(ops.moe_combine(*args, *shared, device=device), (3, 20))


def bucket_accumulate(device: str) -> None:
    args = normal(4, 20), normal(3, 20), np.array([2, 0, 3], np.int32), normal(3)
    finite(ops.bucket_accumulate(*args, device=device), (4, 20))


def turbo_values(device: str) -> None:
    for bits in (2, 3, 4, 6, 8):
        finite(ops.turbo_values(normal(4, 9), rows(64, bits), device=device), (4, 64))


def fused_attention(device: str) -> None:
    for dim, value_bits in itertools.product((64, 128), (2, 4)):
        args = normal(4, dim), rows(dim, 4), rows(dim, value_bits), dim**-0.5
        finite(ops.turbo_attention(*args, sinks=normal(4), method="fused", device=device), (4, dim))


def split_attention(device: str) -> None:
    for dim in (256, 512):
        args = normal(4, dim), rows(dim, 4), rows(dim, 4), dim**-0.5
        y = ops.turbo_attention(*args, window=5, ring_start=3, live=9, method="split", device=device)
        finite(y, (4, dim))


def turbo_merge(device: str) -> None:
    for dim in turbo_codec.DIMS:
        finite(ops.turbo_merge(normal(4, 3, dim), normal(4, 3), POSITIVE[:, :3], device=device), (4, dim))


def turbo_partials(device: str) -> None:
    parts = ops.turbo_partials(normal(4, 64), rows(64, 4), rows(64, 4), 0.125, 1, device=device)
    finite(parts, (4, 1, 64), (4, 1), (4, 1))


def turbo_scores(device: str) -> None:
    finite(ops.turbo_scores(normal(4, 64), rows(64, 4), device=device), (4, 9))


def turbo_encode(device: str) -> None:
    encoded = ops.turbo_encode(normal(3, 2, 64), 4, device=device)
    finite((encoded.packed, encoded.scales), (2, 3, 8), (2, 3))


def turbo_decode(device: str) -> None:
    finite(ops.turbo_decode(rows(64, 4), rotated=True, device=device), (9, 2, 64))


def hadamard(device: str) -> None:
    for dim in turbo_codec.DIMS:
        finite(ops.hadamard(normal(3, dim), device=device), (3, dim))


SPECIAL: dict[str, Run] = {
    'delta_net(method="recurrent")': lambda device: delta_net(device, "recurrent"),
    'delta_net(method="chunkwise")': lambda device: delta_net(device, "chunkwise"),
    'turbo_attention(method="fused")': fused_attention,
    'turbo_attention(method="split")': split_attention,
    "turbo_decode(rotated=True)": turbo_decode,
}


def named() -> list[str]:
    """What stands in code type in the right column, but for arguments that are named alone."""
    spans = [
        span
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `")
        for span in re.findall("`([^`]+)`", line.split("|")[2])
    ]
    return [span for span in dict.fromkeys(spans) if span not in ("ring_start", "live")]


@pytest.mark.parametrize("name", named())
def test_runs(name: str, device: pyturbo.Device) -> None:
    if name != "affine_experts_matvec":
        assert callable(getattr(ops, name.partition("(")[0]))
    (SPECIAL.get(name) or globals()[name])(device.name)


def test_the_page_names_many() -> None:
    assert len(named()) > 40
