"""Several products with blocks of GGUF in one launch, against float64 and the kernels that it joins.

Does not catch: speed, and races between simdgroups, which the reference execution runs in turn.
"""

import numpy as np
import pytest

from kernels.harness import Out, assert_close, of_shaders, run_kernel
from kernels.random_blocks import random_weight
from kernels.test_gguf import random_rows, width
from pyturbo import ops
from pyturbo.errors import ArgumentError
from reference import gguf as reference

OUTS = (21, 1, 13, 8)

kinds = pytest.mark.parametrize("kind", ops.PROJECTION_KINDS)
counts = pytest.mark.parametrize("count", [1, 2, 3, 4])


def operands(rng, kind, count):
    """Return weights, x, and a bias of each weight."""
    weights = [random_weight(rng, (out, 3), kind) for out in OUTS[:count]]
    biases = [rng.standard_normal(out, np.float32) for out in OUTS[:count]]
    return weights, random_rows(rng, 1, width(weights[0])), biases


def run_project(device, x, weights, bias=None):
    count = len(weights)
    arrays = [part for w in weights for part in (w.blocks, Out((len(w.blocks),)))]
    arrays += [None] * (2 * (4 - count))
    outs = [len(w.blocks) for w in weights] + [0] * (4 - count)
    constants = {f"has_{letter}": i < count for i, letter in enumerate("bcd", start=1)}
    constants |= {"adds_bias": bias is not None}
    name = f"gguf_project_{weights[0].kind.lower()}"
    return run_kernel(device, name, x[0], *arrays, bias, x.shape[1], *outs, constants=constants)


@counts
@kinds
def test_products_and_biases(device, rng, kind, count):
    weights, x, biases = operands(rng, kind, count)
    plain = run_project(device, x, weights)
    sums = run_project(device, x, weights, np.concatenate(biases))
    for y, with_bias, w, bias in zip(plain, sums, weights, biases):
        want, terms = reference.matmul(x, w)
        assert_close(y, want[0], "dot", terms[0])
        assert_close(with_bias, want[0] + bias, "dot", terms[0] + np.abs(bias))


@kinds
def test_same_bits_as_the_joined_kernels(device, rng, kind):
    device = of_shaders(device)
    weights, x, biases = operands(rng, kind, 4)
    plain = ops.gguf_project(x, weights, device=device)
    sums = ops.gguf_project(x, weights, np.concatenate(biases), device=device)
    for y, with_bias, w, bias in zip(plain, sums, weights, biases):
        want = ops.gguf_matmul(x, *w, device=device)
        np.testing.assert_array_equal(y, want)
        np.testing.assert_array_equal(with_bias, ops.add_bias(want, bias, device=device))


def test_nan_of_x_reaches_all_and_no_other_memory(device, rng):
    weights, x, _ = operands(rng, "Q8_0", 3)
    x[0, 5] = np.nan
    assert all(np.isnan(y).all() for y in run_project(device, x, weights))


def test_checked(checked, rng):
    for kind in ops.PROJECTION_KINDS:
        for count in (1, 4):
            weights, x, biases = operands(rng, kind, count)
            run_project(checked, x, weights, np.concatenate(biases))


def test_refuses(device, rng):
    weights, x, biases = operands(rng, "Q4_K", 3)
    other, old = random_weight(rng, (3, 3), "Q6_K"), random_weight(rng, (3, 24), "Q4_0")
    wrong = [
        ("weights: expected 1 to 4 weights, got 0 of them", (x, [])),
        ("weights: expected one format, got 2", (x, [weights[0], other])),
        ("weights: expected one of Q8_0, Q4_K, Q5_K, Q6_K, got Q4_0", (x, [old])),
        (r"x: expected shape \[1, 768\], got \[1, 256\]", (x[:, :256], weights)),
        (r"bias: expected shape \[35\], got \[21\]", (x, weights, biases[0])),
    ]
    for message, args in wrong:
        with pytest.raises(ArgumentError, match=f"gguf_project: {message}"):
            ops.gguf_project(*args, device=device)
