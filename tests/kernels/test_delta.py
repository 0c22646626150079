"""decay_beta, conv1d, delta_net and delta_step against float64, on every device.

Does not catch: an error of delta_net far below the rounding of a long recurrence, which the bound allows for.
"""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.harness import Out, assert_close, of_shaders, run_kernel
from pyturbo import errors, ops
from reference import delta as reference
from reference.norm import gated_rms_norm, qk_norm
from tolerances import TOLERANCES

STORED = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def gates(rng, tokens, heads, a_kind="f32", dt_kind="f32"):
    a, b = rng.standard_normal((2, tokens, heads), np.float32) * 4
    a_log = rng.uniform(-4, 3, heads).astype(STORED[a_kind])
    dt_bias = rng.uniform(-6, 2, heads).astype(STORED[dt_kind])
    return a, b, a_log, dt_bias


def check_gates(got, a, b, a_log, dt_bias):
    g, beta = reference.decay_beta(a, b, a_log, dt_bias)
    assert_close(got[0], g, "elementwise", reference.decay_magnitude(a, a_log, dt_bias))
    assert_close(got[1], beta, "elementwise")


@pytest.mark.parametrize("a_kind", STORED)
@pytest.mark.parametrize("dt_kind", STORED)
@pytest.mark.parametrize(("tokens", "heads"), [(1, 64), (7, 37), (33, 3)])
def test_decay_beta(device, rng, a_kind, dt_kind, tokens, heads):
    inputs = gates(rng, tokens, heads, a_kind, dt_kind)
    shape = (tokens, heads)
    name = f"decay_beta_{a_kind}_{dt_kind}"
    check_gates(run_kernel(device, name, *inputs, Out(shape), Out(shape), tokens, heads), *inputs)


def test_decay_beta_extremes(device):
    """softplus neither overflows nor loses its small values; g is exactly 0 and 1 at the ends."""
    a = np.array([[-1e30, -300, -88, -30, -17, -12, -1e-3, 0, 1e-3, 17, 30, 88, 300, 1e30]], np.float32)
    b = np.linspace(-200, 200, a.size, dtype=np.float32).reshape(a.shape)
    zero = np.zeros(a.shape[1], np.float32)
    for a_log in (zero, zero + 2.5, zero + 11, zero - 20):
        g, beta = ops.decay_beta(a, b, a_log, zero, device=device)
        check_gates((g, beta), a, b, a_log, zero)
        assert g[0, 0] == 1
        assert g[0, -1] == 0
    # e^-30 vanishes in 1 + e^-30, but times e^28 it is a decay.
    g, _ = ops.decay_beta(a, b, zero + 28, zero, device=device)
    check_gates((g, beta), a, b, zero + 28, zero)
    assert 0 < g[0, 3] < 1


def test_decay_beta_shows_nan(device, rng):
    a, b, a_log, dt_bias = gates(rng, 3, 5)
    a[0, 1] = b[1, 2] = a_log[3] = dt_bias[4] = np.nan
    g, beta = ops.decay_beta(a, b, a_log, dt_bias, device=device)
    want = np.zeros((3, 5), bool)
    want[0, 1] = want[:, 3:] = True
    np.testing.assert_array_equal(np.isnan(g), want)
    assert np.isnan(beta).sum() == 1
    assert np.isnan(beta[1, 2])


def conv_inputs(rng, tokens, channels, kind="f32"):
    x, history = (rng.standard_normal((n, channels), np.float32) for n in (tokens, 3))
    x[0] *= 50
    return x, history, rng.standard_normal((channels, 4)).astype(STORED[kind])


def check_conv(got, x, history, weight):
    y, rows = reference.conv1d(x, history, weight)
    assert_close(got[0], y, "dot", reference.conv1d_magnitude(x, history, weight))
    np.testing.assert_array_equal(got[1], rows)


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("channels", [1, 45, 352])
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 7, 33, 128, 129, 300])
def test_conv1d(device, rng, kind, tokens, channels):
    x, history, weight = conv_inputs(rng, tokens, channels, kind)
    args = (x, Out(history.shape, initial=history), weight, Out(x.shape), tokens, channels)
    rows, y = run_kernel(device, f"conv1d_{kind}", *args)
    check_conv((y, rows), x, history, weight)


@pytest.mark.parametrize("cuts", [(1,) * 9, (2, 2, 5), (1, 2, 1, 3, 2), (4, 5)])
def test_conv1d_in_parts_equals_conv1d_at_once(device, rng, cuts):
    x, history, weight = conv_inputs(rng, sum(cuts), 70)
    whole = ops.conv1d(x, history.copy(), weight, device=device)
    parts = []
    for end, cut in zip(np.cumsum(cuts), cuts):
        y, history = ops.conv1d(x[end - cut : end], history, weight, device=device)
        parts.append(y)
    np.testing.assert_array_equal(np.concatenate(parts), whole[0])
    np.testing.assert_array_equal(history, whole[1])


@pytest.mark.spread
@settings(max_examples=20, deadline=None)
@given(tokens=st.integers(1, 20), channels=st.integers(1, 100), seed=st.integers(0, 99))
def test_conv1d_any_shape(device, tokens, channels, seed):
    x, history, weight = conv_inputs(np.random.default_rng(seed), tokens, channels)
    before = x.tobytes(), weight.tobytes()
    check_conv(ops.conv1d(x, history.copy(), weight, device=device), x, history, weight)
    assert (x.tobytes(), weight.tobytes()) == before


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_conv1d_shows_nan_and_inf(device, rng, bad):
    x, history, _ = conv_inputs(rng, 6, 40)
    weight = rng.uniform(0.5, 1, (40, 4)).astype(np.float32)
    x[2, 7] = history[1, 9] = bad
    y, _ = ops.conv1d(x, history, weight, device=device)
    want = np.zeros(y.shape, bool)
    want[2:6, 7] = want[:2, 9] = True
    np.testing.assert_array_equal(~np.isfinite(y), want)


def run_delta(inputs, *method, device):
    """Run delta_net on a copy of the state, which it changes."""
    *others, state = inputs
    return ops.delta_net(*others, state.copy(), *method, device=device)


def delta_inputs(rng, tokens, k_heads, v_heads, k_dim, v_dim):
    """q and k as qk_norm leaves them, decays from 0 to 1 with both ends among them."""
    q, k = rng.standard_normal((2, tokens, k_heads, k_dim), np.float32)
    q, k = (x.astype(np.float32) for x in qk_norm(q, k))
    v = rng.standard_normal((tokens, v_heads, v_dim), np.float32)
    v[0] *= 100
    g = rng.uniform(0.8, 1, (tokens, v_heads)).astype(np.float32)
    beta = rng.uniform(0, 1, (tokens, v_heads)).astype(np.float32)
    g.flat[:: max(3, g.size // 3)] = 1
    g.flat[1 :: max(5, g.size // 2)] = 0
    state = rng.standard_normal((v_heads, v_dim, k_dim), np.float32)
    return q, k, v, g, beta, state


def check_delta(got, inputs):
    for each, want, magnitude in zip(
        got, reference.delta_net(*inputs), reference.delta_net_magnitude(*inputs)
    ):
        assert_close(each, want, "dot", magnitude)


# tokens, key heads, value heads, key dim, value dim
DELTA_SHAPES = [
    (1, 2, 6, 64, 32),
    (2, 1, 3, 32, 96),
    (3, 2, 4, 128, 64),
    (7, 1, 3, 96, 20),
    (33, 2, 6, 64, 36),
    (3, 1, 1, 256, 128),
    (2, 1, 2, 128, 256),
    (2, 1, 1, 160, 32),
    (2, 1, 1, 192, 64),
    (1, 1, 3, 224, 4),
]


CHUNK_SHAPES = [
    (1, 2, 6, 64, 24),
    (2, 1, 3, 128, 8),
    (5, 1, 1, 256, 72),
    (31, 1, 2, 64, 136),
    (32, 2, 2, 128, 64),
    (33, 1, 3, 64, 40),
    (77, 1, 2, 128, 48),
    (65, 1, 1, 64, 256),
]


@pytest.mark.parametrize(
    ("form", "shape"),
    [("delta_net", shape) for shape in DELTA_SHAPES]
    + [("delta_net_chunkwise", shape) for shape in CHUNK_SHAPES],
    ids=str,
)
def test_delta_net(device, rng, form, shape):
    tokens, k_heads, v_heads, k_dim, v_dim = shape
    *inputs, state = delta_inputs(rng, *shape)
    sizes = tokens, k_heads, v_heads, v_dim, k_heads * k_dim, v_heads * v_dim
    args = (*inputs, Out(state.shape, initial=state), Out((tokens, v_heads, v_dim)), *sizes)
    updated, y = run_kernel(device, f"{form}_k{k_dim}", *args, constants={"tiled": False})
    check_delta((y, updated), [*inputs, state])


@pytest.mark.parametrize("method", ["recurrent", "chunkwise"])
def test_delta_net_with_tiled_heads(device, rng, method):
    """The same numbers as with heads in order, to the bit."""
    k_heads, v_heads = 2, 6
    q, k, v, g, beta, state = delta_inputs(rng, 35, k_heads, v_heads, 64, 24)
    y, updated = ops.delta_net(q, k, v, g, beta, state.copy(), method, device=device)
    order = np.arange(v_heads).reshape(k_heads, -1).T.ravel()
    inputs = [q, k, v[:, order], g[:, order], beta[:, order]]
    got = ops.delta_net(*inputs, state[order], method, tiled=True, device=device)
    np.testing.assert_array_equal(got[0], y[:, order])
    np.testing.assert_array_equal(got[1], updated[order])
    want, _ = reference.delta_net(*inputs, state[order], tiled=True)
    np.testing.assert_allclose(got[0], want, atol=1e-3)


@pytest.mark.parametrize("tokens", [2, 3, 7, 33])
def test_delta_net_step_by_step_equals_all_at_once(device, rng, tokens):
    *inputs, state = delta_inputs(rng, tokens, 2, 6, 64, 32)
    whole = run_delta((*inputs, state), "recurrent", device=device)
    steps = []
    for t in range(tokens):
        y, state = ops.delta_net(*(x[t : t + 1] for x in inputs), state, "recurrent", device=device)
        steps.append(y)
    np.testing.assert_array_equal(np.concatenate(steps), whole[0])
    np.testing.assert_array_equal(state, whole[1])


def test_delta_net_inside_the_conv_output(device, rng):
    """q | k | v of one row, as the convolution leaves them, and what lies around them is not touched."""
    tokens, k_heads, v_heads, k_dim, v_dim, rest = 5, 2, 6, 64, 20, 12
    q, k, v, g, beta, state = delta_inputs(rng, tokens, k_heads, v_heads, k_dim, v_dim)
    parts = [x.reshape(tokens, -1) for x in (q, k, v)]
    conv = np.concatenate([*parts, np.full((tokens, rest), np.nan, np.float32)], 1)
    stride, width, values = conv.shape[1], k_heads * k_dim, v_heads * v_dim
    memory, updated, y = device.empty(conv.shape), device.empty(state.shape), device.empty(v.shape)
    memory.write(conv)
    updated.write(state)
    ends = [(tokens - 1) * stride + size for size in (width, width, values)]
    views = [memory.view((end,), offset=4 * at) for end, at in zip(ends, (0, width, 2 * width))]
    sizes = tokens, k_heads, v_heads, v_dim, stride, stride
    device.kernel(f"delta_net_k{k_dim}", {"tiled": False})(*views, g, beta, updated, y, *sizes)
    want = ops.delta_net(q, k, v, g, beta, state, device=device)
    np.testing.assert_array_equal(y.numpy(), want[0])
    np.testing.assert_array_equal(updated.numpy(), want[1])
    np.testing.assert_array_equal(memory.numpy(), conv)


def test_delta_net_forgets_and_keeps(device, rng):
    """g = 0 forgets exactly; g = 1 with beta = 0 keeps the state to the bit; beta = 1 stores v under k."""
    _, k, v, g, beta, state = delta_inputs(rng, 1, 1, 3, 64, 32)
    k[...] = 0
    k[0, 0, 5] = 1
    g[...], beta[...] = [[0, 1, 1]], [[1, 0, 1]]
    y, updated = run_delta((k, k, v, g, beta, state), device=device)
    np.testing.assert_array_equal(np.delete(updated[0], 5, 1), 0)
    np.testing.assert_array_equal(updated[0, :, 5], v[0, 0])
    np.testing.assert_array_equal(updated[1], state[1])
    np.testing.assert_array_equal(y[0, 1], state[1, :, 5])
    assert_close(y[0, 2], v[0, 2].astype(np.float64), "dot", np.abs(v[0, 2]) + np.abs(state[2, :, 5]))


@pytest.mark.spread
@settings(max_examples=15, deadline=None)
@given(
    tokens=st.integers(1, 6),
    k_heads=st.integers(1, 3),
    ratio=st.integers(1, 4),
    columns=st.integers(1, 8),
    rows=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_delta_net_any_shape(device, tokens, k_heads, ratio, columns, rows, seed):
    shape = tokens, k_heads, k_heads * ratio, 32 * columns, 4 * rows
    inputs = delta_inputs(np.random.default_rng(seed), *shape)
    before = [array.tobytes() for array in inputs]
    check_delta(run_delta(inputs, device=device), inputs)
    assert [array.tobytes() for array in inputs] == before


def test_delta_net_shows_nan(device, rng):
    inputs = delta_inputs(rng, 4, 2, 4, 32, 8)
    q, _, v, *_ = inputs
    q[1, 0, 31] = v[2, 3, 5] = np.nan
    y, updated = ops.delta_net(*inputs, device=device)
    want = np.zeros(y.shape, bool)
    want[1, :2] = want[2:, 3, 5] = True  # a decay of 0 does not wash it out
    np.testing.assert_array_equal(np.isnan(y), want)
    np.testing.assert_array_equal(np.argwhere(np.isnan(updated).any(-1)), [[3, 5]])


def test_chunkwise_is_recurrent_to_rounding(device, rng):
    """Both are within the tolerance of float64, also where one chunk goes on with the state of another."""
    *inputs, state = delta_inputs(rng, 75, 1, 2, 64, 40)
    want = run_delta((*inputs, state), "recurrent", device=device)
    parts = []
    after = state.copy()
    for first, end in ((0, 3), (3, 36), (36, 75)):
        y, after = ops.delta_net(*(x[first:end] for x in inputs), after, "chunkwise", device=device)
        parts.append(y)
    bounds = reference.delta_net_magnitude(*inputs, state)
    for got, each, bound in zip((np.concatenate(parts), after), want, bounds):
        assert (np.abs(got - each) <= 2 * TOLERANCES["f32"]["dot"] * bound).all()


@pytest.mark.parametrize("decay", [0.0, 1e-38, 1e-20, 0.3, 1.0])
def test_chunkwise_with_any_decay(device, rng, decay):
    """Products of 40 decays underflow, those of a few do not, and none of them is an inverse."""
    inputs = delta_inputs(rng, 43, 1, 2, 64, 16)
    g = inputs[3]
    g[...] = decay
    g[40:] = 1
    check_delta(run_delta(inputs, "chunkwise", device=device), inputs)


def test_chunkwise_with_keys_that_repeat(device, rng):
    """One key 40 times: each token replaces what the one before it stored, so nothing may cancel badly."""
    inputs = delta_inputs(rng, 40, 1, 2, 128, 24)
    _, k, _, g, beta, _ = inputs
    k[...] = k[:1]
    g[...], beta[...] = 1, 1
    check_delta(run_delta(inputs, "chunkwise", device=device), inputs)


def test_chunkwise_forgets_and_keeps(device, rng):
    """g = 0 forgets exactly, whatever was there; g = 1 with beta = 0 keeps the state to the bit."""
    q, k, v, g, beta, state = delta_inputs(rng, 37, 1, 3, 64, 16)
    g[...], beta[...] = [[1, 1, 0]], [[1, 0, 1]]
    other = state * 1000
    one, two = (run_delta((q, k, v, g, beta, s), "chunkwise", device=device) for s in (state, other))
    np.testing.assert_array_equal(one[1][1], state[1])
    np.testing.assert_array_equal(one[1][2], two[1][2])
    np.testing.assert_array_equal(one[0][:, 2], two[0][:, 2])


def test_chunkwise_shows_nan_where_recurrent_does(device, rng):
    """Tokens before it in its chunk do not see it."""
    inputs = delta_inputs(rng, 45, 2, 4, 64, 24)
    q, k, v, g, *_ = inputs
    q[12, 0, 31] = v[11, 3, 5] = k[35, 1, 2] = g[38, 0] = np.nan
    want = run_delta(inputs, "recurrent", device=device)
    got = run_delta(inputs, "chunkwise", device=device)
    for each, other in zip(got, want):
        assert 0 < np.isnan(other).sum() < other.size
        np.testing.assert_array_equal(np.isnan(each), np.isnan(other))


@pytest.mark.parametrize("rest", [12, 13])
def test_chunkwise_inside_the_conv_output(device, rng, rest):
    """Strides, not only of whole vectors, and the rest of each row, which holds NaN, is not read."""
    tokens, k_heads, v_heads, k_dim, v_dim = 35, 2, 6, 64, 24
    q, k, v, g, beta, state = delta_inputs(rng, tokens, k_heads, v_heads, k_dim, v_dim)
    parts = [x.reshape(tokens, -1) for x in (q, k, v)]
    conv = np.concatenate([*parts, np.full((tokens, rest), np.nan, np.float32)], 1)
    stride, width = conv.shape[1], k_heads * k_dim
    memory, updated, y = device.empty(conv.shape), device.empty(state.shape), device.empty(v.shape)
    memory.write(conv)
    updated.write(state)
    ends = [(tokens - 1) * stride + size for size in (width, width, v_heads * v_dim)]
    views = [memory.view((end,), offset=4 * at) for end, at in zip(ends, (0, width, 2 * width))]
    sizes = tokens, k_heads, v_heads, v_dim, stride, stride
    device.kernel(f"delta_net_chunkwise_k{k_dim}", {"tiled": False})(*views, g, beta, updated, y, *sizes)
    want = ops.delta_net(q, k, v, g, beta, state, "chunkwise", device=device)
    np.testing.assert_array_equal(y.numpy(), want[0])
    np.testing.assert_array_equal(updated.numpy(), want[1])


@settings(max_examples=25, deadline=None)
@given(
    tokens=st.integers(1, 100),
    k_heads=st.integers(1, 2),
    ratio=st.integers(1, 3),
    k_dim=st.sampled_from([64, 128, 256]),
    rows=st.integers(1, 18),
    seed=st.integers(0, 99),
)
def test_chunkwise_any_shape(tokens, k_heads, ratio, k_dim, rows, seed):
    shape = tokens, k_heads, k_heads * ratio, k_dim, 8 * rows
    inputs = delta_inputs(np.random.default_rng(seed), *shape)
    before = [array.tobytes() for array in inputs]
    check_delta(run_delta(inputs, "chunkwise", device="cpu"), inputs)
    assert [array.tobytes() for array in inputs] == before


@pytest.mark.parametrize("tokens", [64, 3])
def test_auto_takes_chunks_for_many_tokens(device, rng, tokens):
    inputs = delta_inputs(rng, tokens, 1, 2, 64, 16)
    form = "chunkwise" if tokens >= device.traits.chunkwise_tokens else "recurrent"
    for got, want in zip(*(run_delta(inputs, each, device=device) for each in ("auto", form))):
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize(("k_dim", "v_dim"), [(96, 16), (64, 20)])
def test_auto_goes_token_by_token_where_chunks_cannot(device, rng, k_dim, v_dim):
    inputs = delta_inputs(rng, 64, 1, 2, k_dim, v_dim)
    want = run_delta(inputs, "recurrent", device=device)
    for got, each in zip(run_delta(inputs, device=device), want):
        assert got.tobytes() == each.tobytes()


def test_refuses(device, rng):
    a, b, a_log, dt_bias = gates(rng, 2, 3)
    with pytest.raises(errors.ArgumentError, match=r"decay_beta: b: expected shape \[2, 3\], got \[1, 3\]"):
        ops.decay_beta(a, b[:1], a_log, dt_bias, device=device)
    with pytest.raises(errors.ArgumentError, match=r"decay_beta: dt_bias: expected shape \[3\], got \[2\]"):
        ops.decay_beta(a, b, a_log, dt_bias[:2], device=device)
    with pytest.raises(
        errors.ArgumentError, match="decay_beta: a_log: expected float32, float16 or bfloat16"
    ):
        ops.decay_beta(a, b, a_log.astype(np.float64), dt_bias, device=device)
    x, history, weight = conv_inputs(rng, 2, 3)
    with pytest.raises(errors.ArgumentError, match=r"conv1d: history: expected shape \[3, 3\], got \[2, 3\]"):
        ops.conv1d(x, history[1:], weight, device=device)
    with pytest.raises(errors.ArgumentError, match=r"conv1d: weight: expected shape \[3, 4\], got \[3, 3\]"):
        ops.conv1d(x, history, weight[:, 1:], device=device)
    q, k, v, g, beta, state = delta_inputs(rng, 2, 2, 4, 32, 8)
    with pytest.raises(
        errors.ArgumentError, match="delta_net: method: expected one of auto, recurrent, chunkwise, got"
    ):
        ops.delta_net(q, k, v, g, beta, state, "parallel", device=device)
    with pytest.raises(
        errors.ArgumentError, match="delta_net: q: expected heads of 64, 128 or 256 values for chunks, got 32"
    ):
        ops.delta_net(q, k, v, g, beta, state, "chunkwise", device=device)
    with pytest.raises(errors.ArgumentError, match="delta_net: v: expected heads of a multiple of 8 values"):
        ops.delta_net(*delta_inputs(rng, 2, 2, 4, 64, 12), "chunkwise", device=device)
    with pytest.raises(errors.ArgumentError, match="delta_net: v: expected a multiple of 2 heads, got 3"):
        ops.delta_net(q, k, v[:, :3], g, beta, state, device=device)
    with pytest.raises(
        errors.ArgumentError, match="delta_net: q: expected heads of 32, 64, ... or 256 values"
    ):
        ops.delta_net(q[..., :24], k[..., :24], v, g, beta, state, device=device)
    with pytest.raises(errors.ArgumentError, match="delta_net: state: expected shape"):
        ops.delta_net(q, k, v, g, beta, np.swapaxes(state, 1, 2), device=device)
    with pytest.raises(errors.ArgumentError, match="v_dim % kRows == 0"):
        ops.delta_net(q, k, v[..., :6], g, beta, state[:, :6], device=device)


# key heads, value heads, key dim, value dim
STEP_SHAPES = [(2, 6, 64, 24), (1, 3, 64, 200), (2, 4, 128, 136), (1, 1, 256, 128), (1, 2, 256, 8)]


def step_inputs(rng, k_heads, v_heads, k_dim, v_dim):
    """The operands of delta_step: mixed, z, a, b, a_log, dt_bias, weight, state."""
    mixed = rng.standard_normal((1, 2 * k_heads * k_dim + v_heads * v_dim), np.float32)
    mixed[0, :k_dim] *= 1e3
    z = rng.standard_normal((1, v_heads, v_dim), np.float32) * 3
    a, b, a_log, dt_bias = gates(rng, 1, v_heads)
    state = rng.standard_normal((v_heads, v_dim, k_dim), np.float32)
    return mixed, z, a, b, a_log, dt_bias, rng.uniform(0.5, 2, v_dim).astype(np.float32), state


def parts_of(mixed, k_heads, v_heads, k_dim, v_dim):
    q, k, v = np.split(mixed, [k_heads * k_dim, 2 * k_heads * k_dim], axis=1)
    shapes = (1, k_heads, k_dim), (1, k_heads, k_dim), (1, v_heads, v_dim)
    return [part.reshape(shape) for part, shape in zip((q, k, v), shapes)]


def run_step(device, inputs, shape, tiled=False):
    *others, state = inputs
    k_heads, v_heads, k_dim, v_dim = shape
    args = (*others, Out(state.shape, initial=state), Out((1, v_heads, v_dim)))
    sizes = k_heads, v_heads, v_dim, 1e-6, 1e-5
    updated, y = run_kernel(device, f"delta_step_k{k_dim}", *args, *sizes, constants={"tiled": tiled})
    return y, updated


@pytest.mark.parametrize("shape", STEP_SHAPES, ids=str)
def test_delta_step(device, rng, shape):
    mixed, z, a, b, a_log, dt_bias, weight, state = inputs = step_inputs(rng, *shape)
    y, updated = run_step(device, inputs, shape)
    q, k, v = parts_of(mixed, *shape)
    q, k = (part.astype(np.float32) for part in qk_norm(q, k))
    g, beta = (part.astype(np.float32) for part in reference.decay_beta(a, b, a_log, dt_bias))
    operands = q, k, v, g, beta, state
    x, want = reference.delta_net(*operands)
    x_terms, terms = reference.delta_net_magnitude(*operands)
    decays = 1 + reference.decay_magnitude(a, a_log, dt_bias) / np.maximum(g, 1e-30)
    assert_close(updated, want, "norm", terms * decays.reshape(-1, 1, 1))
    # The norm divides by the length of the head, so an error of any value reaches all of them.
    errors = x_terms * decays[..., None]
    length = np.sqrt(np.mean(x**2, axis=-1, keepdims=True))
    spread = errors + np.abs(x) * (1 + errors.max(axis=-1, keepdims=True) / length)
    bound = np.abs(gated_rms_norm(np.ones_like(x), z, weight, 0)) / length * spread
    assert_close(y, gated_rms_norm(x, z, weight, 1e-5), "norm", bound)


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("shape", STEP_SHAPES[:3], ids=str)
def test_delta_step_equals_its_parts(device, rng, shape, tiled):
    """The same bits as the kernels that it joins."""
    device = of_shaders(device)
    mixed, z, a, b, a_log, dt_bias, weight, state = inputs = step_inputs(rng, *shape)
    y, updated = run_step(device, inputs, shape, tiled)
    q, k, v = parts_of(mixed, *shape)
    q, k = ops.qk_norm(q, k, device=device)
    g, beta = ops.decay_beta(a, b, a_log, dt_bias, device=device)
    x, want = ops.delta_net(q, k, v, g, beta, state.copy(), "recurrent", tiled, device=device)
    np.testing.assert_array_equal(updated, want)
    np.testing.assert_array_equal(y, ops.gated_rms_norm(x, z, weight, 1e-5, device=device))
    y, updated = ops.delta_step(*inputs[:-1], state.copy(), 1e-5, tiled, device=device)
    np.testing.assert_array_equal(updated, want)


def test_delta_step_shows_nan(device, rng):
    """NaN of a query or of z stays out of the state, that of a value, key or gate in its heads."""
    shape = (2, 4, 64, 24)
    for operand, place, heads, states in (
        (0, (0, 3), [0, 1], []),  # a query of key head 0
        (1, (0, 2, 5), [2], []),
        (0, (0, 2 * 2 * 64 + 24 + 3), [1], [1]),  # a value of head 1
        (0, (0, 2 * 64 + 64 + 1), [2, 3], [2, 3]),  # a key of key head 1
        (2, (0, 3), [3], [3]),
    ):
        inputs = step_inputs(rng, *shape)
        inputs[operand][place] = np.nan
        y, updated = ops.delta_step(*inputs, 1e-5, device=device)
        assert np.flatnonzero(np.isnan(y).any(axis=(0, 2))).tolist() == heads
        assert np.flatnonzero(np.isnan(updated).any(axis=(1, 2))).tolist() == states


def test_delta_step_refuses(device, rng):
    inputs = step_inputs(rng, 2, 4, 64, 24)
    for i, wrong, message in (
        (0, inputs[0][:, 1:], "mixed: expected 96 values after queries and keys of 64 .* got 351"),
        (1, np.zeros((1, 4, 20), np.float32), "z: expected heads of a multiple of 8 values, got 20"),
        (7, np.zeros((4, 24, 48), np.float32), "state: expected keys of 64, 128 or 256 values, got 48"),
        (4, inputs[4].astype(np.float16), "a_log: expected float32, got float16"),
    ):
        given_inputs = [wrong if i == j else part for j, part in enumerate(inputs)]
        with pytest.raises(errors.ArgumentError, match=f"delta_step: {message}"):
            ops.delta_step(*given_inputs, 1e-5, device=device)
