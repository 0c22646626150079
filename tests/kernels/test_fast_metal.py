"""Products of many tokens with fast precision on Metal: activations and weights are one bf16 each, sums f32.

The reference devices run the same shaders with the function constant that the Metal device sets. References
are float64 products of what is rounded, and of what is not. What these tests cannot catch: sums of Apple's
matrix units that are not f32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyturbo
from kernels import test_affine as of_affine
from kernels import test_fp as of_fp
from kernels import test_gguf as of_gguf
from kernels import test_linear as of_linear
from kernels.harness import assert_close
from kernels.random_blocks import random_weight as random_blocks
from kernels.test_fast_cuda import OFFSETS, OUTS, TOKENS, grouped, product, rounded, rows, swiglu
from reference import affine, fp, gguf, linear


class WithRounding:
    """A device whose products of many tokens have the function constant of fast precision."""

    name = "with rounding"

    def __init__(self, device: pyturbo.Device):
        self._device = device

    def kernel(self, name: str, constants: dict[str, Any]) -> pyturbo.Kernel:
        return self._device.kernel(name, {**constants, "bf16_operands": True})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


@pytest.fixture(scope="module", params=["metal", "cpu:reference", "checked"])
def device(request):
    if request.param == "metal" and "metal" not in pyturbo.devices():
        pytest.skip("needs Metal, or gobjc++ and libgnustep-base-dev")
    name = "metal" if request.param == "metal" else "cpu:reference"
    with pyturbo.Device(name, threads=2, check=request.param == "checked", precision="fast") as device:
        yield device if name == "metal" else WithRounding(device)


def test_the_device_says_its_precision():
    if "metal" not in pyturbo.devices():
        pytest.skip("needs Metal, or gobjc++ and libgnustep-base-dev")
    for precision in ("default", "fast"):
        with pyturbo.Device("metal", precision=precision) as device:
            assert device.properties["precision"] == precision


@of_affine.formats
def test_affine(device, rng, bits, group_size, kind):
    w = of_affine.random_weight(rng, (OUTS, 3 * group_size), bits, group_size, kind)
    x, read = rows(rng, 33, 3 * group_size)
    want, terms = product(affine, read, w, rounds=True)
    y = of_affine.run_product(device, "affine_matmul", x, w)
    assert_close(y, want, "long dot", terms)
    exact, terms = affine.matmul(x, w)
    assert_close(y, exact, "long dot of bfloats", terms)
    assert np.abs(y - exact).max() > 2e-5 * terms.max()  # they are rounded


@pytest.mark.parametrize("tokens", [1, 8, 16, 17, 63, TOKENS])
def test_any_number_of_tokens(device, rng, tokens):
    w = of_affine.random_weight(rng, (OUTS, 160), 4, 32, "bf16")
    x, read = rows(rng, tokens, 160)
    want, terms = product(affine, read, w, rounds=True)
    assert_close(of_affine.run_product(device, "affine_matmul", x, w), want, "long dot", terms)


@of_affine.some_formats
def test_affine_swiglu_and_experts(device, rng, bits, group_size, kind):
    form = bits, group_size, kind
    gate, up = (of_affine.random_weight(rng, (OUTS, group_size), *form) for _ in range(2))
    x, read = rows(rng, TOKENS, group_size)
    want, terms = swiglu(read, gate, up, rounds=True)
    y = of_affine.run_product(device, "affine_swiglu_matmul", x, gate, up)
    assert_close(y, want, "long dot", terms)
    stack = of_affine.random_weight(rng, (5, 37, group_size), *form)
    x, read = rows(rng, OFFSETS[-1], group_size)
    want, terms = grouped(affine, read, stack, rounds=True)
    assert_close(of_affine.run_grouped(device, x, OFFSETS, stack), want, "long dot", terms)


@pytest.mark.parametrize("mode", of_fp.MODES)
def test_small_floats(device, rng, mode):
    """All of them are values of bf16."""
    w = of_fp.random_weight(rng, (OUTS, 96), mode)
    x, read = rows(rng, TOKENS, 96)
    want, terms = product(fp, read, w, rounds=False)
    assert_close(of_fp.run_product(device, "fp_matmul", x, w), want, "long dot", terms)
    stack = of_fp.random_weight(rng, (5, 37, 32), mode)
    x, read = rows(rng, OFFSETS[-1], 32)
    want, terms = grouped(fp, read, stack, rounds=False)
    assert_close(of_fp.run_grouped(device, x, OFFSETS, stack), want, "long dot", terms)


@pytest.mark.parametrize("kind", of_gguf.KINDS)
def test_blocks(device, rng, kind):
    w = random_blocks(rng, (37, 1), kind)
    x, read = rows(rng, TOKENS, of_gguf.width(w))
    want, terms = product(gguf, read, w, rounds=True)
    assert_close(of_gguf.run_product(device, "gguf_matmul", x, w), want, "long dot", terms)


@of_linear.kinds
def test_dense(device, rng, kind):
    x, w = of_linear.operands(rng, TOKENS, OUTS, 160, of_linear.WEIGHTS[kind])
    read, weights = rounded(x), rounded(w)
    y = of_linear.run_product(device, "dense_matmul", x, w, kind)
    assert_close(y, linear.matmul(read, weights), "long dot", linear.matmul_magnitude(read, weights))


def test_extreme_rows_stay_apart(device, rng):
    """NaN and inf fill their own token; huge and tiny rows are as exact as others."""
    w = of_affine.random_weight(rng, (OUTS, 128), 4, 64, "bf16")
    x = rng.standard_normal((TOKENS, 128)).astype(np.float32)
    x[0] *= 1e30
    x[1] *= 1e-30
    x[3, 5], x[20, 100] = np.nan, np.inf
    y = of_affine.run_product(device, "affine_matmul", x, w)
    assert np.isnan(y[3]).all()
    assert not np.isfinite(y[20]).any()
    others = np.delete(np.arange(TOKENS), [3, 20])
    want, terms = product(affine, rounded(x[others]), w, rounds=True)
    assert_close(y[others], want, "long dot", terms)
