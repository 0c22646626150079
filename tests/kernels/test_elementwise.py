"""add, weighted_sum and split_q_gate, on every device.

Does not catch: speed.
"""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.harness import Out, assert_close, run_kernel
from pyturbo import errors, ops
from reference import elementwise as reference


@pytest.mark.parametrize("count", [1, 256, 1031])
def test_add(device, rng, count):
    a, b = rng.standard_normal((2, count), np.float32)
    a[0] = 1e30
    (y,) = run_kernel(device, "add", a, b, Out((count,)), count)
    np.testing.assert_array_equal(y, reference.add(a, b))


def test_add_in_place(device, rng):
    a, b = rng.standard_normal((2, 300), np.float32)
    stream = device.empty(a.shape)
    stream.write(a)
    device.kernel("add")(stream, b, stream, 300)
    np.testing.assert_array_equal(stream.numpy(), a + b)


@pytest.mark.parametrize(("tokens", "count", "dim"), [(1, 1, 3), (3, 8, 257), (2, 16, 1000), (1, 10, 4096)])
def test_weighted_sum(device, rng, tokens, count, dim):
    rows = rng.standard_normal((tokens, count, dim), np.float32)
    weights = rng.random((tokens, count), np.float32)
    rows[0, 0] *= 1e8
    args = (rows, weights, Out((tokens, dim)), tokens, count, dim)
    (y,) = run_kernel(device, "weighted_sum", *args)
    magnitude = reference.weighted_sum_magnitude(rows, weights)
    assert_close(y, reference.weighted_sum(rows, weights), "dot", magnitude)


def test_weighted_sum_of_one_token(device, rng):
    rows, weights = rng.standard_normal((5, 9), np.float32), rng.random(5, np.float32)
    y = ops.weighted_sum(rows, weights, device=device)
    assert_close(
        y, reference.weighted_sum(rows, weights), "dot", reference.weighted_sum_magnitude(rows, weights)
    )


@pytest.mark.parametrize(("tokens", "heads", "dim"), [(1, 1, 1), (3, 5, 7), (2, 3, 300), (1, 16, 256)])
def test_split_q_gate(device, rng, tokens, heads, dim):
    x = rng.standard_normal((tokens, heads, 2 * dim), np.float32)
    shape = (tokens, heads, dim)
    q, gate = run_kernel(device, "split_q_gate", x, Out(shape), Out(shape), tokens, heads, dim)
    want_q, want_gate = reference.split_q_gate(x, heads)
    np.testing.assert_array_equal(q, want_q)
    np.testing.assert_array_equal(gate, want_gate)
    for got, want in zip(ops.split_q_gate(x.reshape(tokens, -1), heads, device=device), (q, gate)):
        np.testing.assert_array_equal(got, want)


@pytest.mark.spread
@settings(max_examples=15, deadline=None)
@given(tokens=st.integers(1, 5), count=st.integers(1, 9), dim=st.integers(1, 300), seed=st.integers(0, 99))
def test_any_shape(device, tokens, count, dim, seed):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((tokens, count, dim), np.float32)
    weights = rng.standard_normal((tokens, count), np.float32)
    magnitude = reference.weighted_sum_magnitude(rows, weights)
    y = ops.weighted_sum(rows, weights, device=device)
    assert_close(y, reference.weighted_sum(rows, weights), "dot", magnitude)
    np.testing.assert_array_equal(ops.add(rows, rows[::-1], device=device), rows + rows[::-1])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_inf_stay_in_their_place(device, rng, bad):
    rows, weights = rng.standard_normal((3, 4, 5), np.float32), rng.random((3, 4), np.float32)
    rows[1, 2, 3] = bad
    weights[1, 2] = 0  # a weight of zero does not hide it
    weights[2, 0] = bad
    hit = np.zeros((3, 5), bool)
    hit[1, 3] = hit[2] = True
    assert (~np.isfinite(ops.weighted_sum(rows, weights, device=device)) == hit).all()
    total = ops.add(rows, rows, device=device)
    assert (~np.isfinite(total) == ~np.isfinite(rows)).all()
    q, gate = ops.split_q_gate(rows[..., :4], 4, device=device)
    assert (~np.isfinite(np.concatenate([q, gate], -1)) == ~np.isfinite(rows[..., :4])).all()


def test_refuses(device):
    x = np.ones((2, 3, 4), np.float32)
    with pytest.raises(errors.ArgumentError, match=r"add: b: expected shape \[2, 3, 4\], got \[2, 3, 1\]"):
        ops.add(x, x[..., :1], device=device)
    with pytest.raises(
        errors.ArgumentError, match=r"weighted_sum: weights: expected shape \[2, 3\], got \[3, 2\]"
    ):
        ops.weighted_sum(x, x[:, :, 0].T, device=device)
    with pytest.raises(errors.ArgumentError, match="weighted_sum: rows: expected shape"):
        ops.weighted_sum(x[0, 0], x[0, 0], device=device)
    for array, heads in ((x, 2), (x[..., :3], 3), (x[0], 3), (x[0, 0], 1)):
        with pytest.raises(errors.ArgumentError, match="split_q_gate: x: expected"):
            ops.split_q_gate(array, heads, device=device)
    with pytest.raises(
        errors.ArgumentError, match="split_q_gate: heads: expected an integer from 1 on, got 0"
    ):
        ops.split_q_gate(x, 0, device=device)


@pytest.mark.parametrize(("rows", "dim"), [(1, 1), (3, 257), (5, 31)])
@pytest.mark.parametrize(
    ("kind", "dtype"), [("f32", np.float32), ("f16", np.float16), ("bf16", ml_dtypes.bfloat16)]
)
def test_add_bias(device, rng, rows, dim, kind, dtype):
    x = rng.standard_normal((rows, dim), np.float32)
    x[0, 0] = np.nan
    bias = rng.standard_normal(dim, np.float32).astype(dtype)
    (y,) = run_kernel(device, f"add_bias_{kind}", x, bias, Out((rows, dim)), rows, dim)
    assert_close(y, reference.add_bias(x, bias), "elementwise", np.abs(x) + np.abs(bias.astype(np.float32)))
    np.testing.assert_array_equal(ops.add_bias(x, bias, device=device), y)
    with pytest.raises(errors.ArgumentError, match="add_bias: bias: expected shape"):
        ops.add_bias(x, np.zeros(dim + 1, np.float32), device=device)
