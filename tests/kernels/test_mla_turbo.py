"""Latent attention over a compressed cache against float64 on what its rows stand for, on every device.

Does not catch: speed; how the keys are cut into blocks, as long as the merged result is right.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.harness import Out, assert_close, run_kernel
from kernels.levels import LEVELS, device_at
from kernels.test_turbo_attention import random_rows
from pyturbo import errors, ops, turbo_codec
from pyturbo.ops.attention import SPLIT_TOKENS
from reference import mla
from reference import turbo as reference

forms = pytest.mark.parametrize("form", ["split", "tiled"])


def operands(rng, tokens, capacity, heads, rank, rope, bits=4):
    q, q_rope = (rng.standard_normal((tokens, heads, width), np.float32) for width in (rank, rope))
    rows = random_rows(rng, capacity, 1, rank, bits)
    return q, q_rope, rows, rng.standard_normal((capacity, rope)).astype(np.float16)


def own_rows(rng, tokens, rank, rope):
    return tuple(rng.standard_normal((tokens, width), np.float32) for width in (rank, rope))


def run(form, device, q, q_rope, rows, rope_keys, scale, *, own=None, live=None, blocks=5):
    """Rotated attention of one form of kernel."""
    (tokens, heads, rank), (capacity, rope) = q.shape, rope_keys.shape
    recent = None if rows.recent is None else rows.recent[0]
    inputs = q, q_rope, rows.packed[0], rows.scales[0], rope_keys, *(own or (None, None))
    inputs = (*inputs, recent, rows.recent_keys)
    sizes = tokens, capacity if live is None else live, capacity, rows.recent_rows, heads, rank, rope
    constants = {"bits": rows.bits, "has_own": own is not None, "has_recent": recent is not None}
    if form == "tiled":
        args = (*inputs, Out(q.shape), *sizes, scale)
        return run_kernel(device, "mla_turbo_attention", *args, constants=constants)[0]
    shape = (tokens, heads, blocks)
    args = (*inputs, Out((*shape, rank)), Out(shape), Out(shape), *sizes, blocks, scale)
    parts = run_kernel(device, "mla_turbo_partials", *args, constants=constants)
    args = (*parts, None, None, None, Out(q.shape), *shape, rank)
    constants = {"has_sinks": False, "unrotates": False, "has_gate": False}
    return run_kernel(device, "turbo_merge_f32", *args, constants=constants)[0]


def check(y, q, q_rope, rows, rope_keys, scale, *, own=None, live=None, exact=range(0)):
    latents, keys = reference.decode(rows)[:live, 0], rope_keys[:live].astype(np.float64)
    for key in exact:
        latents[key] = rows.recent[0, key % rows.recent_rows]
    if own is not None:
        latents, keys = np.concatenate([latents, own[0]]), np.concatenate([keys, own[1]])
    args = q, q_rope, latents, keys, scale
    assert_close(y, mla.mla_attention(*args), "attention", mla.mla_attention_magnitude(*args))


@forms
@pytest.mark.parametrize(
    ("tokens", "capacity", "heads", "rank", "rope", "bits"),
    [
        (1, 1, 1, 64, 8, 4),
        (3, 77, 5, 80, 24, 2),
        (7, 35, 3, 96, 16, 3),
        (13, 47, 17, 128, 64, 8),  # more heads than a threadgroup of mla_turbo_partials has
        (2, 101, 33, 128, 40, 6),
        (4, 50, 3, 256, 32, 4),
        (2, 70, 4, 512, 64, 8),
        (5, 3, 2, 64, 16, 4),  # queries that see no key
        (1, 9, 20, 80, 48, 3),  # fewer keys than a block
        (2, 37, 40, 256, 8, 6),
        (1, 70, 128, 96, 56, 2),
        (1, 203, 16, 512, 64, 4),  # blocks of several tiles
    ],
)
def test_matches_float64(device, rng, form, tokens, capacity, heads, rank, rope, bits):
    args = operands(rng, tokens, capacity, heads, rank, rope, bits)
    args[0][0] *= 10
    scale = 1.3 * (rank + rope) ** -0.5
    check(run(form, device, *args, scale), *args, scale)


@pytest.mark.spread
@forms
@pytest.mark.parametrize(("live", "tokens"), [(0, 5), (41, 1), (41, 9), (64, 35)])
@pytest.mark.parametrize("bits", turbo_codec.WIDTHS)
def test_own_rows_follow_those_of_the_cache(device, rng, form, live, tokens, bits):
    args = operands(rng, tokens, 67, 3, 64, 24, bits)
    own = own_rows(rng, tokens, 64, 24)
    y = run(form, device, *args, 0.2, own=own, live=live)
    check(y, *args, 0.2, own=own, live=live)


@forms
@pytest.mark.parametrize("bits", [2, 8])
@pytest.mark.parametrize(("first", "live", "tokens"), [(25, 41, 1), (36, 41, 9), (41, 41, 2), (0, 5, 35)])
def test_the_last_latents_are_exact(device, rng, form, first, live, tokens, bits):
    """Of fewer keys than there are rows too; their rotary keys are those of the cache."""
    q, q_rope, rows, rope_keys = operands(rng, tokens, 64, 5, 96, 16, bits)
    keys = np.arange(first, live)
    rows = rows._replace(recent=np.full((1, 16, 96), np.nan, np.float16), recent_keys=np.arange(16) + 3200)
    rows = rows._replace(recent_keys=rows.recent_keys.astype(np.uint32))
    rows.recent[0, keys % 16] = rng.standard_normal((len(keys), 96))
    rows.recent_keys[keys % 16] = keys
    own = own_rows(rng, tokens, 96, 16)
    y = run(form, device, q, q_rope, rows, rope_keys, 0.1, own=own, live=live)
    check(y, q, q_rope, rows, rope_keys, 0.1, own=own, live=live, exact=keys)


@forms
def test_what_a_query_does_not_see_does_not_reach_it(device, rng, form):
    """Rows past the live ones, of the cache and of the chunk, and what is no number in them."""
    args = operands(rng, 3, 50, 2, 64, 8)
    own = own_rows(rng, 3, 64, 8)
    _, _, rows, rope_keys = args
    want = run(form, device, *args, 0.2, own=own, live=41)
    rows.scales[0, 41:], rope_keys[41:] = np.nan, np.inf
    np.testing.assert_array_equal(run(form, device, *args, 0.2, own=own, live=41), want)
    own[0][2, 3] = np.nan  # the key of the last query alone
    y = run(form, device, *args, 0.2, own=own, live=41)
    np.testing.assert_allclose(y[:2], want[:2], rtol=0, atol=1e-6)  # other order of additions
    assert np.isnan(y[2]).all()
    own[0][2, 3], rows.scales[0, 7] = 0, np.nan  # a key of all
    assert np.isnan(run(form, device, *args, 0.2, own=own, live=41)).all()


@pytest.mark.parametrize("tokens", [1, SPLIT_TOKENS, SPLIT_TOKENS + 3])
@pytest.mark.parametrize("rank", [80, 128])
def test_the_operation_rotates_there_and_back(device, rng, tokens, rank):
    """Against attention over the latents that the rows decode to, as they were before they were rotated."""
    q, q_rope, rows, rope_keys = operands(rng, tokens, 75, 3, rank, 16, 8)
    own = own_rows(rng, tokens, rank, 16)
    y = ops.mla_turbo_attention(q, q_rope, rows, rope_keys, 0.15, own=own, live=70, device=device)
    signs = turbo_codec.signs(rank)
    latents = np.concatenate([reference.unrotate(reference.decode(rows), signs)[:70, 0], own[0]])
    keys = np.concatenate([rope_keys[:70], own[1]])
    want = mla.mla_attention(q, q_rope, latents, keys, 0.15)
    np.testing.assert_allclose(y, want, rtol=0, atol=2e-5)
    exact = ops.mla_attention(
        q, q_rope, latents.astype(np.float32), keys.astype(np.float32), None, 0.15, device=device
    )
    np.testing.assert_allclose(y, exact, rtol=0, atol=2e-5)


@settings(max_examples=20, deadline=None)
@given(
    tokens=st.integers(1, 14),
    live=st.integers(0, 90),
    heads=st.integers(1, 60),
    rank=st.sampled_from(turbo_codec.DIMS[:4]),
    rope=st.integers(1, 8),
    bits=st.sampled_from(turbo_codec.WIDTHS),
    seed=st.integers(0, 99),
)
def test_any_shape(tokens, live, heads, rank, rope, bits, seed):
    rng = np.random.default_rng(seed)
    q, q_rope, rows, rope_keys = operands(rng, tokens, live + 3, heads, rank, 8 * rope, bits)
    own = own_rows(rng, tokens, rank, 8 * rope)
    y = ops.mla_turbo_attention(q, q_rope, rows, rope_keys, 0.1, own=own, live=live, device="cpu")
    latents = np.concatenate(
        [reference.decode(rows)[:live, 0], reference.rotate(own[0], turbo_codec.signs(rank))]
    )
    keys = np.concatenate([rope_keys[:live], own[1]])
    rotated = reference.rotate(q, turbo_codec.signs(rank))
    want = reference.unrotate(mla.mla_attention(rotated, q_rope, latents, keys, 0.1), turbo_codec.signs(rank))
    np.testing.assert_allclose(y, want, rtol=0, atol=3e-5)


@pytest.mark.skipif(not LEVELS, reason="this machine has no level")
def test_bits_do_not_depend_on_the_number_of_threads(rng):
    args = operands(rng, 11, 150, 20, 128, 16)
    own = own_rows(rng, 11, 128, 16)
    for level in LEVELS:
        for count in (2, 11):
            part = args[0][:count], args[1][:count], *args[2:]
            rows = tuple(each[:count] for each in own)
            results = [
                ops.mla_turbo_attention(*part, 0.1, own=rows, device=device_at(level, threads=threads))
                for threads in (1, 2, 3)
            ]
            assert len({result.tobytes() for result in results}) == 1


def test_refuses(device, rng):
    q, q_rope, rows, rope_keys = operands(rng, 1, 5, 2, 64, 8)
    twice = ops.turbo_rows(5, 2, 64, 4)
    for message, args in (
        ("latents: expected TurboRows, got ndarray", (q, q_rope, rope_keys, rope_keys)),
        (r"latents: expected rows of one head without means, got \[2, 5\]", (q, q_rope, twice, rope_keys)),
        ("rope_keys: expected float16, got float32", (q, q_rope, rows, rope_keys.astype(np.float32))),
        (r"rope_keys: expected shape \[5, any\], got \[4, 8\]", (q, q_rope, rows, rope_keys[:4])),
        ("rope_keys: expected rows of 8, 16, ... or 64 values, got 4", (q, q_rope, rows, rope_keys[:, :4])),
        (r"q: expected shape \[any, any, 64\], got \[1, 2, 32\]", (q[..., :32], q_rope, rows, rope_keys)),
        (r"q_rope: expected shape \[1, 2, 8\], got \[1, 1, 8\]", (q, q_rope[:, :1], rows, rope_keys)),
    ):
        with pytest.raises(errors.ArgumentError, match=f"mla_turbo_attention: {message}"):
            ops.mla_turbo_attention(*args, 1.0, device=device)
    with pytest.raises(errors.ArgumentError, match=r"own latents: expected shape \[1, 64\], got \[2, 64\]"):
        ops.mla_turbo_attention(q, q_rope, rows, rope_keys, 1.0, own=own_rows(rng, 2, 64, 8), device=device)
    with pytest.raises(errors.ArgumentError, match="requires context <= capacity"):
        ops.mla_turbo_attention(q, q_rope, rows, rope_keys, 1.0, live=6, device=device)
