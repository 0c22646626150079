"""rms_norm, head_rms_norm, gated_rms_norm and qk_norm against float64, on every device.

Does not catch: a device that flushes subnormal numbers, beyond what the tolerance table allows for.
"""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.harness import Out, assert_close, run_kernel
from pyturbo import errors, ops
from reference import norm as reference

WEIGHTS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
EPS = 1e-6


def rows(rng, *shape):
    """Random rows; of several, the first is huge, the second zero and the last tiny."""
    x = rng.standard_normal(shape, np.float32)
    flat = x.reshape(-1, shape[-1])
    if len(flat) > 3:
        flat[0] *= 1e6
        flat[1] = 0
        flat[-1] *= 1e-12
    return x


def weight_of(rng, dim, kind):
    return rng.uniform(0.5, 2, dim).astype(WEIGHTS[kind])


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize(("tokens", "dim"), [(1, 1), (5, 31), (4, 256), (7, 577), (2, 4096), (1, 7168)])
def test_rms_norm(device, rng, kind, tokens, dim):
    x, weight = rows(rng, tokens, dim), weight_of(rng, dim, kind)
    args = (x, weight, Out(x.shape), None, None, tokens, dim, EPS)
    (y,) = run_kernel(device, f"rms_norm_{kind}", *args, constants={"has_residual": False})
    assert_close(y, reference.rms_norm(x, weight, EPS), "norm")


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize(("tokens", "dim"), [(1, 3), (6, 259), (2, 4096)])
def test_rms_norm_of_a_sum(device, rng, kind, tokens, dim):
    x, residual, weight = rows(rng, tokens, dim), rows(rng, tokens, dim), weight_of(rng, dim, kind)
    args = (x, weight, Out(x.shape), residual, Out(x.shape), tokens, dim, EPS)
    y, total = run_kernel(device, f"rms_norm_{kind}", *args, constants={"has_residual": True})
    np.testing.assert_array_equal(total, x + residual)
    assert_close(y, reference.rms_norm(total, weight, EPS), "norm")


def test_rms_norm_in_place(device, rng):
    x, residual, weight = rows(rng, 5, 300), rows(rng, 5, 300), weight_of(rng, 300, "f32")
    want_y, want_sum = ops.rms_norm(x, weight, EPS, residual, device=device)
    stream, added = device.empty(x.shape), device.empty(x.shape)
    stream.write(residual)
    added.write(x)
    kernel = device.kernel("rms_norm_f32", {"has_residual": True})
    kernel(added, weight, added, stream, stream, 5, 300, EPS)
    assert added.numpy().tobytes() == want_y.tobytes()
    assert stream.numpy().tobytes() == want_sum.tobytes()


@pytest.mark.parametrize("value", [3e18, 1e25, 3e37])
def test_squares_that_overflow_do_not_matter(device, value):
    x = np.full((3, 70), value, np.float32)
    x[1] = 1
    x[2, :35] = -1
    weight = np.ones(70, np.float32)
    assert_close(ops.rms_norm(x, weight, EPS, device=device), reference.rms_norm(x, weight, EPS), "norm")
    q, k = ops.qk_norm(x[None], x[None], device=device)
    want_q, want_k = reference.qk_norm(x[None], x[None])
    assert_close(q, want_q, "norm")
    assert_close(k, want_k, "norm")


@pytest.mark.spread
@settings(max_examples=15, deadline=None)
@given(tokens=st.integers(1, 6), dim=st.integers(1, 700), seed=st.integers(0, 99), fused=st.booleans())
def test_rms_norm_any_shape(device, tokens, dim, seed, fused):
    rng = np.random.default_rng(seed)
    x, weight = rows(rng, tokens, dim), weight_of(rng, dim, "f32")
    total = x
    if fused:
        y, total = ops.rms_norm(x, weight, EPS, rows(rng, tokens, dim), device=device)
    else:
        y = ops.rms_norm(x, weight, EPS, device=device)
    assert_close(y, reference.rms_norm(total, weight, EPS), "norm")


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize(
    ("tokens", "heads", "dim"), [(1, 5, 1), (3, 7, 65), (5, 2, 31), (2, 9, 256), (1, 3, 512)]
)
def test_head_rms_norm(device, rng, kind, tokens, heads, dim):
    x, weight = rows(rng, tokens, heads, dim), weight_of(rng, dim, kind)
    args = (x, weight, Out(x.shape), tokens, heads, dim, EPS)
    (y,) = run_kernel(device, f"head_rms_norm_{kind}", *args)
    assert_close(y, reference.head_rms_norm(x, weight, EPS), "norm")


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize(("tokens", "heads", "dim"), [(1, 6, 1), (3, 5, 33), (2, 32, 128)])
def test_gated_rms_norm(device, rng, kind, tokens, heads, dim):
    x, weight = rows(rng, tokens, heads, dim), weight_of(rng, dim, kind)
    z = rng.standard_normal(x.shape, np.float32) * 8
    z.flat[:4] = 300, -300, -80, 0
    args = (x, z, weight, Out(x.shape), tokens, heads, dim, EPS)
    (y,) = run_kernel(device, f"gated_rms_norm_{kind}", *args)
    assert_close(y, reference.gated_rms_norm(x, z, weight, EPS), "norm")


@pytest.mark.parametrize(("tokens", "heads", "dim"), [(1, 2, 1), (3, 5, 33), (2, 16, 128)])
def test_qk_norm(device, rng, tokens, heads, dim):
    q, k = rows(rng, tokens, heads, dim), rows(rng, tokens, heads, dim)
    args = (q, k, Out(q.shape), Out(k.shape), tokens, heads, dim, heads * dim, EPS)
    got_q, got_k = run_kernel(device, "qk_norm", *args)
    want_q, want_k = reference.qk_norm(q, k, EPS)
    assert_close(got_q, want_q, "norm")
    assert_close(got_k, want_k, "norm")


def test_qk_norm_inside_the_conv_output(device, rng):
    """Rows of q | k | v of a convolution: q and k are views of one buffer, which is not changed."""
    tokens, heads, dim, values = 5, 3, 24, 50
    width = heads * dim
    stride = 2 * width + values
    conv = rng.standard_normal((tokens, stride), np.float32)
    memory = device.empty(conv.shape)
    memory.write(conv)
    reach = ((tokens - 1) * stride + width,)
    q, k = memory.view(reach), memory.view(reach, offset=4 * width)
    outputs = [device.empty((tokens, heads, dim)) for _ in range(2)]
    device.kernel("qk_norm")(q, k, *outputs, tokens, heads, dim, stride, EPS)

    heads_of = [conv[:, at : at + width].reshape(tokens, heads, dim) for at in (0, width)]
    for got, want in zip(outputs, reference.qk_norm(*heads_of, EPS)):
        assert_close(got.numpy(), want, "norm")
    np.testing.assert_array_equal(memory.numpy(), conv)


@pytest.mark.spread
@settings(max_examples=15, deadline=None)
@given(tokens=st.integers(1, 4), heads=st.integers(1, 9), dim=st.integers(1, 140), seed=st.integers(0, 99))
def test_heads_any_shape(device, tokens, heads, dim, seed):
    rng = np.random.default_rng(seed)
    x, z, weight = rows(rng, tokens, heads, dim), rows(rng, tokens, heads, dim), weight_of(rng, dim, "f32")
    assert_close(
        ops.head_rms_norm(x, weight, EPS, device=device), reference.head_rms_norm(x, weight, EPS), "norm"
    )
    assert_close(
        ops.gated_rms_norm(x, z, weight, EPS, device=device),
        reference.gated_rms_norm(x, z, weight, EPS),
        "norm",
    )
    for got, want in zip(ops.qk_norm(x, z, EPS, device=device), reference.qk_norm(x, z, EPS)):
        assert_close(got, want, "norm")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_inf_stay_in_their_row(device, rng, bad):
    x = rng.standard_normal((3, 4, 45), np.float32)
    z, weight = rng.standard_normal(x.shape, np.float32), weight_of(rng, 45, "f32")
    x[1, 2, 44] = bad
    assert_close(ops.rms_norm(x, weight, EPS, device=device), reference.rms_norm(x, weight, EPS), "norm")
    assert_close(
        ops.head_rms_norm(x, weight, EPS, device=device), reference.head_rms_norm(x, weight, EPS), "norm"
    )
    assert_close(
        ops.gated_rms_norm(x, z, weight, EPS, device=device),
        reference.gated_rms_norm(x, z, weight, EPS),
        "norm",
    )
    got_q, got_k = ops.qk_norm(x, z, EPS, device=device)
    want_q, want_k = reference.qk_norm(x, z, EPS)
    assert np.isnan(want_q[1, 2, 44])
    assert_close(got_q, want_q, "norm")
    assert_close(got_k, want_k, "norm")


def test_a_nan_weight_or_residual_is_seen(device, rng):
    x, weight = rng.standard_normal((3, 9), np.float32), np.ones(9, np.float32)
    residual = np.zeros_like(x)
    weight[4] = residual[1, 2] = np.nan
    y, total = ops.rms_norm(x, weight, EPS, residual, device=device)
    assert np.isnan(y[:, 4]).all()
    assert np.isnan(y[1]).all()
    assert np.isnan(total).sum() == 1
    assert np.isfinite(np.delete(y, 4, 1)[[0, 2]]).all()


def test_inputs_are_left_alone(device, rng):
    x, z, weight = rows(rng, 2, 3, 8), rows(rng, 2, 3, 8), weight_of(rng, 8, "f32")
    before = x.tobytes(), z.tobytes()
    ops.head_rms_norm(x, weight, EPS, device=device)
    ops.qk_norm(x, z, EPS, device=device)
    assert (x.tobytes(), z.tobytes()) == before


def test_refuses(device):
    x, weight = np.ones((2, 3, 4), np.float32), np.ones(4, np.float32)
    with pytest.raises(errors.ArgumentError, match=r"rms_norm: weight: expected shape \[4\], got \[5\]"):
        ops.rms_norm(x, np.ones(5, np.float32), EPS, device=device)
    with pytest.raises(errors.ArgumentError, match="rms_norm: x: expected float32, got float16"):
        ops.rms_norm(x.astype(np.float16), weight, EPS, device=device)
    with pytest.raises(errors.ArgumentError, match="rms_norm: residual: expected shape"):
        ops.rms_norm(x, weight, EPS, x[:1], device=device)
    with pytest.raises(errors.ArgumentError, match="eps >= 0"):
        ops.rms_norm(x, weight, -1.0, device=device)
    with pytest.raises(errors.ArgumentError, match="head_rms_norm: x: expected shape"):
        ops.head_rms_norm(x[0], weight, EPS, device=device)
    with pytest.raises(errors.ArgumentError, match="gated_rms_norm: z: expected shape"):
        ops.gated_rms_norm(x, x[:, :1], weight, EPS, device=device)
    with pytest.raises(errors.ArgumentError, match="qk_norm: k: expected shape"):
        ops.qk_norm(x, x[..., :2], device=device)
    with pytest.raises(errors.ArgumentError, match=r"stride >= heads \* dim"):
        device.kernel("qk_norm")(x, x, x.copy(), x.copy(), 2, 3, 4, 11, EPS)
