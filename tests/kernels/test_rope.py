"""rope against float64 on the same float32 angle, on every device.

Does not catch: an inv_freq table that is wrong for its model; it is an argument here.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.harness import Out, assert_close, run_kernel
from pyturbo import errors, ops
from reference import rope as reference


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
