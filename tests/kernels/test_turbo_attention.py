"""Attention over a compressed cache against float64 on what its rows stand for, on every device.

Vectors are rotated ones here unless a test says otherwise. Does not catch: speed; how keys are cut into
blocks, as long as the merged result is right.
"""

from functools import cache

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.harness import Out, assert_close, run_kernel
from pyturbo import errors, ops, turbo_codec
from pyturbo.ops.turbo import rotated_ones
from reference import attention as exact
from reference import turbo as reference
from reference.activation import sigmoid

TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
STEPS = {"f32": 0.0, "f16": 2**-11, "bf16": 2**-8}  # of a rounded result
FORMS = ("split", "fused", "tiled")
forms = pytest.mark.parametrize("form", FORMS)


def encoded(vectors, bits=4):
    """Rows of rotated vectors."""
    tokens, kv_heads, dim = vectors.shape
    rows = ops.turbo_rows(tokens, kv_heads, dim, bits)
    return ops.turbo_append(rows, vectors, 0, rotated=True, device="cpu")


def random_rows(rng, capacity, kv_heads, dim, bits, means=False):
    """Rows as encoding makes them, of vectors whose lengths differ."""
    vectors = rng.standard_normal((capacity, kv_heads, dim), np.float32)
    vectors *= np.exp(0.3 * rng.standard_normal((capacity, kv_heads, 1), np.float32))
    empty = ops.turbo_rows(capacity, kv_heads, dim, bits, means=means)
    return ops.turbo_append(empty, vectors, 0, rotated=True, device="cpu")


def operands(rng, tokens, capacity, heads, kv_heads, dim, key_bits=4, value_bits=4, means=False):
    q = rng.standard_normal((tokens, heads, dim), np.float32)
    k, v = (random_rows(rng, capacity, kv_heads, dim, bits, means) for bits in (key_bits, value_bits))
    return q, k, v


def run(
    form,
    device,
    q,
    k,
    v,
    scale,
    *,
    window=0,
    sinks=None,
    softcap=0.0,
    own=None,
    blocks=5,
    live=None,
    ring_start=0,
):
    """The attention of one form of kernel for one sequence, without leading axes."""
    (tokens, heads, dim), (kv_heads, capacity) = q.shape, k.scales.shape
    kind = next(name for name, dtype in TYPES.items() if dtype == q.dtype)
    kernel_dim = next(d for d in (64, 128, 256, 512) if dim <= d)
    ones = None if k.means is None else rotated_ones(dim)
    inputs = (q, k.packed, k.scales, v.packed, v.scales, k.means, v.means, ones, *(own or (None, None)))
    inputs = (*inputs, k.recent, v.recent, k.recent_keys)
    context = capacity if live is None else live
    sizes = (1, tokens, context, capacity, ring_start, k.recent_rows, heads, kv_heads, dim)
    constants = {"key_bits": k.bits, "value_bits": v.bits}
    constants |= {"has_means": k.means is not None, "has_own": own is not None}
    constants |= {"has_recent": k.recent is not None}
    has_sinks = {"has_sinks": sinks is not None}
    if form == "split":
        rows = (tokens, heads, blocks)
        args = (*inputs, Out((*rows, dim)), Out(rows), Out(rows), *sizes, blocks, scale, window, softcap)
        parts = run_kernel(device, f"turbo_partials_d{kernel_dim}_{kind}", *args, constants=constants)
        args = (*parts, sinks, None, None, Out(q.shape, q.dtype), *rows, dim)
        constants = {**has_sinks, "unrotates": False, "has_gate": False}
        return run_kernel(device, f"turbo_merge_{kind}", *args, constants=constants)[0]
    name = f"turbo_attention_d{kernel_dim}_{kind}" if form == "fused" else f"turbo_prefill_d{kernel_dim}"
    args = (*inputs, sinks, Out(q.shape, q.dtype), *sizes, scale, window, softcap)
    return run_kernel(device, name, *args, constants=constants | has_sinks)[0]


def check(y, q, k, v, scale, *, own=None, live=None, ring_start=0, **options):
    def vectors(rows, exact_rows, decode=reference.decode):
        decoded = decode(rows, turbo_codec.signs(rows.dim))
        if live is not None or ring_start:
            decoded = reference.in_order(decoded, ring_start, live)
        return decoded if exact_rows is None else np.concatenate([decoded, exact_rows])

    own_keys, own_values = own or (None, None)
    keys, values = vectors(k, own_keys), vectors(v, own_values)
    # Codes and mean of a value may cancel: what rounding adds goes by their magnitudes.
    parts = vectors(v, own_values, reference.magnitudes)
    kind = next(name for name, dtype in TYPES.items() if dtype == y.dtype)
    q = q.astype(np.float32)
    want = exact.attention(q, keys, values, scale, **options)
    magnitude = exact.attention_magnitude(q, keys, parts, scale, **options)
    if kind == "f32":
        assert_close(y, want, "attention", magnitude)
    else:
        error = np.abs(y.astype(np.float64) - want)
        assert (error <= STEPS[kind] * np.abs(want) + 2e-6 * magnitude + 1e-7).all()


@forms
@pytest.mark.parametrize(
    ("tokens", "capacity", "heads", "kv_heads", "dim", "key_bits", "value_bits"),
    [
        (1, 1, 1, 1, 64, 4, 2),
        (1, 77, 6, 2, 64, 4, 4),
        (3, 35, 9, 3, 64, 2, 8),
        (5, 69, 3, 1, 80, 3, 3),
        (7, 33, 6, 2, 96, 6, 4),
        (2, 131, 16, 1, 128, 4, 2),  # more query heads of a key head than share one simdgroup
        (11, 101, 12, 4, 128, 8, 4),
        (3, 50, 15, 3, 256, 4, 4),
        (2, 41, 3, 1, 512, 8, 6),
        (2, 37, 4, 2, 128, 3, 8),
        (3, 37, 4, 2, 256, 4, 8),
        *((1, 37, heads, 1, dim, 8, 8) for heads, dim in ((1, 64), (7, 80), (8, 96), (9, 256), (50, 64))),
    ],
)
def test_matches_float64(device, rng, form, tokens, capacity, heads, kv_heads, dim, key_bits, value_bits):
    q, k, v = operands(rng, tokens, capacity, heads, kv_heads, dim, key_bits, value_bits)
    q[0] *= 30
    scale = 1.3 * dim**-0.5
    check(run(form, device, q, k, v, scale), q, k, v, scale)


@forms
@pytest.mark.parametrize(
    ("dim", "bits"),
    [
        *((dim, bits) for dim in (64, 80) for bits in turbo_codec.WIDTHS),
        (96, 3),
        (128, 6),
        (256, 4),
        (512, 2),
    ],
)
def test_all_options_at_every_width_and_dim(device, rng, form, dim, bits):
    q, k, v = operands(rng, 3, 38, 6, 2, dim, bits, turbo_codec.WIDTHS[-turbo_codec.WIDTHS.index(bits) - 1])
    options = {"window": 27, "softcap": 2.5, "sinks": np.linspace(-2, 3, 6, dtype=np.float32)}
    check(run(form, device, q, k, v, 0.3, **options), q, k, v, 0.3, **options)


@forms
@pytest.mark.parametrize("dim", turbo_codec.DIMS)
def test_means(device, rng, form, dim):
    q, k, v = operands(rng, 3, 38, 6, 2, dim, 4, 3, means=True)
    k.means[...] += 2 * rng.standard_normal(k.means.shape)
    v.means[...] += 2 * rng.standard_normal(v.means.shape)
    check(run(form, device, q, k, v, 0.2, window=31), q, k, v, 0.2, window=31)


@pytest.mark.parametrize("form", ["split", "fused"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_queries_of_16_bits(device, rng, form, kind):
    q, k, v = operands(rng, 2, 45, 6, 2, 128)
    q = q.astype(TYPES[kind])
    y = run(form, device, q, k, v, 0.1)
    assert y.dtype == q.dtype
    check(y, q, k, v, 0.1)


@forms
@pytest.mark.parametrize("context", [0, 1, 31, 57])
@pytest.mark.parametrize("window", [0, 1, 4, 9, 40])
def test_a_chunk_sees_what_came_before_and_itself(device, rng, form, context, window):
    """Rows behind the live ones are garbage; the chunk's own keys and values are not rounded."""
    q, k, v = operands(rng, 9, 57, 6, 2, 64)
    for rows in (k, v):
        rows.scales[:, context:] = np.nan
        rows.packed[:, context:] = 0xFFFFFFFF
    own = tuple(rng.standard_normal((2, 9, 2, 64), np.float32))
    options = {"window": window, "own": own, "live": context}
    check(run(form, device, q, k, v, 0.3, **options), q, k, v, 0.3, **options)


def with_recent(rng, k, v, recent, first, end):
    """Rows whose keys [first, end) are exact too; the exact rows are not what the codes stand for."""
    kv_heads, dim = k.scales.shape[0], k.dim
    keys = np.arange(first, end)
    numbers = np.full(recent, 7, np.uint32) + recent * 1000  # of no key
    numbers[keys % recent] = keys
    found = []
    for rows in (k, v):
        vectors = rng.standard_normal((kv_heads, recent, dim)).astype(np.float16)
        vectors[:, np.setdiff1d(np.arange(recent), keys % recent)] = np.nan
        found.append(rows._replace(recent=vectors, recent_keys=numbers))
    return found


def check_recent(y, q, k, v, scale, first, end, own, **options):
    """Against rows cut at `first`, followed by the exact ones."""
    keys = np.arange(first, end)
    exact_rows = []
    for i, rows in enumerate((k, v)):
        recent = rows.recent[:, keys % rows.recent_rows].astype(np.float32).swapaxes(0, 1)
        exact_rows.append(recent if own is None else np.concatenate([recent, own[i]]))
    check(y, q, k, v, scale, own=tuple(exact_rows), live=first, **options)


@pytest.mark.spread
@pytest.mark.parametrize(
    ("recent", "first", "end"),
    [(16, 41, 57), (16, 50, 57), (5, 53, 57), (16, 57, 57), (16, 0, 9), (32, 25, 57), (1, 20, 21), (8, 0, 0)],
)
@pytest.mark.parametrize(("chunk", "window"), [(False, 0), (True, 0), (True, 12)])
@forms
def test_the_last_rows_are_exact(device, rng, form, recent, first, end, chunk, window):
    """Of fewer keys than there are rows too: after a rewind, or at the beginning."""
    tokens = 9 if chunk else max(1, min(9, end))
    q, k, v = operands(rng, tokens, 57, 6, 2, 64, 3, 8)
    own = tuple(rng.standard_normal((2, tokens, 2, 64), np.float32)) if chunk else None
    k, v = with_recent(rng, k, v, recent, first, end)
    y = run(form, device, q, k, v, 0.3, own=own, live=end, window=window)
    check_recent(y, q, k, v, 0.3, first, end, own, window=window)


@forms
@pytest.mark.parametrize("dim", turbo_codec.DIMS)
def test_exact_rows_of_every_dim_and_with_means(device, rng, form, dim):
    q, k, v = operands(rng, 2, 40, 6, 2, dim, means=True)
    k, v = with_recent(rng, k, v, 16, 24, 40)
    own = tuple(rng.standard_normal((2, 2, 2, dim), np.float32))
    sinks = rng.standard_normal(6).astype(np.float32)
    y = run(form, device, q, k, v, 0.2, own=own, sinks=sinks, softcap=5.0)
    check_recent(y, q, k, v, 0.2, 24, 40, own, sinks=sinks, softcap=5.0)


@forms
def test_a_gap_ends_the_exact_rows(device, rng, form):
    """Rows before one that is missing are not read: the exact ones are the last ones without a gap."""
    q, k, v = operands(rng, 1, 57, 6, 2, 64)
    own = tuple(rng.standard_normal((2, 1, 2, 64), np.float32))
    k, v = with_recent(rng, k, v, 16, 41, 57)
    for rows in (k, v):
        rows.recent_keys[50 % 16] = 50 - 16
    check_recent(run(form, device, q, k, v, 0.3, own=own), q, k, v, 0.3, 51, 57, own)


@forms
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("live", [0, 1, 31, 32, 33, 100])
def test_only_live_rows_are_read(device, rng, form, live, bits):
    q, k, v = operands(rng, 1, 103, 6, 2, 64, bits, bits)
    for rows in (k, v):
        rows.scales[:, live:] = np.nan
        rows.packed[:, live:] = 0xFFFFFFFF
    y = run(form, device, q, k, v, 0.3, live=live)
    check(y, q, k, v, 0.3, live=live)
    if live == 0:
        np.testing.assert_array_equal(y, 0)


@forms
def test_every_byte_is_a_number_of_steps(device, rng, form):
    """Also -128, which is never encoded."""
    q, k, v = operands(rng, 1, 40, 4, 2, 64, 8, 8)
    for rows in (k, v):
        rows.packed[...] = rng.integers(0, 1 << 32, rows.packed.shape, np.uint32)
        rows.packed[:, ::3, ::5] = 0x80808080
    check(run(form, device, q, k, v, 0.05), q, k, v, 0.05)


@forms
@pytest.mark.parametrize("window", [1, 4, 69, 70, 75])
def test_window_edges(device, rng, form, window):
    q, k, v = operands(rng, 6, 70, 3, 1, 64)
    check(run(form, device, q, k, v, 0.25, window=window), q, k, v, 0.25, window=window)


@forms
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [1, 2, 3, 4, 8, 9])
def test_groups_of_query_heads(device, rng, form, group, bits):
    q, k, v = operands(rng, 2, 41, 2 * group, 2, 128, bits, bits)
    check(run(form, device, q, k, v, 0.1), q, k, v, 0.1)


@forms
@pytest.mark.parametrize("blocks", [1, 3, 40])
def test_a_sink_counts_once(device, rng, form, blocks):
    q, k, v = operands(rng, 2, 99, 6, 2, 64)
    sinks = np.array([-1e30, 0, 1, 2, 4, 50], np.float32)
    y = run(form, device, q, k, v, 0.1, sinks=sinks, blocks=blocks)
    check(y, q, k, v, 0.1, sinks=sinks)
    assert np.abs(y[:, 5]).max() < 1e-15  # all the weight is the sink's
    np.testing.assert_array_equal(y[:, 0], run(form, device, q, k, v, 0.1, blocks=blocks)[:, 0])


@pytest.mark.parametrize("ring", [False, True])
def test_blocks_of_any_size(device, rng, ring):
    q, k, v = operands(rng, 2, 96, 4, 2, 64)
    options = {"live": 90, "ring_start": 37 if ring else 0, "window": 80}
    for blocks in (1, 2, 3, 16, 32, 200):
        check(run("split", device, q, k, v, 0.2, blocks=blocks, **options), q, k, v, 0.2, **options)


def test_partials_of_nothing_are_empty(device, rng):
    q, k, v = operands(rng, 1, 40, 2, 1, 64)
    o, m, l = ops.turbo_partials(q, k, v, 0.2, 32, rotated=True, live=17, device=device)  # noqa: E741
    used = (l != 0).sum(axis=-1)
    assert ((used > 0) & (used < 17)).all()  # a block has more than one key
    assert (o[l == 0] == 0).all()
    assert (m[l == 0] == -np.inf).all()
    np.testing.assert_array_equal(
        ops.turbo_merge(o, m, l, device=device),
        ops.turbo_attention(q, k, v, 0.2, rotated=True, live=17, device=device),
    )


def test_gate_of_the_result(device, rng):
    q, k, v = operands(rng, 1, 40, 2, 1, 64)
    gate = rng.standard_normal((1, 2, 128), np.float32)
    y = ops.turbo_attention(q, k, v, 0.2, rotated=True, gate=gate, device=device)
    plain = ops.turbo_attention(q, k, v, 0.2, rotated=True, device=device)
    assert_close(y, plain * sigmoid(gate[..., 64:]), "elementwise")
    with pytest.raises(
        errors.ArgumentError, match="turbo_attention: gate: expected None for the method fused"
    ):
        ops.turbo_attention(q, k, v, 0.2, method="fused", gate=gate, device=device)


@forms
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("window", [0, 50])
def test_a_ring_that_went_round(device, rng, form, window, bits):
    """150 vectors in 96 rows; one row off and a window of 50 must show."""
    vectors = rng.standard_normal((2, 150, 2, 64), np.float32)
    caches = [ops.turbo_rows(96, 2, 64, bits) for _ in range(2)]
    for position in range(0, 150, 10):
        part = vectors[:, position : position + 10]
        appended = (
            ops.turbo_append(c, x, position, rotated=True, device="cpu:reference")
            for c, x in zip(caches, part)
        )
        caches = list(appended)
    k, v = (encoded(x, bits) for x in vectors)
    q = rng.standard_normal((1, 6, 64), np.float32)
    newest = [rows._replace(packed=rows.packed[:, 54:], scales=rows.scales[:, 54:]) for rows in (k, v)]
    y = run(form, device, q, *caches, 0.3, window=window, ring_start=150 % 96)
    check(y, q, *newest, 0.3, window=window)
    if window:
        wrong = run(form, device, q, *caches, 0.3, window=window, ring_start=149 % 96)
        assert np.abs(wrong - y).max() > 1e-3
        counted = run(form, device, q, *caches, 0.3, window=window, live=150)  # all keys so far
        np.testing.assert_array_equal(counted, y)


@forms
def test_a_chunk_over_a_ring_that_went_round(device, rng, form):
    window, capacity, position = 20, 23, 61
    vectors = rng.standard_normal((2, position, 2, 64), np.float32)
    k, v = (
        ops.turbo_append(ops.turbo_rows(position, 2, 64, 4), x, 0, rotated=True, device=device)
        for x in vectors
    )
    slots = np.arange(position - capacity, position)
    rings = []
    for rows in (k, v):
        ring = ops.turbo_rows(capacity, 2, 64, 4)
        ring.packed[:, slots % capacity], ring.scales[:, slots % capacity] = (
            rows.packed[:, slots],
            rows.scales[:, slots],
        )
        rings.append(ring)
    q = rng.standard_normal((9, 6, 64), np.float32)
    own = tuple(rng.standard_normal((2, 9, 2, 64), np.float32))
    y = run(form, device, q, *rings, 0.3, window=window, live=position, own=own)
    check(y, q, k, v, 0.3, window=window, own=own)


@forms
def test_scores_of_any_size(device, rng, form):
    q, k, v = operands(rng, 2, 83, 3, 1, 64)
    q[0] *= 80
    k.scales[0, 0] *= 40  # the first key takes all or nothing
    check(run(form, device, q, k, v, 1.0), q, k, v, 1.0)
    k.scales[:] = 0  # all scores are equal
    check(run(form, device, q, k, v, 1.0), q, k, v, 1.0)


@forms
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["q", "k", "v", "own"])
@pytest.mark.parametrize("bits", [4, 8])
def test_nan_and_inf_show_where_they_are_seen(device, rng, form, bad, where, bits):
    q, k, v = operands(rng, 9, 36, 6, 2, 64, bits, bits)
    own = tuple(rng.standard_normal((2, 9, 2, 64), np.float32))
    if where == "q":
        q[4, 1, 60] = bad
    elif where == "own":
        own[1][4, 1, 5] = bad  # seen by queries 4 and 5 alone
    else:
        (k if where == "k" else v).scales[1, 35] = bad  # seen by query 0 alone
    y = run(form, device, q, k, v, 0.3, own=own, window=2)
    seen = np.zeros((9, 6), bool)
    seen[{"q": np.s_[4, 1], "own": np.s_[4:6, 3:]}.get(where, np.s_[0, 3:])] = True
    assert np.isfinite(y[~seen]).all()
    if where != "k" or np.isnan(bad):
        assert not np.isfinite(y[seen]).all(axis=-1).any()


def test_three_steps(device, rng):
    """Scores, softmax and values give what one attention gives."""
    q, k, v = operands(rng, 3, 67, 6, 2, 96, 6, 3)
    scores = ops.turbo_scores(q, k, 0.3, window=40, softcap=5.0, rotated=True, device=device)
    keys = reference.decode(k)
    want = exact.attention_scores(q, keys, 0.3)
    magnitude = exact.attention_scores(np.abs(q), np.abs(keys), 0.3)
    seen = np.array([[t + 64 >= j > t + 24 for j in range(67)] for t in range(3)])[:, None].repeat(6, 1)
    assert_close(scores[seen], 5 * np.tanh(want / 5)[seen], "dot", 1 + magnitude[seen])
    assert (scores[~seen] == -np.inf).all()
    y = ops.turbo_values(ops.softmax(scores, device=device), v, rotated=True, device=device)
    np.testing.assert_allclose(
        y, ops.turbo_attention(q, k, v, 0.3, 40, softcap=5.0, rotated=True, device=device), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("bits", turbo_codec.WIDTHS)
def test_values(device, rng, bits, kind):
    rows = random_rows(rng, 30, 2, 80, bits, means=True)
    p = rng.random((3, 18, 23), np.float32).astype(TYPES[kind])
    ones, sizes = rotated_ones(80), (1, 3, 23, 30, 29, 18, 2, 80)
    arrays = (p, rows.packed, rows.scales, rows.means, ones, Out((3, 18, 80), TYPES[kind]))
    constants = {"bits": bits, "has_means": True}
    (y,) = run_kernel(device, f"turbo_values_{kind}", *arrays, *sizes, 0.0, constants=constants)
    values = reference.in_order(reference.decode(rows, turbo_codec.signs(80)), 29, 23)
    want = exact.attention_values(p, values)
    magnitude = exact.attention_values(p, np.abs(values))
    assert (np.abs(y.astype(np.float64) - want) <= STEPS[kind] * np.abs(want) + 1e-6 * magnitude).all()


def test_the_threshold_leaves_out_what_is_below_it(device, rng):
    rows = random_rows(rng, 40, 2, 64, 4)
    p = rng.random((1, 6, 40), np.float32)
    p[:, :, 5], p[:, :, 6] = 0.25, -1
    everything = ops.turbo_values(p, rows, rotated=True, device=device)
    for threshold in (0.0, -1.0):
        assert (
            ops.turbo_values(p, rows, threshold, rotated=True, device=device).tobytes()
            == everything.tobytes()
        )
    kept = np.where(p >= 0.25, p, 0)
    y = ops.turbo_values(p, rows, 0.25, rotated=True, device=device)
    np.testing.assert_array_equal(y, ops.turbo_values(kept, rows, rotated=True, device=device))
    p[0, 3, 7] = np.nan
    y = ops.turbo_values(p, rows, 0.25, rotated=True, device=device)
    np.testing.assert_array_equal(np.isnan(y).all(axis=-1), [[False, False, False, True, False, False]])


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("dim", turbo_codec.DIMS)
def test_merge_turns_back(device, rng, dim, kind):
    o = rng.standard_normal((2, 3, 7, dim), np.float32)
    m = rng.standard_normal((2, 3, 7), np.float32) * 3
    l = rng.random((2, 3, 7), np.float32)  # noqa: E741
    l[0, 1], l[1, 2, 3:] = 0, 0
    weights = np.exp(m.astype(np.float64))
    total = (weights * l).sum(-1, keepdims=True)
    want = (np.where(l == 0, 0, weights)[..., None] * o).sum(2) / np.where(total == 0, 1, total)
    back = reference.unrotate(want, turbo_codec.signs(dim))
    gate = np.full((2, 3, 2, dim), np.nan, np.float32)
    gate[:, :, 1] = rng.uniform(-2, 2, (2, 3, dim))
    for factors in (None, gate):
        args = (o, m, l, None, turbo_codec.signs(dim), factors, Out((2, 3, dim), TYPES[kind]), 2, 3, 7, dim)
        constants = {"has_sinks": False, "unrotates": True, "has_gate": factors is not None}
        (y,) = run_kernel(device, f"turbo_merge_{kind}", *args, constants=constants)
        scale = 1 if factors is None else sigmoid(factors[:, :, 1])
        assert (y[0, 1] == 0).all()
        bound = scale * (2e-6 * np.abs(want).sum(-1, keepdims=True) + STEPS[kind] * np.abs(back))
        assert (np.abs(y.astype(np.float64) - scale * back) <= bound).all()


@pytest.mark.parametrize(
    ("method", "kind"),
    [("split", "f32"), ("fused", "f32"), ("tiled", "f32"), ("split", "bf16"), ("fused", "bf16")],
)
def test_vectors_as_they_are(device, rng, method, kind):
    """Nothing is left rotated: against attention over decoded vectors, with everything as a user has it."""
    x = rng.standard_normal((2, 60, 2, 80), np.float32) + np.float32(1.5)
    k, v = (ops.turbo_encode(part, 8, means=True, device=device) for part in x)
    own = tuple(rng.standard_normal((2, 5, 2, 80), np.float32))
    q = rng.standard_normal((5, 6, 80), np.float32).astype(TYPES[kind])
    keys, values = (np.concatenate([ops.turbo_decode(r, device=device), o]) for r, o in zip((k, v), own))
    want = exact.attention(q.astype(np.float32), keys, values, 0.1)
    y = ops.turbo_attention(q, k, v, 0.1, method=method, own=own, device=device)
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=0, atol=2e-5 if kind == "f32" else 0.05)
    true = exact.attention(q.astype(np.float32), *(np.concatenate([a, o]) for a, o in zip(x, own)), 0.1)
    assert np.abs(y.astype(np.float64) - true).max() < 0.1


@pytest.mark.parametrize("method", FORMS)
def test_a_batch_is_its_sequences(device, rng, method):
    x = rng.standard_normal((2, 3, 33, 2, 64), np.float32)
    own = rng.standard_normal((2, 3, 4, 2, 64), np.float32)
    q = rng.standard_normal((3, 4, 6, 64), np.float32)
    sinks = rng.standard_normal(6).astype(np.float32)
    k, v = (ops.turbo_encode(part, 4, device=device) for part in x)
    y = ops.turbo_attention(q, k, v, 0.2, sinks=sinks, method=method, own=tuple(own), device=device)
    for b in range(3):
        rows = [r._replace(packed=r.packed[b], scales=r.scales[b]) for r in (k, v)]
        one = ops.turbo_attention(
            q[b], *rows, 0.2, sinks=sinks, method=method, own=tuple(own[:, b]), device=device
        )
        np.testing.assert_array_equal(y[b], one)
    y = ops.turbo_attention(q[:, 0], k, v, 0.2, method=method, device=device)
    assert y.shape == (3, 6, 64)
    scores = ops.turbo_scores(q, k, 0.2, device=device)
    summed = ops.turbo_values(ops.softmax(scores, device=device), v, device=device)
    np.testing.assert_allclose(summed, ops.turbo_attention(q, k, v, 0.2, device=device), rtol=0, atol=1e-5)


@settings(max_examples=25)
@given(
    tokens=st.integers(1, 12),
    context=st.integers(0, 60),
    spare=st.integers(0, 9),
    group=st.integers(1, 9),
    kv_heads=st.integers(1, 3),
    dim=st.sampled_from([64, 80, 96, 128]),
    key_bits=st.sampled_from(turbo_codec.WIDTHS),
    value_bits=st.sampled_from(turbo_codec.WIDTHS),
    window=st.one_of(st.just(0), st.integers(1, 80)),
    softcap=st.sampled_from([0.0, 3.0]),
    with_sinks=st.booleans(),
    with_own=st.booleans(),
    means=st.booleans(),
    turn=st.integers(0, 99),
    method=st.sampled_from(FORMS),
    seed=st.integers(0, 99),
)
def test_any_shape(
    tokens, context, spare, group, kv_heads, dim, key_bits, value_bits, window, softcap, with_sinks, with_own,
    means, turn, method, seed,
):  # fmt: skip
    rng = np.random.default_rng(seed)
    capacity = context + spare + 1
    q, k, v = operands(rng, tokens, capacity, group * kv_heads, kv_heads, dim, key_bits, value_bits, means)
    sinks = rng.standard_normal(group * kv_heads).astype(np.float32) if with_sinks else None
    own = tuple(rng.standard_normal((2, tokens, kv_heads, dim), np.float32)) if with_own else None
    options = {"window": window, "softcap": softcap, "sinks": sinks}
    places = {"live": context, "ring_start": turn % capacity, "own": own}
    y = ops.turbo_attention(q, k, v, 0.2, method=method, rotated=True, device="cpu", **options, **places)
    check(y, q, k, v, 0.2, **options, **places)


@cache
def exact_attention(scale):
    """A query of 64 heads, 4096 keys and values, and their attention."""
    rng = np.random.default_rng(20240617)
    k, v = rng.standard_normal((2, 4096, 1, 128), np.float32)
    q = rng.standard_normal((64, 128), np.float32)
    return q, k, v, exact.attention(q[None], k, v, scale)[0]


@pytest.mark.parametrize(
    ("deviation", "bits", "least"),
    [(1, (8, 8), 0.9999), (1, (8, 4), 0.9954), (1, (4, 4), 0.991), (1, (4, 2), 0.933), (1, (3, 3), 0.967),
     (3, (8, 4), 0.9952), (3, (4, 4), 0.974), (3, (4, 2), 0.919), (3, (3, 3), 0.893)],
)  # fmt: skip
def test_quality_against_exact_attention(deviation, bits, least):
    """Mean cosine with attention over the vectors themselves: normal ones, for which nothing averages out."""
    scale = deviation * 128**-0.5
    q, k, v, want = exact_attention(scale)
    rows = (ops.turbo_encode(x, b, device="cpu") for x, b in zip((k, v), bits))
    y = ops.turbo_attention(q, *rows, scale, device="cpu")
    cosine = (y * want).sum(1) / np.linalg.norm(y, axis=1) / np.linalg.norm(want, axis=1)
    assert cosine.mean() > least - 0.01


def test_many_keys(device, rng):
    """32k keys with equal weights: the sums do not drift."""
    tile = ops.turbo_encode(rng.standard_normal((64, 1, 64), np.float32), 4, device=device)
    rows = tile._replace(packed=np.tile(tile.packed, (1, 512, 1)), scales=np.tile(tile.scales, (1, 512)))
    if device.name == "cpu:reference":
        rows = rows._replace(packed=rows.packed[:, :2048].copy(), scales=rows.scales[:, :2048].copy())
    q = np.zeros((1, 2, 64), np.float32)
    y = ops.turbo_attention(q, rows, rows, 1.0, rotated=True, device=device)
    want = reference.decode(tile).mean(axis=0)
    np.testing.assert_allclose(y[0], want.repeat(2, 0), rtol=0, atol=1e-5)


def fine(tokens=1, heads=2, dim=64, capacity=5):
    return np.ones((tokens, heads, dim), np.float32), ops.turbo_rows(capacity, 2, dim, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ops.turbo_attention(fine(heads=3)[0], fine()[1], fine()[1], 1.0),
            "turbo_attention: q: expected a multiple of 2 key heads, got 3 heads",
        ),
        (
            lambda: ops.turbo_attention(fine(dim=80)[0], fine()[1], fine()[1], 1.0),
            r"turbo_attention: q: expected shape \[any, any, 64\], got \[1, 2, 80\]",
        ),
        (
            lambda: ops.turbo_attention(*fine(), fine(capacity=6)[1], 1.0),
            r"turbo_attention: v_rows: expected rows \[2, 5\] of 64 values, got \[2, 6\] of 64",
        ),
        (
            lambda: ops.turbo_attention(*fine(), ops.turbo_rows(5, 2, 64, 4, means=True), 1.0),
            "turbo_attention: v_rows: expected means of both keys and values, or of none",
        ),
        (
            lambda: ops.turbo_attention(*fine(), fine()[1], 1.0, method="best"),
            "turbo_attention: method: expected auto, split, tiled or fused, got 'best'",
        ),
        (
            lambda: ops.turbo_attention(fine()[0].astype(np.float16), *[fine()[1]] * 2, 1.0, method="tiled"),
            "turbo_attention: q: expected float32 for the method tiled, got float16",
        ),
        (
            lambda: ops.turbo_attention(*fine(), fine()[1], 1.0, sinks=np.ones(3, np.float32)),
            r"turbo_attention: sinks: expected shape \[2\], got \[3\]",
        ),
        (
            lambda: ops.turbo_attention(*fine(), fine()[1], 1.0, own=(np.ones((2, 2, 64), np.float32),) * 2),
            r"turbo_attention: own keys: expected shape \[1, 2, 64\], got \[2, 2, 64\]",
        ),
        (lambda: ops.turbo_attention(*fine(), fine()[1], 1.0, live=6), "requires context <= capacity"),
        (
            lambda: ops.turbo_attention(*fine(), fine()[1], 1.0, ring_start=5),
            "ring_start < capacity",
        ),
        (
            lambda: ops.turbo_attention(*fine(4), fine()[1], 1.0, window=3, live=9),
            "requires context <= capacity",
        ),
        (
            lambda: ops.turbo_partials(*fine(), fine()[1], 1.0, 0),
            "turbo_partials: blocks: expected an integer from 1 on, got 0",
        ),
        (
            lambda: ops.turbo_merge(*(np.ones((2, 2), np.float32),) * 3),
            r"turbo_merge: o: expected shape \[..., heads, blocks, dim\], got \[2, 2\]",
        ),
        (
            lambda: ops.turbo_values(np.ones((3, 5), np.float32), fine()[1]),
            "turbo_values: weights: expected a multiple of 2 key heads, got 3 heads",
        ),
    ],
)
def test_refuses(call, message):
    with pytest.raises(errors.ArgumentError, match=message):
        call()
