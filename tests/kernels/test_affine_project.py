"""Several products of one input in one launch, against float64 and against the kernels that it joins.

Does not catch: speed, and races between simdgroups, which the reference execution runs in turn.
"""

import numpy as np
import pytest

from kernels.harness import Out, assert_close, of_shaders, run_kernel
from kernels.test_affine import GROUP_SIZES, TYPES, name, random_rows, random_weight
from pyturbo import ops
from pyturbo.errors import ArgumentError
from reference import affine as reference
from reference import delta
from reference.norm import rms_norm

OUTS = (21, 1, 13, 8)

FORMATS = [(bits, group, kind) for bits in (4, 8) for group in GROUP_SIZES for kind in ("f16", "bf16")]

formats = pytest.mark.parametrize(("bits", "group_size", "kind"), FORMATS)
some_formats = pytest.mark.parametrize(("bits", "group_size", "kind"), FORMATS[::4])


def random_weights(rng, count, in_dim, bits, group_size, kind):
    return [random_weight(rng, (out, in_dim), bits, group_size, kind) for out in OUTS[:count]]


def run_project(device, x, weights, norm=None, conv=None, bias=None):
    """Return h and sum if there is a norm, the products, and the history if there is a convolution."""
    in_dim, count = x.shape[1], len(weights)
    before = (None,) * 4 if norm is None else (*norm, Out((in_dim,)), Out((in_dim,)))
    after = (None,) * 2 if conv is None else (Out(conv[0].shape, initial=conv[0]), conv[1])
    arrays = [part for w in weights for part in (*w[:3], Out((len(w.packed),)))]
    arrays += [None] * (4 * (4 - count))
    outs = [len(w.packed) for w in weights] + [0] * (4 - count)
    constants = {f"has_{letter}": i < count for i, letter in enumerate("bcd", start=1)}
    constants |= {"has_norm": norm is not None, "has_conv": conv is not None, "adds_bias": bias is not None}
    args = (x[0], *before, *arrays, *after, bias, in_dim, *outs, weights[0].group_size, 1e-5)
    return run_kernel(device, name("affine_project", weights[0]), *args, constants=constants)


@formats
def test_products(device, rng, bits, group_size, kind):
    count = 1 + (bits // 4 + group_size // 32) % 4
    weights = random_weights(rng, count, 3 * group_size, bits, group_size, kind)
    x = random_rows(rng, 1, 3 * group_size)
    results = run_project(device, x, weights)
    assert len(results) == count
    for y, w in zip(results, weights):
        want, terms = reference.matmul(x, w)
        assert_close(y, want[0], "dot", terms[0])


def random_bias(rng, weights):
    return rng.standard_normal(sum(len(w[0]) for w in weights), np.float32)


@some_formats
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_biases(device, rng, count, bits, group_size, kind):
    weights = random_weights(rng, count, group_size, bits, group_size, kind)
    x, bias = random_rows(rng, 1, group_size), random_bias(rng, weights)
    results = run_project(device, x, weights, bias=bias)
    for y, w, own in zip(results, weights, np.split(bias, np.cumsum(OUTS[:count])[:-1])):
        want, terms = reference.matmul(x, w)
        assert_close(y, want[0] + own, "dot", terms[0] + np.abs(own))


@some_formats
def test_convolution(device, rng, bits, group_size, kind):
    weights = random_weights(rng, 3, group_size, bits, group_size, kind)
    x, history = random_rows(rng, 1, group_size), random_rows(rng, 3, OUTS[0])
    taps = rng.standard_normal((OUTS[0], 4)).astype(TYPES[kind])
    mixed, *others, rows = run_project(device, x, weights, conv=(history, taps))
    row, terms = reference.matmul(x, weights[0])
    want, _ = delta.conv1d(row, history, taps)
    terms = delta.conv1d_magnitude(terms, history, taps)
    assert_close(mixed, want[0], "dot", 1.1 * terms[0])  # the steepest slope of silu
    np.testing.assert_array_equal(rows[:2], history[1:])
    assert_close(rows[2], row[0], "dot", reference.matmul(x, weights[0])[1][0])
    for y, w in zip(others, weights[1:]):
        want, terms = reference.matmul(x, w)
        assert_close(y, want[0], "dot", terms[0])


@some_formats
@pytest.mark.parametrize("groups", [1, 9])
def test_norm(device, rng, groups, bits, group_size, kind):
    in_dim = groups * group_size
    weights = random_weights(rng, 2, in_dim, bits, group_size, kind)
    x, residual = random_rows(rng, 2, 1, in_dim)
    residual *= 1e3
    scale = rng.uniform(0.5, 2, in_dim).astype(TYPES[kind])
    h, total, *results = run_project(device, x, weights, norm=(residual[0], scale))
    np.testing.assert_array_equal(total, (x + residual)[0])
    assert_close(h, rms_norm(x + residual, scale, 1e-5)[0], "norm")
    for y, w in zip(results, weights):
        want, terms = reference.matmul(h[None], w)
        assert_close(y, want[0], "dot", terms[0])


def test_norm_of_a_row_whose_squares_overflow(device, rng):
    weights = random_weights(rng, 1, 128, 4, 64, "f16")
    x, residual = random_rows(rng, 2, 1, 128)
    scale = np.ones(128, np.float16)
    h, *_ = run_project(device, x * np.float32(1e25), weights, norm=(residual[0], scale))
    assert_close(h, rms_norm(x * np.float32(1e25) + residual, scale, 1e-5)[0], "norm")


@some_formats
def test_same_bits_as_the_joined_kernels(device, rng, bits, group_size, kind):
    device = of_shaders(device)
    weights = random_weights(rng, 4, 5 * group_size, bits, group_size, kind)
    x, history = random_rows(rng, 1, 5 * group_size), random_rows(rng, 3, OUTS[0])
    taps = rng.standard_normal((OUTS[0], 4)).astype(TYPES[kind])
    products = [ops.affine_matmul(x, *w, device=device) for w in weights]
    for y, want in zip(ops.affine_project(x, weights, device=device), products):
        np.testing.assert_array_equal(y, want)
    results, rows = ops.affine_conv_project(x, weights, history.copy(), taps, device=device)
    mixed, kept = ops.conv1d(products[0], history.copy(), taps, device=device)
    np.testing.assert_array_equal(rows, kept)
    for y, want in zip(results, [mixed, *products[1:]]):
        np.testing.assert_array_equal(y, want)
    bias = random_bias(rng, weights)
    each = np.split(bias, np.cumsum(OUTS)[:-1])
    products = [ops.add_bias(y, own, device=device) for y, own in zip(products, each)]
    for y, want in zip(ops.affine_project(x, weights, bias, device=device), products):
        np.testing.assert_array_equal(y, want)
    results, _ = ops.affine_conv_project(x, weights, history.copy(), taps, bias, device=device)
    mixed, _ = ops.conv1d(products[0], history.copy(), taps, device=device)
    for y, want in zip(results, [mixed, *products[1:]]):
        np.testing.assert_array_equal(y, want)
    scale = rng.uniform(0.5, 2, x.shape[1]).astype(TYPES[kind])
    operands = x, x * 2, scale, 1e-5, weights[:2]
    h, total, results = ops.affine_norm_project(*operands, device=device)
    np.testing.assert_array_equal(total, x * 3)
    biased = ops.affine_norm_project(*operands, np.concatenate(each[:2]), device=device)[2]
    for y, sums, w, own in zip(results, biased, weights, each):
        np.testing.assert_array_equal(y, ops.affine_matmul(h, *w, device=device))
        np.testing.assert_array_equal(sums, ops.add_bias(y, own, device=device))


def test_nan_stays_in_its_row(device, rng):
    weights = random_weights(rng, 4, 64, 4, 64, "bf16")
    weights[2].scales[3] = np.nan
    results = ops.affine_project(random_rows(rng, 1, 64), weights, device=device)
    assert [np.argwhere(np.isnan(y)).tolist() for y in results] == [[], [], [[0, 3]], []]


def test_refuses(device, rng):
    weights, x = random_weights(rng, 4, 64, 4, 64, "bf16"), random_rows(rng, 1, 64)
    with pytest.raises(
        ArgumentError, match="affine_project: weights: expected 1 to 4 weights, got 5 of them"
    ):
        ops.affine_project(x, [*weights, weights[0]], device=device)
    other = random_weight(rng, (3, 64), 8, 64, "bf16")
    with pytest.raises(ArgumentError, match="affine_project: weights: expected one format, got 2"):
        ops.affine_project(x, [weights[0], other], device=device)
    exact = random_weight(rng, (3, 64), 4, 64, "f32")
    with pytest.raises(ArgumentError, match="affine_project: weights: expected 4 or 8 bits, .* got b4_f32"):
        ops.affine_project(x, [exact], device=device)
    with pytest.raises(ArgumentError, match=r"affine_project: x: expected shape \[1, 64\], got \[2, 64\]"):
        ops.affine_project(random_rows(rng, 2, 64), weights, device=device)
    with pytest.raises(ArgumentError, match=r"affine_project: bias: expected shape \[43\], got \[21\]"):
        ops.affine_project(x, weights, np.zeros(21, np.float32), device=device)
    history, taps = np.zeros((3, OUTS[0]), np.float32), np.zeros((OUTS[0], 4), np.float32)
    with pytest.raises(ArgumentError, match="affine_conv_project: taps: expected bfloat16, got float32"):
        ops.affine_conv_project(x, weights, history, taps, device=device)
    with pytest.raises(
        ArgumentError, match="affine_norm_project: norm_weight: expected bfloat16, got float32"
    ):
        ops.affine_norm_project(x, x, np.ones(64, np.float32), 1e-5, weights, device=device)
