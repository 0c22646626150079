"""Products of many tokens with fast precision on an NVIDIA GPU: activations are one bf16 each.

Codes are exact. Weights with a scale for 16 values are one bf16 each, too, and on Hopper those of 4 bits with
scales of bf16. What these tests cannot catch: GPUs that this machine has not.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from ml_dtypes import bfloat16

import cuda_in_tests
import pyturbo
from kernels import test_affine as of_affine
from kernels import test_fp as of_fp
from kernels import test_gguf as of_gguf
from kernels.harness import assert_close
from kernels.random_blocks import random_weight as random_blocks
from reference import affine, fp, gguf

pytestmark = pytest.mark.skipif(
    cuda_in_tests.IN_USE or "cuda" not in pyturbo.devices(), reason="needs a GPU with matrix units"
)
TOKENS, OUTS = 67, 133  # more than a tile of each
OFFSETS = np.array([0, 0, 63, 127, 192, 193], np.int32)
COARSE = ("Q2_K", "Q3_K", "Q6_K", "nvfp4")  # a scale for 16 values


@pytest.fixture(scope="module")
def device():
    with pyturbo.Device("cuda", precision="fast") as device:
        assert device.properties["precision"] == "fast"
        yield device


def rows(rng, tokens, width):
    """Return values as they are, and as the matrix units read them."""
    x = rng.standard_normal((tokens, width)).astype(np.float32)
    return x, rounded(x)


def rounded(values):
    return values.astype(np.float32).astype(bfloat16).astype(np.float64)


def product(formats, read, w, rounds):
    """Return the product of what is read, and the magnitude of its terms."""
    want, terms = formats.matmul(read, w)
    return (read @ rounded(formats.dequantize(w)).T if rounds else want), terms


def rounds_affine(device, bits, kind):
    """Tell whether a device with fast precision rounds these weights to bf16."""
    return device.properties["compute capability"] == "9.0" and (bits, kind) == (4, "bf16")


def swiglu(read, gate, up, rounds):
    """Return the product as ``product`` does."""
    want, terms = affine.swiglu(read, gate, up)
    if not rounds:
        return want, terms
    of_gate, of_up = (read @ rounded(affine.dequantize(w)).T for w in (gate, up))
    return affine.silu(of_gate) * of_up, terms


def grouped(formats, read, w, rounds):
    parts = [
        product(formats, read[begin:end], formats.expert(w, e), rounds)
        for e, (begin, end) in enumerate(pairwise(OFFSETS))
    ]
    return tuple(np.concatenate(each) for each in zip(*parts))


@of_affine.formats
def test_affine(device, rng, bits, group_size, kind):
    w = of_affine.random_weight(rng, (OUTS, 5 * group_size), bits, group_size, kind)
    x, read = rows(rng, TOKENS, 5 * group_size)
    want, terms = product(affine, read, w, rounds_affine(device, bits, kind))
    y = of_affine.run_product(device, "affine_matmul", x, w)
    assert_close(y, want, "long dot", terms)
    exact, _ = affine.matmul(x, w)
    assert np.abs(y - exact).max() > 2e-5 * terms.max()  # they are rounded
    for tokens in (1, 16, 17, 33):
        assert_close(
            of_affine.run_product(device, "affine_matmul", x[:tokens], w),
            want[:tokens],
            "long dot",
            terms[:tokens],
        )


@of_affine.some_formats
def test_affine_swiglu_and_experts(device, rng, bits, group_size, kind):
    form = bits, group_size, kind
    gate, up = (of_affine.random_weight(rng, (OUTS, 3 * group_size), *form) for _ in range(2))
    x, read = rows(rng, TOKENS, 3 * group_size)
    rounds = rounds_affine(device, bits, kind)
    want, terms = swiglu(read, gate, up, rounds)
    y = of_affine.run_product(device, "affine_swiglu_matmul", x, gate, up)
    assert_close(y, want, "long dot", terms)
    stack = of_affine.random_weight(rng, (5, OUTS, group_size), *form)
    x, read = rows(rng, OFFSETS[-1], group_size)
    want, terms = grouped(affine, read, stack, rounds)
    assert_close(of_affine.run_grouped(device, x, OFFSETS, stack), want, "long dot", terms)


@pytest.mark.parametrize("mode", of_fp.MODES)
def test_small_floats(device, rng, mode):
    w = of_fp.random_weight(rng, (OUTS, 96), mode)
    x, read = rows(rng, TOKENS, 96)
    want, terms = product(fp, read, w, mode in COARSE)
    assert_close(of_fp.run_product(device, "fp_matmul", x, w), want, "long dot", terms)
    stack = of_fp.random_weight(rng, (5, OUTS, 96), mode)
    x, read = rows(rng, OFFSETS[-1], 96)
    want, terms = grouped(fp, read, stack, mode in COARSE)
    assert_close(of_fp.run_grouped(device, x, OFFSETS, stack), want, "long dot", terms)


@pytest.mark.parametrize("kind", of_gguf.KINDS)
def test_blocks(device, rng, kind):
    w = random_blocks(rng, (OUTS, 3), kind)
    x, read = rows(rng, TOKENS, of_gguf.width(w))
    want, terms = product(gguf, read, w, kind in COARSE)
    assert_close(of_gguf.run_product(device, "gguf_matmul", x, w), want, "long dot", terms)
    stack = random_blocks(rng, (5, OUTS, 1), kind)
    x, read = rows(rng, OFFSETS[-1], of_gguf.width(stack))
    want, terms = grouped(gguf, read, stack, kind in COARSE)
    assert_close(of_gguf.run_grouped(device, x, OFFSETS, stack), want, "long dot", terms)


def test_what_is_not_finite_stays_in_its_token(device, rng):
    w = of_affine.random_weight(rng, (OUTS, 128), 4, 64, "bf16")
    x, read = rows(rng, TOKENS, 128)
    x[3, 5], x[20, 100] = np.nan, np.inf
    y = of_affine.run_product(device, "affine_matmul", x, w)
    others = [token for token in range(TOKENS) if token not in (3, 20)]
    assert not np.isfinite(y[[3, 20]]).any()
    want, terms = product(affine, read[others], w, rounds_affine(device, 4, "bf16"))
    assert_close(y[others], want, "long dot", terms)
