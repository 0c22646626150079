"""rope, rope_qk and rope_append against float64 on the same float32 angle, on every device.

Does not catch: an inv_freq table that is wrong for its model; it is an argument here.
"""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.harness import Out, assert_close, of_shaders, run_kernel
from pyturbo import errors, ops
from reference import rope as reference
from reference.attention import kv_append
from reference.norm import head_rms_norm
from tolerances import STEPS

STORED = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def frequencies(rotary_dim, base=1e4):
    return (base ** (-np.arange(0, rotary_dim, 2) / rotary_dim)).astype(np.float32)


def pair_length(x, rotary_dim, scale, interleaved):
    """Of every value, the length of the pair it belongs to: rounding errors are proportional to it."""
    length = np.abs(x.astype(np.float64))
    first, second = reference.pair_slices(rotary_dim, interleaved)
    length[..., first] = length[..., second] = scale * np.hypot(x[..., first], x[..., second])
    return length


def check(y, x, position, inv_freq, rotary_dim, scale, interleaved):
    want = reference.rope(x, position, inv_freq, rotary_dim, scale, interleaved)
    assert_close(y, want, "rotation", pair_length(x, rotary_dim, scale, interleaved))
    np.testing.assert_array_equal(y[..., rotary_dim:], x[..., rotary_dim:])


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("tokens", "heads", "dim", "rotary_dim", "position", "base", "scale"),
    [
        (1, 3, 2, 2, 0, 1e4, 1.0),
        (3, 5, 7, 4, 1, 1e4, 0.5),
        (2, 9, 64, 64, 131000, 1.5e5, 1.34657),  # gpt-oss
        (5, 4, 256, 64, 100000, 1e7, 1.0),  # Qwen3.5
        (1, 6, 512, 512, 262143, 1e6, 1.0),  # Gemma, global layers
        (7, 1, 130, 128, 999999, 5e5, 1.25),
    ],
)
def test_matches_float64(device, rng, interleaved, tokens, heads, dim, rotary_dim, position, base, scale):
    x = rng.standard_normal((tokens, heads, dim), np.float32)
    x[0, 0] *= 1e6
    inv_freq = frequencies(rotary_dim, base)
    args = (x, inv_freq, Out(x.shape), tokens, heads, dim, rotary_dim // 2, position, scale)
    (y,) = run_kernel(device, "rope", *args, constants={"interleaved": interleaved})
    check(y, x, position, inv_freq, rotary_dim, scale, interleaved)


@pytest.mark.parametrize("interleaved", [False, True])
def test_in_place_and_token_by_token_give_the_same_bits(device, rng, interleaved):
    x, inv_freq = rng.standard_normal((6, 5, 34), np.float32), frequencies(26)
    y = ops.rope(x, 100000, inv_freq, 26, interleaved=interleaved, device=device)
    memory = device.empty(x.shape)
    memory.write(x)
    kernel = device.kernel("rope", {"interleaved": interleaved})
    kernel(memory, inv_freq, memory, 6, 5, 34, 13, 100000, 1.0)
    assert memory.numpy().tobytes() == y.tobytes()
    for t in range(len(x)):
        one = ops.rope(x[t : t + 1], 100000 + t, inv_freq, 26, interleaved=interleaved, device=device)
        assert one.tobytes() == y[t : t + 1].tobytes()


def test_position_zero_is_the_identity(device, rng):
    x = rng.standard_normal((1, 3, 12), np.float32)
    np.testing.assert_array_equal(ops.rope(x, 0, frequencies(8), 8, device=device), x)


def test_frequency_zero_leaves_its_pair(device, rng):
    """Proportional RoPE gives the rotation of the full width with most frequencies zero."""
    x, inv_freq = rng.standard_normal((2, 3, 16), np.float32), frequencies(16)
    inv_freq[2:] = 0
    y = ops.rope(x, 5000, inv_freq, 16, device=device)
    still = [2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15]
    np.testing.assert_array_equal(y[..., still], x[..., still])
    assert (y[..., :2] != x[..., :2]).all()


@pytest.mark.spread
@settings(max_examples=25, deadline=None)
@given(
    tokens=st.integers(1, 5),
    heads=st.integers(1, 9),
    pairs=st.integers(1, 70),
    rest=st.integers(0, 70),
    position=st.integers(0, 1 << 20),
    interleaved=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_shape(device, tokens, heads, pairs, rest, position, interleaved, seed):
    x = np.random.default_rng(seed).standard_normal((tokens, heads, 2 * pairs + rest), np.float32)
    inv_freq = frequencies(2 * pairs)
    y = ops.rope(x, position, inv_freq, 2 * pairs, 1.5, interleaved, device=device)
    check(y, x, position, inv_freq, 2 * pairs, 1.5, interleaved)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_inf_stay_in_their_pair(device, rng, bad):
    x = rng.standard_normal((3, 2, 12), np.float32)
    x[1, 0, 5] = x[2, 1, 11] = bad  # one in a pair, one behind the pairs
    y = ops.rope(x, 70000, frequencies(8), 8, device=device)
    assert np.argwhere(~np.isfinite(y)).tolist() == [[1, 0, 1], [1, 0, 5], [2, 1, 11]]


def test_refuses(device):
    x = np.ones((2, 3, 8), np.float32)
    for rotary_dim in (0, 3, 10):
        with pytest.raises(
            errors.ArgumentError, match="rope: rotary_dim: expected an even number from 2 to 8"
        ):
            ops.rope(x, 0, frequencies(4), rotary_dim, device=device)
    with pytest.raises(errors.ArgumentError, match=r"rope: inv_freq: expected shape \[4\], got \[3\]"):
        ops.rope(x, 0, frequencies(6), 8, device=device)
    with pytest.raises(errors.ArgumentError, match="position"):
        ops.rope(x, -1, frequencies(8), 8, device=device)
    with pytest.raises(errors.ArgumentError, match="position"):
        ops.rope(x, 2**32 - 1, frequencies(8), 8, device=device)


def head_inputs(rng, tokens, heads, kv_heads, dim, stride):
    """q, k and v; the values of q past a head's dim are NaN."""
    q = np.full((tokens, heads, stride), np.nan, np.float32)
    q[..., :dim] = rng.standard_normal((tokens, heads, dim), np.float32)
    k, v = rng.standard_normal((2, tokens, kv_heads, dim), np.float32)
    k[0, 0] *= 1e3
    return q, k, v


def norm_weights(rng, dim):
    return [rng.uniform(0.5, 2, dim).astype(np.float32) for _ in range(2)]


# tokens, heads, key heads, dim, values of a head of q, rotary dim, capacity, position
APPEND_SHAPES = [
    (1, 6, 2, 64, 128, 16, 9, 7),
    (3, 3, 1, 130, 130, 128, 5, 4),
    (2, 5, 5, 34, 70, 34, 2, 100001),
]


def run_append(device, q, k, v, caches, weights, inv_freq, position, interleaved):
    tokens, heads, stride = q.shape
    _, kv_heads, dim = k.shape
    outs = [None if cache is None else Out(cache.shape, cache.dtype, cache) for cache in caches]
    sizes = tokens, heads, kv_heads, dim, stride, len(inv_freq), len(caches[0]), position, 1.25, 1e-5
    constants = {"interleaved": interleaved, "has_norms": weights[0] is not None, "appends": v is not None}
    kind = next(kind for kind, dtype in STORED.items() if dtype == caches[0].dtype)
    args = (q, k, v, *weights, inv_freq, Out((tokens, heads, dim)), *outs, *sizes)
    return run_kernel(device, f"rope_append_{kind}", *args, constants=constants)


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("shape", APPEND_SHAPES, ids=str)
def test_rope_append(device, rng, shape, interleaved, normed, kind):
    tokens, heads, kv_heads, dim, stride, rotary, capacity, position = shape
    q, k, v = head_inputs(rng, tokens, heads, kv_heads, dim, stride)
    weights, inv_freq = norm_weights(rng, dim) if normed else [None, None], frequencies(rotary)
    caches = rng.standard_normal((2, capacity, kv_heads, dim)).astype(STORED[kind])
    got, keys, kept = run_append(device, q, k, v, caches, weights, inv_freq, position, interleaved)
    results = got, keys[(position + np.arange(tokens)) % capacity]
    for x, weight, y in zip((q[..., :dim], k), weights, results):
        plain = head_rms_norm(x, weight, 1e-5) if normed else x.astype(np.float64)
        want = reference.rope(plain, position, inv_freq, rotary, 1.25, interleaved)
        length = pair_length(plain, rotary, 1.25, interleaved)
        bound = 2e-6 * length + STEPS.get(y.dtype.name, 0) / 2 * (np.abs(want) + 1e-4)
        assert (np.abs(y.astype(np.float64) - want) <= bound).all()
    untouched = np.delete(np.arange(capacity), (position + np.arange(tokens)) % capacity)
    np.testing.assert_array_equal(keys[untouched], caches[0][untouched])
    np.testing.assert_array_equal(kept, kv_append(caches[1], v, position))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("shape", APPEND_SHAPES, ids=str)
def test_rope_append_equals_its_parts(device, rng, shape, interleaved):
    """The same bits as head_rms_norm, rope and kv_append."""
    device = of_shaders(device)
    tokens, heads, kv_heads, dim, stride, rotary, capacity, position = shape
    q, k, v = head_inputs(rng, tokens, heads, kv_heads, dim, stride)
    weights, inv_freq = norm_weights(rng, dim), frequencies(rotary)
    caches = rng.standard_normal((2, capacity, kv_heads, dim)).astype(np.float16)
    rotated = [
        ops.rope(
            ops.head_rms_norm(np.ascontiguousarray(x), weight, 1e-5, device=device),
            *(position, inv_freq, rotary, 1.25, interleaved),
            device=device,
        )
        for x, weight in zip((q[..., :dim], k), weights)
    ]
    options = position, inv_freq, 1.25, interleaved, (*weights, 1e-5)
    for got, want in zip(ops.rope_qk(q, k, *options, device=device), rotated):
        np.testing.assert_array_equal(got, want)
    want = [ops.kv_append(c.copy(), x, position, device=device) for c, x in zip(caches, (rotated[1], v))]
    got, *kept = ops.rope_append(q, k, v, caches[0].copy(), caches[1].copy(), *options, device=device)
    np.testing.assert_array_equal(got, rotated[0])
    np.testing.assert_array_equal(kept, want)


def test_rope_append_shows_nan(device, rng):
    q, k, v = head_inputs(rng, 2, 4, 2, 16, 16)
    q[1, 2, 3] = k[0, 1, 5] = np.nan
    v[1, 0, 7] = np.inf
    caches = np.zeros((2, 3, 2, 16), np.float32)
    options = 1, frequencies(8), 1.0, False, (np.ones(16, np.float32), np.ones(16, np.float32), 1e-5)
    got, keys, kept = ops.rope_append(q, k, v, *caches, *options, device=device)
    assert np.argwhere(np.isnan(got).any(axis=2)).tolist() == [[1, 2]]
    assert np.argwhere(np.isnan(keys).any(axis=2)).tolist() == [[1, 1]]
    assert np.argwhere(np.isinf(kept)).tolist() == [[2, 0, 7]]


def test_joined_heads_refuse(device, rng):
    q, k, v = head_inputs(rng, 2, 4, 2, 16, 16)
    inv_freq = frequencies(8)
    with pytest.raises(
        errors.ArgumentError, match="rope_qk: q: expected heads of at least 16 values, got 12"
    ):
        ops.rope_qk(q[..., :12], k, 0, inv_freq, device=device)
    with pytest.raises(errors.ArgumentError, match="rope_qk: inv_freq: expected at most 8, got 9"):
        ops.rope_qk(q, k, 0, frequencies(18), device=device)
    with pytest.raises(errors.ArgumentError, match="rope_qk: norms: expected two weights and eps, got float"):
        ops.rope_qk(q, k, 0, inv_freq, norms=1.0, device=device)
    caches = np.zeros((3, 2, 16), np.float32), np.zeros((3, 2, 16), np.float16)
    with pytest.raises(errors.ArgumentError, match="rope_append: v_cache: expected float32, got float16"):
        ops.rope_append(q, k, v, *caches, 0, inv_freq, device=device)
    small = np.zeros((2, 1, 2, 16), np.float32)
    with pytest.raises(errors.ArgumentError, match="rope_append_f32: requires tokens <= capacity"):
        ops.rope_append(q, k, v, *small, 0, inv_freq, device=device)
