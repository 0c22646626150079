"""The host's quantiser against what MLX makes of special and plain rows (tests/goldens/make_affine.py)."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyturbo import ops
from pyturbo._dtypes import bfloat16
from pyturbo.errors import ArgumentError
from pyturbo.ops import affine_format
from reference import affine as reference

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": bfloat16}


@pytest.fixture(scope="module")
def golden():
    with np.load(Path(__file__).parents[1] / "goldens" / "affine_quantize.npz") as arrays:
        return dict(arrays)


def bits_of(array):
    return array.view(f"u{array.itemsize}")


@pytest.mark.parametrize("block", [1, 1 << 20], ids=["row by row", "at once"])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("group_size", GROUP_SIZES)
@pytest.mark.parametrize("bits", BITS)
def test_equals_mlx(golden, monkeypatch, bits, group_size, kind, block):
    monkeypatch.setattr(affine_format, "_BLOCK", block)
    w = golden[f"w_{kind}"].view(TYPES[kind])
    name = f"{kind}_b{bits}_g{group_size}"
    packed, scales, biases = ops.affine_quantize(w, bits, group_size)
    np.testing.assert_array_equal(packed, golden[f"packed_{name}"])
    np.testing.assert_array_equal(bits_of(scales), golden[f"scales_{name}"])
    np.testing.assert_array_equal(bits_of(biases), golden[f"biases_{name}"])
    if group_size == 64:
        values = ops.affine_dequantize(packed, scales, biases, bits, group_size)
        np.testing.assert_array_equal(bits_of(values), golden[f"values_{name}"])


@settings(max_examples=60, deadline=None)
@given(
    bits=st.sampled_from(BITS), group_size=st.sampled_from(GROUP_SIZES), kind=st.sampled_from(list(TYPES)),
    shape=st.lists(st.integers(1, 4), max_size=3), seed=st.integers(0, 99),
)  # fmt: skip
def test_dequantize_is_the_format(bits, group_size, kind, shape, seed):
    """Any words, any leading axes; product and sum round to the type of the scales."""
    rng = np.random.default_rng(seed)
    packed = rng.integers(0, 1 << 32, (*shape, group_size * 3 * bits // 32), np.uint32)
    scales, biases = (rng.standard_normal((*shape, 3)).astype(TYPES[kind]) for _ in range(2))
    values = ops.affine_dequantize(packed, scales, biases, bits, group_size)
    codes = reference.codes(reference.Weight(packed, scales, biases, bits, group_size)).astype(TYPES[kind])
    want = codes * np.repeat(scales, group_size, -1) + np.repeat(biases, group_size, -1)
    np.testing.assert_array_equal(bits_of(values), bits_of(want))


def test_stacks_and_views():
    """Leading axes are independent rows, and memory order does not matter."""
    w = np.random.default_rng(1).standard_normal((64, 3, 5)).astype(np.float32)
    stack = w.transpose(2, 1, 0)
    packed, scales, biases = ops.affine_quantize(stack, 3, 32)
    assert packed.shape == (5, 3, 6)
    assert scales.shape == biases.shape == (5, 3, 2)
    for e in range(5):
        for array, one in zip((packed, scales, biases), ops.affine_quantize(stack[e].copy(), 3, 32)):
            np.testing.assert_array_equal(array[e], one)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite_stays_visible(value):
    w = np.ones((2, 96), np.float32)
    w[1, 40] = value
    values = ops.affine_dequantize(*ops.affine_quantize(w, 4, 32), 4, 32)
    assert not np.isfinite(values[1, 32:64]).any()
    assert np.isfinite(values[0]).all()
    assert np.isfinite(values[1, 64:]).all()


def test_arguments_are_checked():
    w = np.zeros((2, 64), np.float32)
    packed, scales, biases = ops.affine_quantize(w, 4, 32)
    wrong = [
        ("affine_quantize: bits: expected", lambda: ops.affine_quantize(w, 7)),
        ("affine_quantize: group_size: expected", lambda: ops.affine_quantize(w, 4, 16)),
        ("affine_quantize: w: expected float32,", lambda: ops.affine_quantize(w.astype(np.float64))),
        ("affine_quantize: w: expected a last axis", lambda: ops.affine_quantize(w, 4, 128)),
        ("affine_quantize: w: expected a last axis", lambda: ops.affine_quantize(w[:, :0], 4)),
        ("packed: expected uint32", lambda: ops.affine_dequantize(w, scales, biases, 4, 32)),
        ("packed: expected rows", lambda: ops.affine_dequantize(packed, scales, biases, 3, 32)),
        ("scales: expected shape", lambda: ops.affine_dequantize(packed, scales[:1], biases, 4, 32)),
        ("scales: expected float32,", lambda: ops.affine_dequantize(packed, packed, biases, 4, 32)),
        ("biases: expected float32", lambda: ops.affine_dequantize(packed, scales, packed, 4, 32)),
    ]
    for message, call in wrong:
        with pytest.raises(ArgumentError, match=message):
            call()
