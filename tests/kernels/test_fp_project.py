"""Several products with small floats in one launch, against float64 and against the kernel that it joins.

Does not catch: speed, and races between simdgroups, which the reference execution runs in turn.
"""

import numpy as np
import pytest

from kernels.harness import Out, assert_close, of_shaders, run_kernel
from kernels.test_fp import modes, random_rows, random_weight
from pyturbo import ops
from pyturbo.errors import ArgumentError
from reference import fp as reference

OUTS = (21, 1, 13, 8)
IN = 160


def operands(rng, mode, count):
    return [random_weight(rng, (out, IN), mode) for out in OUTS[:count]], random_rows(rng, 1, IN)


def run_project(device, x, weights):
    count = len(weights)
    arrays = [part for w in weights for part in (w.packed, w.scales, Out((len(w.packed),)))]
    arrays += [None] * (3 * (4 - count))
    outs = [len(w.packed) for w in weights] + [0] * (4 - count)
    constants = {f"has_{letter}": i < count for i, letter in enumerate("bcd", start=1)}
    name = f"fp_project_{weights[0].mode}"
    return run_kernel(device, name, x[0], *arrays, x.shape[1], *outs, constants=constants)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@modes
def test_products(device, rng, mode, count):
    weights, x = operands(rng, mode, count)
    for y, w in zip(run_project(device, x, weights), weights):
        want, terms = reference.matmul(x, w)
        assert_close(y, want[0], "dot", terms[0])


@modes
def test_same_bits_as_the_joined_kernel(device, rng, mode):
    device = of_shaders(device)
    weights, x = operands(rng, mode, 4)
    for y, w in zip(ops.fp_project(x, weights, device=device), weights):
        np.testing.assert_array_equal(y, ops.fp_matmul(x, *w, device=device))


@modes
def test_nan_stays_in_its_row(device, rng, mode):
    weights, x = operands(rng, mode, 4)
    weights[2].scales[3, 1] = 0x7F if mode == "nvfp4" else 0xFF
    results = ops.fp_project(x, weights, device=device)
    assert [np.argwhere(np.isnan(y)).tolist() for y in results] == [[], [], [[0, 3]], []]


def test_checked(checked, rng):
    for mode in ("mxfp4", "mxfp8", "nvfp4"):
        for count in (1, 4):
            weights, x = operands(rng, mode, count)
            run_project(checked, x, weights)


def test_refuses(device, rng):
    weights, x = operands(rng, "nvfp4", 3)
    scaled = random_weight(rng, (3, IN), "nvfp4", scaled=True)
    wrong = [
        ("weights: expected 1 to 4 weights, got 5 of them", (x, [weights[0]] * 5)),
        ("weights: expected one format, got 2", (x, [weights[0], random_weight(rng, (3, IN), "mxfp4")])),
        ("weights: expected no global scales", (x, [scaled])),
        (r"x: expected shape \[1, 160\], got \[1, 96\]", (x[:, :96], weights)),
    ]
    for message, args in wrong:
        with pytest.raises(ArgumentError, match=f"fp_project: {message}"):
            ops.fp_project(*args, device=device)
