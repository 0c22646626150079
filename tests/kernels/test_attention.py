"""Attention over an uncompressed cache against float64, on every device.

Does not catch: speed; how the keys are cut into blocks, as long as the merged result is right.
"""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyturbo
from kernels.harness import Out, assert_close, run_kernel
from pyturbo import errors, ops
from pyturbo.ops.attention import SPLIT_TOKENS
from reference import attention as reference
from reference.activation import sigmoid_gate

TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
FORMS = ("split", "tiled")


def operands(rng, tokens, context, heads, kv_heads, dim, dtype=np.float32):
    q = rng.standard_normal((tokens, heads, dim), np.float32)
    k = rng.standard_normal((context, kv_heads, dim), np.float32).astype(dtype)
    v = rng.standard_normal((context, kv_heads, dim), np.float32).astype(dtype)
    return q, k, v


def run(
    form, device, q, k, v, scale, *, causal=True, window=0, sinks=None, softcap=0.0, blocks=5, context=None
):
    """The attention of one form of kernel; keys past the context are rows that nobody has appended."""
    (tokens, heads, dim), (capacity, kv_heads, _) = q.shape, k.shape
    sizes = (tokens, capacity if context is None else context, capacity, heads, kv_heads, dim)
    kind = next(name for name, dtype in TYPES.items() if dtype == k.dtype)
    suffix = f"d{next(d for d in (64, 128, 256, 512) if dim <= d)}_{kind}"
    sinks_given = {"has_sinks": sinks is not None}
    if form == "tiled":
        args = (q, k, v, sinks, Out(q.shape), *sizes, scale, window, softcap)
        return run_kernel(device, f"attention_{suffix}", *args, constants={"causal": causal, **sinks_given})[
            0
        ]
    rows = (tokens, heads, blocks)
    args = (q, k, v, Out((*rows, dim)), Out(rows), Out(rows), *sizes, blocks, scale, window, softcap)
    parts = run_kernel(device, f"attention_partials_{suffix}", *args, constants={"causal": causal})
    args = (*parts, sinks, None, Out(q.shape), *rows, dim)
    return run_kernel(device, "attention_merge", *args, constants={**sinks_given, "has_gate": False})[0]


def check(y, *args, **options):
    want = reference.attention(*args, **options)
    kind = "attention of bfloat" if args[1].dtype == ml_dtypes.bfloat16 else "attention"
    assert_close(y, want, kind, reference.attention_magnitude(*args, **options))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("tokens", "context", "heads", "kv_heads", "dim", "kind"),
    [
        (1, 1, 1, 1, 8, "f32"),
        (1, 77, 6, 2, 64, "f16"),
        (3, 35, 9, 3, 16, "bf16"),
        (5, 69, 3, 1, 80, "f32"),
        (7, 33, 6, 2, 96, "f16"),
        (2, 131, 16, 1, 128, "bf16"),  # more query heads of a key head than share one simdgroup
        (13, 47, 3, 3, 24, "f32"),
        (11, 101, 12, 4, 128, "f16"),
        (3, 50, 15, 3, 256, "f32"),
        (2, 41, 3, 1, 512, "bf16"),
        (1, 37, 50, 1, 64, "f16"),  # more than a CPU has rows at a time
    ],
)
def test_matches_float64(device, rng, form, tokens, context, heads, kv_heads, dim, kind):
    q, k, v = operands(rng, tokens, context, heads, kv_heads, dim, TYPES[kind])
    q[0] *= 30
    scale = 1.3 * dim**-0.5
    check(run(form, device, q, k, v, scale), q, k, v, scale)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dim", [64, 80, 96, 128, 256, 512])
def test_all_options_at_every_head_dim(device, rng, form, dim):
    q, k, v = operands(rng, 3, 58, 6, 2, dim, np.float16)
    options = {"window": 37, "softcap": 2.5, "sinks": np.linspace(-2, 3, 6, dtype=np.float32)}
    check(run(form, device, q, k, v, 0.3, **options), q, k, v, 0.3, **options)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_without_causality_every_key_is_seen(device, rng, form, kind):
    q, k, v = operands(rng, 9, 5, 6, 2, 40, TYPES[kind])
    y = run(form, device, q, k, v, 0.2, causal=False)
    check(y, q, k, v, 0.2, causal=False)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("window", [1, 2, 31, 32, 33, 40, 65, 70, 75, 1000])
def test_window_edges(device, rng, form, kind, window):
    q, k, v = operands(rng, 6, 70, 3, 1, 16, TYPES[kind])
    y = run(form, device, q, k, v, 0.25, window=window)
    check(y, q, k, v, 0.25, window=window)
    if window == 1:
        np.testing.assert_array_equal(y, np.repeat(v[-6:], 3, axis=1))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("blocks", [1, 3, 40])
def test_a_sink_counts_once(device, rng, form, blocks):
    q, k, v = operands(rng, 2, 99, 6, 2, 24)
    sinks = np.array([-3, 0, 1, 2, 4, 50], np.float32)
    y = run(form, device, q, k, v, 0.3, sinks=sinks, blocks=blocks)
    check(y, q, k, v, 0.3, sinks=sinks)
    assert np.abs(y[:, 5]).max() < 1e-15  # all the weight is the sink's
    one = np.ones((1, 1, 8), np.float32)
    y = run(form, device, one, one, one, 0.5, sinks=np.array([2.0], np.float32), blocks=blocks)
    np.testing.assert_allclose(y, np.e**4 / (np.e**4 + np.e**2) * one, rtol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_a_sink_of_minus_infinity_is_none(device, rng, form):
    q, k, v = operands(rng, 5, 3, 3, 1, 16)  # with two queries that see no key
    sinks = np.full(3, -np.inf, np.float32)
    np.testing.assert_array_equal(
        run(form, device, q, k, v, 0.3, sinks=sinks), run(form, device, q, k, v, 0.3)
    )


@pytest.mark.parametrize("form", FORMS)
def test_the_soft_cap_comes_before_the_mask_and_not_to_sinks(device, rng, form):
    q, k, v = operands(rng, 4, 45, 6, 3, 32)
    options = {"softcap": 1.5, "window": 20, "sinks": np.linspace(-1, 6, 6, dtype=np.float32)}
    q[1] *= 1e4
    check(run(form, device, q, k, v, 0.4, **options), q, k, v, 0.4, **options)


@pytest.mark.parametrize("dim", [40, 136])
def test_split_and_unsplit_agree(device, rng, dim):
    q, k, v = operands(rng, 3, 211, 6, 2, dim)
    unsplit = run("tiled", device, q, k, v, 0.1)
    for blocks in (1, 2, 7, 14, 211, 300):
        y = run("split", device, q, k, v, 0.1, blocks=blocks)
        np.testing.assert_allclose(y, unsplit, rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e4, 1e30])
def test_scores_of_any_size(device, rng, form, kind, scale):
    """Products that are exact in float32, so that the order of huge scores is the reference's."""
    q, k, v = operands(rng, 5, 83, 3, 1, 16, TYPES[kind])
    q, k = np.sign(q), np.sign(k.astype(np.float32)).astype(k.dtype)
    k[40] = q[2, 1]  # the largest score of that head, in the middle
    check_at = {"sinks": np.array([0, 1, -1], np.float32)} if scale == 1.0 else {}
    y = run(form, device, q, k, v, scale, **check_at)
    assert np.isfinite(y).all()
    want = reference.attention(q, k, v, np.float32(scale), **check_at)
    np.testing.assert_allclose(y, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_rising_and_falling_scores(device, rng, form, kind):
    """The largest score so far changes with every key, or never."""
    _, k, v = operands(rng, 1, 90, 2, 1, 8, TYPES[kind])
    k[:] = 0
    k[:, 0, 0] = np.arange(90)
    q = np.zeros((1, 2, 8), np.float32)
    q[0, :, 0] = 3, -3
    check(run(form, device, q, k, v, 1.0), q, k, v, 1.0)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("with_sinks", [False, True])
def test_a_query_without_keys_gives_zero(device, rng, form, kind, with_sinks):
    q, k, v = operands(rng, 7, 4, 6, 2, 16, TYPES[kind])
    sinks = np.full(6, 0.5, np.float32) if with_sinks else None
    y = run(form, device, q, k, v, 0.25, sinks=sinks)
    np.testing.assert_array_equal(y[:3], 0)
    assert (y[3:] != 0).all()
    check(y, q, k, v, 0.25, sinks=sinks)


@pytest.mark.parametrize("with_sinks", [False, True])
def test_gate_of_the_result(device, rng, with_sinks):
    """The second half of each head; the first half is not read."""
    q, k, v = operands(rng, 2, 20, 3, 1, 40)
    sinks = np.full(3, 0.5, np.float32) if with_sinks else None
    gate = np.full((2, 3, 80), np.nan, np.float32)
    gate[..., 40:] = rng.standard_normal((2, 3, 40), np.float32) * 5
    parts = ops.attention_partials(q, k, v, 0.25, 6, device=device)
    args = (*parts, sinks, gate, Out(q.shape), 2, 3, 6, 40)
    (y,) = run_kernel(device, "attention_merge", *args, constants={"has_sinks": with_sinks, "has_gate": True})
    plain = ops.attention_merge(*parts, sinks, device=device)
    assert_close(y, sigmoid_gate(plain, gate[..., 40:]), "elementwise")
    whole = ops.attention(q, k, v, 0.25, sinks=sinks, gate=gate, device=device)
    assert_close(
        whole,
        sigmoid_gate(ops.attention(q, k, v, 0.25, sinks=sinks, device=device), gate[..., 40:]),
        "elementwise",
    )
    many = np.zeros((9, 3, 40), np.float32)
    with pytest.raises(errors.ArgumentError, match="attention: gate: expected None for more than 8 tokens"):
        ops.attention(many, k, v, 0.25, gate=np.zeros((9, 3, 80), np.float32), device=device)


def test_empty_blocks(device, rng):
    """They are written, and skipped by the merge whatever else they hold."""
    q, k, v = operands(rng, 2, 20, 3, 1, 16)
    o, m, l = ops.attention_partials(q, k, v, 0.25, 6, device=device)  # noqa: E741
    empty = l == 0
    assert 0 < empty.sum() < empty.size
    np.testing.assert_array_equal(m[empty], -np.inf)
    np.testing.assert_array_equal(o[empty], 0)
    y = ops.attention_merge(o, m, l, device=device)
    check(y, q, k, v, 0.25)
    o[empty], m[empty] = np.nan, 1e30
    np.testing.assert_array_equal(ops.attention_merge(o, m, l, device=device), y)
    nothing = ops.attention_merge(o, m, np.zeros_like(l), np.zeros(3, np.float32), device=device)
    np.testing.assert_array_equal(nothing, 0)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dim", [24, 48])
def test_rows_past_the_context_are_not_read(device, rng, dim, form, kind):
    q, k, v = operands(rng, 5, 39, 6, 2, dim, TYPES[kind])
    garbage = np.full((20, 2, dim), np.nan, k.dtype)
    y = run(form, device, q, np.concatenate([k, garbage]), np.concatenate([v, garbage]), 0.2, context=39)
    assert y.tobytes() == run(form, device, q, k, v, 0.2).tobytes()


@pytest.mark.spread
@pytest.mark.parametrize("window", [7, 41])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", TYPES)
def test_a_ring_holds_what_each_chunk_needs(device, rng, form, kind, window):
    """Chunks are appended, then attended to, while positions go round the ring several times."""
    chunks = [5, 1, 9, 9, 2, 7, 9, 1, 1, 8, 9, 9, 3, 9, 9, 4]
    capacity = window + max(chunks) - 1
    q, k, v = operands(rng, sum(chunks), sum(chunks), 6, 2, 16)
    k_ring, v_ring = (np.full((capacity, 2, 16), np.nan, TYPES[kind]) for _ in range(2))
    rounded_k, rounded_v = k.astype(TYPES[kind]), v.astype(TYPES[kind])
    position = 0
    for tokens in chunks:
        new = slice(position, position + tokens)
        ops.kv_append(k_ring, k[new], position, device=device)
        ops.kv_append(v_ring, v[new], position, device=device)
        position += tokens
        if position < capacity:
            continue
        y = run(form, device, q[new], k_ring, v_ring, 0.3, window=window, context=position)
        check(y, q[new], rounded_k[:position], rounded_v[:position], 0.3, window=window)


def test_ops_at_a_late_position_of_a_ring(device, rng):
    """Row 3000000 % 31 and around: positions matter only modulo the capacity."""
    q, k, v = operands(rng, 4, 31, 3, 1, 16)
    context, window = 3_000_000, 28
    order = np.arange(context - 31, context) % 31
    y = ops.attention(q, k, v, 0.3, window=window, context=context, device=device)
    check(y, q, k[order], v[order], 0.3, window=window)


@pytest.mark.spread
@pytest.mark.parametrize("dim", [72, 80])  # of vectors of 16 values, a part and whole ones
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["q", "k", "v"])
@pytest.mark.parametrize("kind", TYPES)
def test_nan_and_inf_show_where_they_are_seen(device, rng, dim, form, kind, bad, where):
    q, k, v = operands(rng, 9, 45, 6, 2, dim, TYPES[kind])  # small enough for the checker
    if where == "q":
        q[4, 1, 70] = bad
    elif where == "k":
        k[40, 1, 3] = bad  # seen by queries 4 and 5 alone
    else:
        v[40, 1, 69] = bad
        v[30, 0, 5] = bad  # not in the window of any
    y = run(form, device, q, k, v, 0.3, window=2)
    check(y, q, k, v, 0.3, window=2)
    y = run(form, device, q, k, v, 0.3)
    check(y, q, k, v, 0.3)
    assert np.isfinite(y[:3, 3:]).all()
    if where != "k" or np.isnan(bad):
        assert not np.isfinite(y).all()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dim", [8, 16])
def test_scores_of_minus_infinity(device, rng, dim, form, kind):
    """One such key has weight 0, first or last; where all scores are -inf there is no answer."""
    q, k, v = operands(rng, 2, 40, 1, 1, dim, TYPES[kind])
    q[:] = 1
    k[[0, 39], 0, 0] = -np.inf
    check(run(form, device, q, k, v, 0.3), q, k, v, 0.3)
    k[:, 0, 0] = -np.inf
    assert np.isnan(run(form, device, q, k, v, 0.3)).all()
    assert np.isnan(run(form, device, q, k, v, 0.3, window=1)).all()


@pytest.mark.spread
@settings(max_examples=25, deadline=None)
@given(
    tokens=st.integers(1, 40),
    earlier=st.integers(0, 70),
    group=st.integers(1, 9),
    kv_heads=st.integers(1, 3),
    eighths=st.integers(1, 12),
    window=st.one_of(st.just(0), st.integers(1, 80)),
    softcap=st.sampled_from([0.0, 3.0]),
    with_sinks=st.booleans(),
    kind=st.sampled_from(sorted(TYPES)),
    seed=st.integers(0, 99),
)
def test_any_shape(
    device, tokens, earlier, group, kv_heads, eighths, window, softcap, with_sinks, kind, seed
):
    rng = np.random.default_rng(seed)
    q, k, v = operands(rng, tokens, earlier + tokens, group * kv_heads, kv_heads, 8 * eighths, TYPES[kind])
    sinks = rng.standard_normal(group * kv_heads).astype(np.float32) if with_sinks else None
    options = {"window": window, "softcap": softcap, "sinks": sinks}
    check(ops.attention(q, k, v, 0.2, device=device, **options), q, k, v, 0.2, **options)


@pytest.mark.parametrize("tokens", [SPLIT_TOKENS, SPLIT_TOKENS + 1])
def test_ops_on_both_sides_of_the_choice(device, rng, tokens):
    q, k, v = operands(rng, tokens, 120, 3, 1, 32, np.float16)
    check(ops.attention(q, k, v, 0.2, device=device), q, k, v, 0.2)
    check(ops.attention(q, k, v, 0.2, causal=False, device=device), q, k, v, 0.2, causal=False)


@pytest.mark.parametrize("kind", TYPES)
def test_three_steps(device, rng, kind):
    q, k, v = operands(rng, 3, 67, 6, 2, 20, TYPES[kind])
    (scores,) = run_kernel(device, f"attention_scores_{kind}", q, k, Out((3, 6, 67)), 3, 67, 6, 2, 20, 0.3)
    magnitude = reference.attention_scores(np.abs(q), np.abs(k.astype(np.float32)), 0.3)
    assert_close(scores, reference.attention_scores(q, k, 0.3), "dot", magnitude)
    p = ops.softmax(scores, device=device)
    (y,) = run_kernel(device, f"attention_values_{kind}", p, v, Out(q.shape), 3, 67, 6, 2, 20)
    magnitude = reference.attention_values(p, np.abs(v.astype(np.float32)))
    assert_close(y, reference.attention_values(p, v), "dot", magnitude)
    check(y, q, k, v, 0.3, causal=False)
    assert ops.attention_scores(q, k, 0.3, device=device).tobytes() == scores.tobytes()
    assert ops.attention_values(p, v, device=device).tobytes() == y.tobytes()


@pytest.mark.parametrize(("rows", "dim"), [(1, 1), (3, 31), (5, 32), (2, 515), (9, 7)])
def test_softmax_matches_float64(device, rng, rows, dim):
    x = rng.standard_normal((rows, dim), np.float32) * 20
    x[-1] = np.linspace(-3e38, 3e38, dim)
    x[0, 0] = -np.inf if dim > 1 else 5
    (y,) = run_kernel(device, "softmax", x, Out(x.shape), rows, dim)
    want = reference.softmax(x)
    distance = np.abs(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    assert_close(y, want, "elementwise", want * (1 + np.where(want > 0, distance, 0)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_softmax_shows_nan_and_inf_in_their_row(device, rng, bad):
    x = rng.standard_normal((6, 45), np.float32)
    x[2, 40] = bad
    x[4] = -np.inf
    y = ops.softmax(x, device=device)
    assert np.isnan(y[[2, 4]]).all()
    np.testing.assert_allclose(y[[0, 1, 3, 5]].sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("tokens", "capacity", "position"), [(1, 1, 0), (3, 7, 0), (5, 11, 9), (7, 7, 4), (4, 9, 100003)]
)
def test_kv_append(device, rng, kind, tokens, capacity, position):
    cache = rng.standard_normal((capacity, 3, 90), np.float32).astype(TYPES[kind])
    rows = rng.standard_normal((tokens, 3, 90), np.float32)
    rows[0, 0, :4] = np.nan, np.inf, 1e-30, 7e4  # the last is inf in f16
    want = reference.kv_append(cache, rows, position)
    out = Out(cache.shape, cache.dtype, cache)
    (y,) = run_kernel(device, f"kv_append_{kind}", rows, out, tokens, capacity, 270, position)
    np.testing.assert_array_equal(y.astype(np.float32), want.astype(np.float32))
    assert ops.kv_append(cache, rows, position, device=device) is cache
    np.testing.assert_array_equal(cache.astype(np.float32), want.astype(np.float32))


def shaped(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ops.attention(shaped(1, 5, 8), shaped(3, 2, 8), shaped(3, 2, 8), 1.0),
            "attention: q: expected a multiple of 2 key heads, got 5 heads",
        ),
        (
            lambda: ops.attention(shaped(1, 2, 12), shaped(3, 2, 12), shaped(3, 2, 12), 1.0),
            "attention: q: expected heads of a multiple of 8 up to 512 values, got 12",
        ),
        (
            lambda: ops.attention(shaped(1, 2, 8), shaped(3, 2, 8), shaped(4, 2, 8), 1.0),
            r"attention: v: expected shape \[3, 2, 8\], got \[4, 2, 8\]",
        ),
        (
            lambda: ops.attention(shaped(1, 2, 8), shaped(3, 2, 8, dtype=np.float16), shaped(3, 2, 8), 1.0),
            "attention: v: expected float16, got float32",
        ),
        (
            lambda: ops.attention(shaped(1, 2, 8), shaped(3, 2, 8, dtype=np.int8), shaped(3, 2, 8), 1.0),
            "attention: k: expected float32, float16 or bfloat16, got int8",
        ),
        (
            lambda: ops.attention(shaped(1, 2, 8), shaped(3, 2, 8), shaped(3, 2, 8), 1.0, sinks=shaped(3)),
            r"attention: sinks: expected shape \[2\], got \[3\]",
        ),
        (
            lambda: ops.attention(shaped(1, 2, 8), shaped(0, 2, 8), shaped(0, 2, 8), 1.0),
            "attention: k: expected at least one value",
        ),
        (
            lambda: ops.attention_partials(shaped(1, 2, 8), shaped(3, 2, 8), shaped(3, 2, 8), 1.0, 0),
            "attention_partials: blocks: expected an integer from 1 on, got 0",
        ),
        (
            lambda: ops.attention_merge(shaped(1, 2, 3, 8), shaped(1, 2, 3), shaped(1, 2, 4)),
            r"attention_merge: l: expected shape \[1, 2, 3\], got \[1, 2, 4\]",
        ),
        (
            lambda: ops.attention_values(shaped(1, 2, 3), shaped(4, 2, 8)),
            r"attention_values: v: expected shape \[3, any, any\], got \[4, 2, 8\]",
        ),
        (
            lambda: ops.kv_append(shaped(4, 2, 8), shaped(3, 2, 9), 0),
            r"kv_append: rows: expected shape \[any, 2, 8\], got \[3, 2, 9\]",
        ),
        (lambda: ops.kv_append(shaped(4, 2, 8), shaped(5, 2, 8), 0), "requires tokens <= capacity"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(errors.ArgumentError, match=message):
        call()


@pytest.mark.parametrize("tokens", [3, 12])
def test_a_ring_that_is_too_small_is_refused(device, tokens):
    q, k = shaped(tokens, 2, 8), shaped(20, 1, 8)
    ops.attention(q, k, k, 1.0, window=21 - tokens, context=30, device=device)
    with pytest.raises(errors.ArgumentError, match=r"window \+ tokens - 1 <= capacity"):
        ops.attention(q, k, k, 1.0, window=22 - tokens, context=30, device=device)
    with pytest.raises(errors.ArgumentError, match=r"window \+ tokens - 1 <= capacity"):
        ops.attention(q, k, k, 1.0, context=21, device=device)
    with pytest.raises(errors.ArgumentError, match="causal"):
        ops.attention(q, k, k, 1.0, causal=False, window=2, device=device)


def test_prompts_take_at_most_half_of_the_threadgroup_memory():
    prefixes = ("attention_d", "turbo_prefill_d", "mla_attention_", "mla_turbo_attention")
    sizes = {
        name: kernel["threadgroup_bytes"]
        for name, kernel in pyturbo.kernels().items()
        if name.startswith(prefixes)
    }
    assert len(sizes) == 4 * 3 + 4 + 3 + 1
    assert all(size is not None and size <= 16384 for size in sizes.values()), sizes
