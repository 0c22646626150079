"""Products of many tokens on an NVIDIA GPU: where they fill it, threadgroups compute two tiles of outs.

Large grids have more threadgroups than an H200 has multiprocessors; the last tokens, outs and stages are
not whole. What these tests cannot catch: GPUs that this machine has not; on one with more multiprocessors
they see tiles that other tests see, too.
"""

from __future__ import annotations

import numpy as np
import pytest

import cuda_in_tests
import pyturbo
from kernels import test_affine as of_affine
from kernels import test_fp as of_fp
from kernels import test_gguf as of_gguf
from kernels import test_linear as of_linear
from kernels.harness import assert_close
from kernels.random_blocks import random_weight as random_blocks
from kernels.test_fast_cuda import COARSE, product, rounded, rounds_affine, swiglu
from reference import affine, fp, gguf, linear

pytestmark = pytest.mark.skipif(
    cuda_in_tests.IN_USE or "cuda" not in pyturbo.devices(), reason="needs a GPU with matrix units"
)
OUTS = 11 * 128 + 5  # 12 threadgroups


@pytest.fixture(scope="module", params=["default", "fast"])
def device(request):
    with pyturbo.Device("cuda", precision=request.param) as device:
        yield device


@pytest.fixture(params=[12 * 64 + 35, 4 * 64 + 35], ids=["fills", "does not fill"])
def tokens(request):
    return request.param


def rows(rng, device, width, tokens):
    """Return values as they are, and as the device reads them."""
    x = rng.standard_normal((tokens, width)).astype(np.float32)
    return x, rounded(x) if is_fast(device) else x


def is_fast(device):
    return device.properties["precision"] == "fast"


def expected(formats, device, read, w, kind):
    return product(formats, read, w, is_fast(device) and kind in COARSE)


def rounds(device, bits, kind):
    return is_fast(device) and rounds_affine(device, bits, kind)


@pytest.mark.parametrize(
    ("bits", "group_size", "kind", "groups"),
    [
        (4, 64, "bf16", 3),
        (4, 64, "f16", 19),
        (4, 32, "f32", 5),
        (4, 128, "bf16", 3),
        (3, 64, "bf16", 3),
        (8, 32, "f16", 5),
    ],
)
def test_affine(device, tokens, rng, bits, group_size, kind, groups):
    w = of_affine.random_weight(rng, (OUTS, groups * group_size), bits, group_size, kind)
    x, read = rows(rng, device, groups * group_size, tokens)
    want, terms = product(affine, read, w, rounds(device, bits, kind))
    assert_close(of_affine.run_product(device, "affine_matmul", x, w), want, "long dot", terms)


@pytest.mark.parametrize(("bits", "group_size"), [(4, 64), (4, 32), (6, 128)])
def test_affine_swiglu(device, tokens, rng, bits, group_size):
    form = bits, group_size, "bf16"
    gate, up = (of_affine.random_weight(rng, (OUTS // 2, 3 * group_size), *form) for _ in range(2))
    x, read = rows(rng, device, 3 * group_size, tokens)
    want, terms = swiglu(read, gate, up, rounds(device, bits, "bf16"))
    assert_close(of_affine.run_product(device, "affine_swiglu_matmul", x, gate, up), want, "long dot", terms)


@pytest.mark.parametrize("mode", of_fp.MODES)
def test_small_floats(device, tokens, rng, mode):
    w = of_fp.random_weight(rng, (OUTS, 160), mode)
    x, read = rows(rng, device, 160, tokens)
    want, terms = expected(fp, device, read, w, mode)
    assert_close(of_fp.run_product(device, "fp_matmul", x, w), want, "long dot", terms)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K", "Q6_K", "Q8_0", "IQ4_NL"])
def test_blocks(device, tokens, rng, kind):
    w = random_blocks(rng, (OUTS, 3), kind)
    x, read = rows(rng, device, of_gguf.width(w), tokens)
    want, terms = expected(gguf, device, read, w, kind)
    assert_close(of_gguf.run_product(device, "gguf_matmul", x, w), want, "long dot", terms)


@of_linear.kinds
def test_dense(device, tokens, rng, kind):
    x, w = of_linear.operands(rng, tokens, OUTS, 160, of_linear.WEIGHTS[kind])
    read, weights = (rounded(x), rounded(w)) if is_fast(device) else (x, w)
    y = of_linear.run_product(device, "dense_matmul", x, w, kind)
    assert_close(y, linear.matmul(read, weights), "long dot", linear.matmul_magnitude(read, weights))


def test_what_is_not_finite_stays_in_its_token_and_row(device, tokens, rng):
    w = of_affine.random_weight(rng, (OUTS, 192), 4, 64, "bf16")
    w.scales[7, 1] = np.nan
    x, read = rows(rng, device, 192, tokens)
    x[3, 5], x[200, 100] = np.nan, np.inf
    y = of_affine.run_product(device, "affine_matmul", x, w)
    kept, outs = np.delete(np.arange(tokens), [3, 200]), np.delete(np.arange(OUTS), 7)
    assert not np.isfinite(y[[3, 200]]).any()
    assert np.isnan(y[:, 7]).all()
    finite = w._replace(packed=w.packed[outs], scales=w.scales[outs], biases=w.biases[outs])
    want, terms = product(affine, read[kept], finite, rounds(device, 4, "bf16"))
    assert_close(y[np.ix_(kept, outs)], want, "long dot", terms)


def test_codes_that_are_not_aligned(device, tokens, rng):
    w = of_fp.random_weight(rng, (OUTS, 160), "mxfp4")
    x, read = rows(rng, device, 160, tokens)
    want, terms = expected(fp, device, read, w, "mxfp4")
    codes = device.empty(w.packed.size + 1, np.uint32).view(w.packed.shape, np.uint32, offset=4)
    codes.write(w.packed)
    y = device.empty((tokens, OUTS))
    kernel = device.kernel("fp_matmul_mxfp4", of_fp.constants(w))
    kernel(x, codes, w.scales, w.global_scale, y, tokens, 160, OUTS)
    assert_close(y.read(), want, "long dot", terms)
