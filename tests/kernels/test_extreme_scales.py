"""Products with powers of two as scales, from the smallest there is to the largest, at every level.

Results are those of float64 wherever no sum of terms leaves the range of float32, and NaN where a scale is.
What these tests cannot catch: levels that this machine has not.
"""

from __future__ import annotations

import numpy as np
import pytest

from kernels import test_affine, test_fp, test_gguf
from kernels.harness import assert_close
from kernels.levels import LEVELS, device_at
from reference import affine, fp, gguf
from reference.activations import as_read

pytestmark = pytest.mark.skipif(not LEVELS, reason="this machine has no level")
precisions = pytest.mark.parametrize("precision", ["default", "fast"])

RUN = {"fp": test_fp.run_product, "gguf": test_gguf.run_product}
LARGEST = 2.0**127  # what stays below it is finite, in any order of additions


def scales(rng, groups):
    """Rows with every scale as that of all groups, then as that of one beside small ones."""
    every = np.arange(256, dtype=np.uint8)
    mixed = rng.integers(0, 3, (256, groups), np.uint8)
    mixed[every, every % groups] = every
    return np.concatenate([np.repeat(every[:, None], groups, 1), mixed])


def weights(own, codes):
    """Codes and scales as mxfp4 of MLX and as MXFP4 of GGUF, which has no NaN, and their values."""
    packed = np.ascontiguousarray(codes[:, ::2] | codes[:, 1::2] << 4).view(np.uint32)
    halves = codes.reshape(*own.shape, 2, 16)
    blocks = np.concatenate([own[..., None], halves[:, :, 0] | halves[:, :, 1] << 4], axis=-1)
    numbers, each = fp.e2m1(codes.astype(np.int64)), np.repeat(own, 32, 1)
    return (
        ("fp", fp.Weight(packed, own, "mxfp4"), numbers * fp.e8m0(each)),
        ("gguf", gguf.Weight(blocks.reshape(len(own), -1), "MXFP4"), numbers * 2.0 ** (each - 127.0)),
    )


@pytest.mark.parametrize("groups", [3, 19])
@pytest.mark.parametrize("size", [2.0**-24, 1.0, 2.0**20])
@precisions
def test_every_power_of_two(level, rng, precision, size, groups):
    device = device_at(level, precision)
    x = (rng.standard_normal((9, groups * 32)) * size).astype(np.float32)
    x[1], x[2, 32:] = 0, 0
    read, own = as_read(device, x, 32), scales(rng, groups)
    for family, w, values in weights(own, rng.integers(0, 16, (len(own), groups * 32), np.uint8)):
        want, terms = read @ values.T, np.abs(read) @ np.abs(values).T
        for op, tokens in (("matvec", 1), ("matvec", 7), ("matmul", 9)):
            seen = np.isnan(want) | (terms < LARGEST)
            if op == "matmul":  # which makes floats of the weights, as its shader does
                seen &= np.isnan(want) | (np.abs(values).max(axis=1) < 2 * LARGEST)
            seen = seen[:tokens]
            y = RUN[family](device, f"{family}_{op}", x[:tokens], w)
            assert_close(y[seen], want[:tokens][seen], "dot", terms[:tokens][seen])


def test_weights_that_are_floats_are_used(level, rng):
    """Codes of 0, 1/2 and -1/2: times the largest scales they are finite."""
    x = (rng.standard_normal((9, 96)) * 2.0**-24).astype(np.float32)
    own = np.repeat(np.arange(245, 256, dtype=np.uint8)[:, None], 3, 1)
    for family, w, values in weights(own, rng.choice(np.uint8([0, 1, 8, 9]), (len(own), 96))):
        y = RUN[family](device_at(level), f"{family}_matmul", x, w)
        assert_close(y, x.astype(np.float64) @ values.T, "dot", np.abs(x) @ np.abs(values).T)


@pytest.mark.parametrize("group_size", [32, 128])
@pytest.mark.parametrize("scale", [2.0**-120, 2.0**119])
@precisions
def test_affine_scales(level, rng, precision, group_size, scale):
    """Codes of 8 bits, which the processor takes as signed bytes where it has only such products."""
    device = device_at(level, precision)
    w = test_affine.random_weight(rng, (20, 256), 8, group_size, "f32")
    w = w._replace(scales=w.scales * np.float32(scale), biases=w.biases * np.float32(scale))
    x = rng.standard_normal((9, 256)).astype(np.float32) * np.float32(2.0**-20 if scale > 1 else 1)
    want, terms = affine.matmul(as_read(device, x, group_size), w)
    for op, tokens in (("affine_matvec", 1), ("affine_matvec", 7), ("affine_matmul", 9)):
        y = test_affine.run_product(device, op, x[:tokens], w)
        assert_close(y, want[:tokens], "dot", terms[:tokens])
