"""The host's quantiser of small floats against what MLX makes of the same rows (tests/goldens/make_fp.py)."""

from pathlib import Path

import numpy as np
import pytest

from pyturbo import ops
from pyturbo._dtypes import bfloat16
from pyturbo.errors import ArgumentError
from pyturbo.ops import affine_format
from reference import fp as reference

TYPES = {"f32": np.float32, "f16": np.float16, "bf16": bfloat16}
MODES = ("mxfp4", "mxfp8", "nvfp4")


@pytest.fixture(scope="module")
def golden():
    with np.load(Path(__file__).parents[1] / "goldens" / "fp_quantize.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("block", [1, 1 << 20], ids=["row by row", "at once"])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("mode", MODES)
def test_equals_mlx(golden, monkeypatch, mode, kind, block):
    monkeypatch.setattr(affine_format, "_BLOCK", block)
    w = golden[f"w_{kind}"].view(TYPES[kind])
    packed, scales = ops.fp_quantize(w, mode)
    np.testing.assert_array_equal(scales, golden[f"scales_{kind}_{mode}"])
    np.testing.assert_array_equal(packed, golden[f"packed_{kind}_{mode}"])
    values = ops.fp_dequantize(packed, scales, mode)
    np.testing.assert_array_equal(values, golden[f"values_{kind}_{mode}"].view(np.float32))


def test_global_scale_equals_mlx(golden):
    packed, scales = ops.fp_quantize(golden["w_f32"][:2].view(np.float32), "nvfp4", golden["global_scale"])
    np.testing.assert_array_equal(scales, golden["scales_global"])
    np.testing.assert_array_equal(packed, golden["packed_global"])
    values = ops.fp_dequantize(packed, scales, "nvfp4", golden["global_scale"])
    np.testing.assert_allclose(values, golden["values_global"], rtol=2e-7)


@pytest.mark.parametrize("mode", MODES)
def test_dequantize_is_the_format(mode):
    """Any words and scales, any leading axes; NaN where the format has it."""
    rng = np.random.default_rng(5)
    packed = rng.integers(0, 1 << 32, (3, 2, 8 if mode != "mxfp8" else 16), np.uint32)
    scales = rng.integers(0, 256, (3, 2, 64 // reference.GROUPS[mode]), np.uint8)
    want = reference.dequantize(reference.Weight(packed, scales, mode))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(ops.fp_dequantize(packed, scales, mode), want.astype(np.float32))


def test_example_of_the_format():
    w = np.zeros((1, 32), np.float32)
    w[0, :9] = [6, -6, 3, 1.5, 0.5, -0.5, 4, 2, 1]
    packed, scales = ops.fp_quantize(w, "mxfp4")
    assert packed.tolist() == [[0x469135F7, 0x00000002, 0, 0]]
    assert scales.tolist() == [[127]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite_stays_visible(mode, value):
    w = np.ones((2, 96), np.float32)
    w[1, 40] = value
    values = ops.fp_dequantize(*ops.fp_quantize(w, mode), mode)
    group = 40 // reference.GROUPS[mode] * reference.GROUPS[mode]
    bad = np.zeros(w.shape, bool)
    bad[1, group : group + reference.GROUPS[mode]] = True
    np.testing.assert_array_equal(np.isnan(values), bad)


@pytest.mark.parametrize("mode", MODES)
def test_values_out_of_range_are_the_nearest(mode):
    """Too small for any scale they are zeros or next to it, too large the largest there is."""
    w = np.zeros((2, 32), np.float32)
    w[0, :2] = 1e-45, -1e-45
    w[1, :2] = 1e38, -1e38
    values = ops.fp_dequantize(*ops.fp_quantize(w, mode), mode)
    assert np.abs(values[0]).max() < 2e-38
    top = 448 * 6 if mode == "nvfp4" else np.float32(1e38)
    np.testing.assert_allclose(values[1, :2], [top, -top], rtol=0.2)


def test_arguments_are_checked():
    w = np.zeros((2, 64), np.float32)
    packed, scales = ops.fp_quantize(w, "mxfp4")
    wrong = [
        ("fp_quantize: mode: expected one of mxfp4,", lambda: ops.fp_quantize(w, "affine")),
        ("fp_quantize: w: expected float32,", lambda: ops.fp_quantize(w.astype(np.float64))),
        ("fp_quantize: w: expected a last axis", lambda: ops.fp_quantize(w[:, :48])),
        ("fp_quantize: w: expected a last axis", lambda: ops.fp_quantize(w[:, :0])),
        ("fp_quantize: global_scale: expected None", lambda: ops.fp_quantize(w, "mxfp8", 1.0)),
        ("packed: expected uint32", lambda: ops.fp_dequantize(w, scales, "mxfp4")),
        ("packed: expected rows", lambda: ops.fp_dequantize(packed[:, :7], scales, "mxfp4")),
        ("scales: expected shape", lambda: ops.fp_dequantize(packed, scales, "nvfp4")),
        ("scales: expected uint8", lambda: ops.fp_dequantize(packed, w, "mxfp4")),
    ]
    for message, call in wrong:
        with pytest.raises(ArgumentError, match=message):
            call()
