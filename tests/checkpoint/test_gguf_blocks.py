"""Block types against a decoder that takes one value at a time.

Blocks are random bytes, so that every bit of a layout has a say. What is compared is the value in float64:
the affine format holds each type exactly, but for Q6_K.
"""

import numpy as np
import pytest

from checkpoint.files import blocks
from pyturbo import ops
from pyturbo.checkpoint import gguf_blocks
from reference import affine
from reference import gguf as reference

EXACT = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K"]
BITS = {"Q4_0": 4, "Q4_1": 4, "Q5_0": 5, "Q5_1": 5, "Q8_0": 8, "Q4_K": 4, "Q5_K": 5, "Q6_K": 8}


def random_rows(kind, rows=5, count=3, seed=3):
    size, _ = reference.SIZES[kind]
    return blocks(np.random.default_rng(seed), kind, size, (rows, count * size))


def to_affine(kind, rows, places=None):
    size, values = reference.SIZES[kind]
    return gguf_blocks.to_affine(kind, (len(rows), rows.shape[1] // size * values), rows, places)


def reference_weight(layer):
    return affine.Weight(layer.packed, layer.scales, layer.biases, layer.bits, layer.group_size)


@pytest.mark.parametrize("at_once", [1 << 18, 1], ids=["at once", "row by row"])
@pytest.mark.parametrize("kind", EXACT)
def test_nothing_is_lost(monkeypatch, kind, at_once):
    monkeypatch.setattr(gguf_blocks, "_BLOCK_VALUES", at_once)
    rows = random_rows(kind)
    layer, error = to_affine(kind, rows)
    want = reference.dequantize(reference.Weight(rows, kind))
    assert (layer.bits, layer.group_size, layer.shape, error) == (BITS[kind], 32, want.shape, 0)
    np.testing.assert_array_equal(affine.dequantize(reference_weight(layer)).astype(np.float32), want)
    assert layer.scales.dtype == layer.biases.dtype == (np.float32 if kind.endswith("K") else np.float16)
    for array in layer.weight[:3]:
        assert array.ctypes.data % 16 == 0


@pytest.mark.parametrize("kind", EXACT)
def test_float32_of_the_operations_is_that_of_ggml(kind):
    """One rounding: products are exact in float32, the sum is rounded."""
    rows = random_rows(kind, seed=4)
    layer, _ = to_affine(kind, rows)
    values = ops.affine_dequantize(
        layer.packed, layer.scales.astype(np.float32), layer.biases.astype(np.float32), layer.bits, 32
    )
    np.testing.assert_array_equal(values, reference.dequantize(reference.Weight(rows, kind)))


@pytest.mark.parametrize("kind", BITS)
def test_sizes_follow_from_the_type(kind):
    """Also of blocks whose scales would be exact in less."""
    rows = random_rows(kind)
    size, values = reference.SIZES[kind]
    rows.reshape(-1, size)[:, :4] = np.array([0.5, 0.25], np.float16).view(np.uint8)
    layer, _ = to_affine(kind, rows)
    told = gguf_blocks.affine_arrays(kind, (len(rows), rows.shape[1] // size * values))
    assert [(array.shape, array.dtype) for array in layer.arrays] == told


@pytest.mark.parametrize("at_once", [1 << 18, 1], ids=["at once", "row by row"])
@pytest.mark.parametrize("kind", BITS)
def test_rows_in_another_order(monkeypatch, kind, at_once):
    monkeypatch.setattr(gguf_blocks, "_BLOCK_VALUES", at_once)
    rows, places = random_rows(kind), np.array([3, 0, 4, 1, 2])
    for array, other in zip(to_affine(kind, rows)[0].arrays, to_affine(kind, rows, places)[0].arrays):
        np.testing.assert_array_equal(other[places], array)


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_0", "Q8_0"])
def test_a_bias_beyond_float16_makes_both_float32(monkeypatch, kind):
    monkeypatch.setattr(gguf_blocks, "_BLOCK_VALUES", 1)
    rows = random_rows(kind)
    rows[2, :2] = np.array([60000], np.float16).view(np.uint8)
    layer, _ = to_affine(kind, rows)
    assert layer.scales.dtype == layer.biases.dtype == np.float32
    np.testing.assert_array_equal(
        affine.dequantize(reference_weight(layer)).astype(np.float32),
        reference.dequantize(reference.Weight(rows, kind)),
    )


def test_q6_k_is_requantised_and_says_by_how_much():
    rows = random_rows("Q6_K")
    want = reference.dequantize(reference.Weight(rows, "Q6_K"))
    np.testing.assert_array_equal(gguf_blocks.q6_k_values(rows.reshape(-1, 210)).reshape(want.shape), want)
    layer, error = to_affine("Q6_K", rows)
    assert (layer.bits, layer.group_size, layer.shape) == (8, 32, want.shape)
    got = np.abs(affine.dequantize(reference_weight(layer)) - want)
    assert error == pytest.approx(got.max(), rel=1e-5)
    groups = want.reshape(-1, 32)
    # Half a step of 255, or a whole one at the end of the range that the code of zero moves.
    step = (np.maximum(groups.max(1), 0) - np.minimum(groups.min(1), 0)) / 255
    assert (got.reshape(-1, 32).max(1) <= 1.01 * step).all()


@pytest.mark.parametrize("kind", [*EXACT, "Q6_K"])
@pytest.mark.parametrize("byte", [0, 255, 0x7C])
def test_damaged_scales_raise_no_warning(kind, byte):
    """All bytes alike: zeros, NaN, or large numbers."""
    rows = np.full_like(random_rows(kind), byte)
    layer, error = to_affine(kind, rows)
    assert layer.shape[0] == len(rows)
    if byte == 0:
        assert error == 0


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_pack_is_a_little_endian_stream(bits):
    codes = np.random.default_rng(bits).integers(0, 1 << bits, (6, 32), np.uint8)
    words = gguf_blocks.pack(codes, bits).reshape(6, bits)
    one = np.ones((6, 1), np.float32)
    np.testing.assert_array_equal(affine.codes(affine.Weight(words, one, one, bits, 32)), codes)
