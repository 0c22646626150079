"""Several products that are not quantised in one launch, against float64 and the kernels that it joins.

Does not catch: speed, and races between simdgroups, which the reference execution runs in turn.
"""

import ml_dtypes
import numpy as np
import pytest

from kernels.harness import Out, assert_close, of_shaders, run_kernel
from pyturbo import ops
from pyturbo.errors import ArgumentError
from reference import linear

OUTS = (21, 1, 13, 8)
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}

types = pytest.mark.parametrize("kind", TYPES)


def operands(rng, kind, count, width=160):
    """Return weights, x, and a bias of each weight."""
    weights = [rng.standard_normal((out, width)).astype(TYPES[kind]) for out in OUTS[:count]]
    biases = [rng.standard_normal(out, np.float32) for out in OUTS[:count]]
    return weights, rng.standard_normal((1, width), np.float32), biases


def run_project(device, kind, x, weights, bias=None):
    count = len(weights)
    arrays = [part for w in weights for part in (w, Out((len(w),)))]
    arrays += [None] * (2 * (4 - count))
    outs = [len(w) for w in weights] + [0] * (4 - count)
    constants = {f"has_{letter}": i < count for i, letter in enumerate("bcd", start=1)}
    constants |= {"adds_bias": bias is not None}
    name = f"dense_project_{kind}"
    return run_kernel(device, name, x[0], *arrays, bias, x.shape[1], *outs, constants=constants)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@types
def test_products_and_biases(device, rng, kind, count):
    weights, x, biases = operands(rng, kind, count)
    plain = run_project(device, kind, x, weights)
    sums = run_project(device, kind, x, weights, np.concatenate(biases))
    for y, with_bias, w, bias in zip(plain, sums, weights, biases):
        want, terms = linear.matmul(x, w)[0], linear.matmul_magnitude(x, w)[0]
        assert_close(y, want, "dot", terms)
        assert_close(with_bias, want + bias, "dot", terms + np.abs(bias))


@types
def test_same_bits_as_the_joined_kernels(device, rng, kind):
    device = of_shaders(device)
    weights, x, biases = operands(rng, kind, 4)
    plain = ops.dense_project(x, weights, device=device)
    sums = ops.dense_project(x, weights, np.concatenate(biases), device=device)
    for y, with_bias, w, bias in zip(plain, sums, weights, biases):
        want = ops.matmul(x, w, device=device)
        np.testing.assert_array_equal(y, want)
        np.testing.assert_array_equal(with_bias, ops.add_bias(want, bias, device=device))


@types
def test_nan_stays_in_its_row(device, rng, kind):
    weights, x, _ = operands(rng, kind, 4)
    weights[2][3, 1] = np.nan
    results = ops.dense_project(x, weights, device=device)
    assert [np.argwhere(np.isnan(y)).tolist() for y in results] == [[], [], [[0, 3]], []]


def test_checked(checked, rng):
    for kind in TYPES:
        for count in (1, 4):
            weights, x, biases = operands(rng, kind, count)
            run_project(checked, kind, x, weights, np.concatenate(biases))


def test_refuses(device, rng):
    weights, x, biases = operands(rng, "f16", 3)
    odd, row, _ = operands(rng, "f16", 1, 40)
    wrong = [
        ("weights: expected 1 to 4 weights, got 0 of them", (x, [])),
        ("weights: expected one format, got 2", (x, [weights[0], weights[0].astype(np.float32)])),
        ("weights: expected rows in units of 32, got 40", (row, odd)),
        (r"x: expected shape \[1, 160\], got \[1, 96\]", (x[:, :96], weights)),
        (r"bias: expected shape \[35\], got \[21\]", (x, weights, biases[0])),
    ]
    for message, args in wrong:
        with pytest.raises(ArgumentError, match=f"dense_project: {message}"):
            ops.dense_project(*args, device=device)
