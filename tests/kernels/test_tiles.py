"""Products of several tiles, which have 64 tokens and 128 outs, and of few tokens with many rows.

References are float64.

Does not catch: mistakes in one format; the tests of each format have them all, in one tile.
"""

import numpy as np
import pytest

from kernels import test_affine as of_affine
from kernels import test_fp as of_fp
from kernels import test_gguf as of_gguf
from kernels.harness import assert_close
from kernels.random_blocks import random_weight as random_blocks
from reference import affine, fp, gguf
from reference.activations import as_read

TOKENS, OUTS = 67, 133
#: Buckets of an expert without rows, of one tile that is not full, of a full one, and of two.
OFFSETS = np.array([0, 0, 63, 127, 192, 193], np.int32)


def rows(rng, tokens, width):
    return rng.standard_normal((tokens, width)).astype(np.float32)


def test_affine_matmul(device, rng):
    w = of_affine.random_weight(rng, (OUTS, 128), 4, 64, "bf16")
    x = rows(rng, TOKENS, 128)
    want, terms = affine.matmul(as_read(device, x, 64, TOKENS), w)
    assert_close(of_affine.run_product(device, "affine_matmul", x, w), want, "long dot", terms)


def test_affine_swiglu_matmul(device, rng):
    gate, up = (of_affine.random_weight(rng, (OUTS, 64), 4, 64, "bf16") for _ in range(2))
    x = rows(rng, TOKENS, 64)
    want, terms = affine.swiglu(as_read(device, x, 64, TOKENS), gate, up)
    assert_close(of_affine.run_product(device, "affine_swiglu_matmul", x, gate, up), want, "long dot", terms)


def test_affine_grouped_matmul(device, rng):
    w = of_affine.random_weight(rng, (5, OUTS, 64), 4, 64, "bf16")
    x = rows(rng, 193, 64)
    want, terms = affine.grouped_matmul(as_read(device, x, 64, TOKENS), OFFSETS, w)
    assert_close(of_affine.run_grouped(device, x, OFFSETS, w), want, "long dot", terms)


def test_affine_grouped_swiglu(device, rng):
    gate, up = (of_affine.random_weight(rng, (5, OUTS, 64), 4, 64, "bf16") for _ in range(2))
    x = rows(rng, 193, 64)
    want, terms = affine.grouped_swiglu(as_read(device, x, 64, TOKENS), OFFSETS, gate, up)
    assert_close(of_affine.run_grouped(device, x, OFFSETS, gate, up), want, "long dot", terms)


def test_fp(device, rng):
    w = of_fp.random_weight(rng, (OUTS, 96), "mxfp4")
    x = rows(rng, TOKENS, 96)
    want, terms = fp.matmul(of_fp.read_by(device, x, "mxfp4"), w)
    assert_close(of_fp.run_product(device, "fp_matmul", x, w), want, "long dot", terms)
    up = of_fp.random_weight(rng, (OUTS, 96), "mxfp4")
    want, terms = fp.swiglu(of_fp.read_by(device, x, "mxfp4"), w, up)
    assert_close(of_fp.run_product(device, "fp_swiglu_matmul", x, w, up), want, "long dot", terms)
    stack, other = (of_fp.random_weight(rng, (5, OUTS, 32), "mxfp4") for _ in range(2))
    x = rows(rng, 193, 32)
    read = of_fp.read_by(device, x, "mxfp4")
    want, terms = fp.grouped_matmul(read, OFFSETS, stack)
    assert_close(of_fp.run_grouped(device, x, OFFSETS, stack), want, "long dot", terms)
    want, terms = fp.grouped_swiglu(read, OFFSETS, stack, other)
    assert_close(of_fp.run_grouped(device, x, OFFSETS, stack, other), want, "long dot", terms)


@pytest.mark.parametrize("kind", ["Q8_0", "Q6_K"])
def test_gguf(device, rng, kind):
    gate, up = (random_blocks(rng, (OUTS, 1), kind) for _ in range(2))
    x = rows(rng, TOKENS, of_gguf.width(gate))
    read = of_gguf.read_by(device, x, kind)
    want, terms = gguf.matmul(read, gate)
    assert_close(of_gguf.run_product(device, "gguf_matmul", x, gate), want, "long dot", terms)
    want, terms = gguf.swiglu(read, gate, up)
    assert_close(of_gguf.run_product(device, "gguf_swiglu_matmul", x, gate, up), want, "long dot", terms)
    stack, other = (random_blocks(rng, (5, OUTS, 1), kind) for _ in range(2))
    x = rows(rng, 193, of_gguf.width(stack))
    read = of_gguf.read_by(device, x, kind)
    want, terms = gguf.grouped_matmul(read, OFFSETS, stack)
    assert_close(of_gguf.run_grouped(device, x, OFFSETS, stack), want, "long dot", terms)
    want, terms = gguf.grouped_swiglu(read, OFFSETS, stack, other)
    assert_close(of_gguf.run_grouped(device, x, OFFSETS, stack, other), want, "long dot", terms)


#: So many that a threadgroup of a GPU may have more rows of a product of few tokens.
MANY_ROWS = 3085


def test_few_tokens_of_many_rows(device, rng):
    w = of_affine.random_weight(rng, (MANY_ROWS, 192), 4, 64, "bf16")
    x = rows(rng, 5, 192)
    want, terms = affine.matmul(x.astype(np.float64), w)
    assert_close(of_affine.run_product(device, "affine_few_matmul", x, w), want, "long dot", terms)
    gate, up = (of_affine.random_weight(rng, (MANY_ROWS, 96), 8, 32, "f16") for _ in range(2))
    x = rows(rng, 3, 96)
    want, terms = affine.swiglu(x.astype(np.float64), gate, up)
    assert_close(of_affine.run_product(device, "affine_few_swiglu", x, gate, up), want, "long dot", terms)
    w = random_blocks(rng, (MANY_ROWS, 1), "Q6_K")
    x = rows(rng, 2, of_gguf.width(w))
    want, terms = gguf.matmul(x.astype(np.float64), w)
    assert_close(of_gguf.run_product(device, "gguf_few_matmul", x, w), want, "long dot", terms)
