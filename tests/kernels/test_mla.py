"""Latent attention against float64, on every device.

Does not catch: speed; how the keys are cut into blocks, as long as the merged result is right.
"""

import ml_dtypes
import numpy as np
import pytest

from kernels.harness import Out, assert_close, run_kernel
from kernels.random_blocks import random_weight
from pyturbo import errors, ops
from pyturbo.ops.attention import SPLIT_TOKENS
from reference import affine, fp, gguf
from reference import mla as reference
from reference.attention import kv_append

TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


@pytest.mark.parametrize(("tokens", "heads", "nope", "rope", "rank"), [(3, 2, 5, 7, 300), (1, 9, 270, 16, 8)])
def test_split(device, rng, tokens, heads, nope, rope, rank):
    q = rng.standard_normal((tokens, heads, nope + rope), np.float32)
    kv = rng.standard_normal((tokens, rank + rope), np.float32)
    outs = Out((tokens, heads, nope)), Out((tokens, heads, rope)), Out((tokens, rank)), Out((tokens, rope))
    got = run_kernel(device, "mla_split", q, kv, *outs, tokens, heads, nope, rope, rank)
    want = *np.split(q, [nope], axis=-1), *np.split(kv, [rank], axis=-1)
    for each, wanted in zip(got, want):
        np.testing.assert_array_equal(each, wanted)
    for each, wanted in zip(ops.mla_split(q.reshape(tokens, -1), kv, heads, rope, device=device), want):
        np.testing.assert_array_equal(each, wanted)


@pytest.mark.parametrize("kind", TYPES)
def test_append(device, rng, kind):
    latents, rope_keys = (rng.standard_normal((11, width)).astype(TYPES[kind]) for width in (300, 8))
    latent, rope_key = (rng.standard_normal((4, width), np.float32) for width in (300, 8))
    latent[1, 2] = 1e30
    outs = Out(latents.shape, latents.dtype, latents), Out(rope_keys.shape, latents.dtype, rope_keys)
    got = run_kernel(device, f"mla_append_{kind}", latent, rope_key, *outs, 4, 11, 300, 8, 7)
    np.testing.assert_array_equal(got[0], kv_append(latents, latent, 7))
    np.testing.assert_array_equal(got[1], kv_append(rope_keys, rope_key, 7))
    again = ops.mla_append((latents, rope_keys), latent, rope_key, 7, device=device)
    assert [each.tobytes() for each in again] == [each.tobytes() for each in got]


def make_weight(rng, shape, form):
    """A weight, plain or quantised: ("f16", None) or ("bf16", (bits, group_size))."""
    kind, quantised = form
    array = rng.standard_normal(shape).astype(TYPES[kind])
    return affine.Weight(*ops.affine_quantize(array, *quantised), *quantised) if quantised else array


def check_projections(device, rng, tokens, heads, nope, v_dim, rank, both, embed_q, unembed_out):
    """Both directions with both forms of weights."""
    q, mix = (rng.standard_normal((tokens, heads, width), np.float32) for width in (nope, rank))
    q[0, 0] *= 1e4
    for weight in (both, embed_q):
        parts = (reference.key_matrices(w, heads, nope) for w in reference.weight_and_magnitude(weight))
        want, magnitude = (reference.project_q(x, w) for x, w in zip((q, np.abs(q)), parts))
        got = ops.mla_project_q(q, weight, device=device)
        assert_close(got, want, "dot", magnitude)
    for weight in (both, unembed_out):
        parts = (reference.value_matrices(w, heads, v_dim) for w in reference.weight_and_magnitude(weight))
        want, magnitude = (reference.project_out(x, w) for x, w in zip((mix, np.abs(mix)), parts))
        got = ops.mla_project_out(mix, weight, v_dim, device=device)
        assert_close(got, want, "dot", magnitude)


@pytest.mark.parametrize("kind", TYPES)
def test_projections_with_plain_weights(device, rng, kind):
    tokens, heads, nope, v_dim, rank = 3, 5, 24, 17, 72
    shapes = (heads * (nope + v_dim), rank), (heads, rank, nope), (heads, v_dim, rank)
    weights = (make_weight(rng, shape, (kind, None)) for shape in shapes)
    check_projections(device, rng, tokens, heads, nope, v_dim, rank, *weights)


@pytest.mark.parametrize(
    ("kind", "bits", "group_size"),
    [("bf16", 4, 64), ("f16", 2, 32), ("f32", 8, 128), ("bf16", 3, 32), ("f16", 5, 64), ("f32", 6, 32)],
)
def test_projections_with_quantised_weights(device, rng, kind, bits, group_size):
    tokens, heads, nope, v_dim, rank = 2, 3, 128, 42, 256
    shapes = (heads * (nope + v_dim), rank), (heads, rank, nope), (heads, v_dim, rank)
    weights = (make_weight(rng, shape, (kind, (bits, group_size))) for shape in shapes)
    check_projections(device, rng, tokens, heads, nope, v_dim, rank, *weights)


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8", "nvfp4"])
def test_projections_with_weights_of_small_floats(device, rng, mode):
    tokens, heads, nope, v_dim, rank = 2, 3, 96, 42, 288
    shapes = (heads * (nope + v_dim), rank), (heads, rank, nope), (heads, v_dim, rank)
    arrays = (rng.standard_normal(shape, np.float32) for shape in shapes)
    weights = (fp.Weight(*ops.fp_quantize(array, mode), mode) for array in arrays)
    check_projections(device, rng, tokens, heads, nope, v_dim, rank, *weights)


@pytest.mark.parametrize("kind", gguf.SIZES)
def test_projections_with_blocks_of_gguf(device, rng, kind):
    tokens, heads, nope, v_dim, rank = 2, 3, 256, 42, 512
    shapes = (heads * (nope + v_dim), rank), (heads, rank, nope), (heads, v_dim, rank)
    weights = (random_weight(rng, (*shape[:-1], shape[-1] // gguf.SIZES[kind][1]), kind) for shape in shapes)
    check_projections(device, rng, tokens, heads, nope, v_dim, rank, *weights)


def test_projections_of_a_published_size(device, rng):
    heads, nope, v_dim, rank = 2, 128, 128, 512
    form = ("bf16", (4, 64))
    shapes = (heads * (nope + v_dim), rank), (heads, rank, nope), (heads, v_dim, rank)
    weights = (make_weight(rng, shape, form) for shape in shapes)
    check_projections(device, rng, 1, heads, nope, v_dim, rank, *weights)


def test_projections_guard_their_tails(device, rng):
    x, w = rng.standard_normal((2, 3, 40), np.float32), rng.standard_normal((3 * 60, 40), np.float32)
    run_kernel(device, "mla_dense_project_f32", x, w, Out((2, 3, 21)), 2, 3, 40, 21, 60, 39)
    run_kernel(device, "mla_dense_project_transposed_f32", x, w, Out((2, 3, 40)), 2, 3, 40, 40, 60, 0)
    packed = ops.affine_quantize(rng.standard_normal((3 * 60, 96), np.float32), 4, 32)
    run_kernel(
        device, "mla_affine_project_transposed_b4_f32", x, *packed, Out((2, 3, 96)), 2, 3, 40, 96, 60, 20, 32
    )
    wide = rng.standard_normal((2, 3, 96), np.float32)
    small = ops.fp_quantize(rng.standard_normal((3 * 60, 96), np.float32), "nvfp4")
    run_kernel(device, "mla_fp_project_transposed_nvfp4", x, *small, Out((2, 3, 96)), 2, 3, 40, 96, 60, 20)
    run_kernel(device, "mla_fp_project_nvfp4", wide, *small, Out((2, 3, 21)), 2, 3, 96, 21, 60, 39)
    blocks, _ = random_weight(rng, (3 * 60, 3), "Q5_0")
    run_kernel(device, "mla_gguf_project_transposed_q5_0", x, blocks, Out((2, 3, 96)), 2, 3, 40, 96, 60, 20)
    run_kernel(device, "mla_gguf_project_q5_0", wide, blocks, Out((2, 3, 21)), 2, 3, 96, 21, 60, 39)
    run_kernel(device, "mla_affine_project_b4_f32", wide, *packed, Out((2, 3, 21)), 2, 3, 96, 21, 60, 39, 32)


def operands(rng, tokens, context, heads, rank, rope, dtype=np.float32):
    q, q_rope = (rng.standard_normal((tokens, heads, width), np.float32) for width in (rank, rope))
    latents, rope_keys = (rng.standard_normal((context, width)).astype(dtype) for width in (rank, rope))
    return q, q_rope, latents, rope_keys


def run(form, device, q, q_rope, latents, rope_keys, scale, *, blocks=5, context=None):
    """Attention of one form of kernel; rows past the context are rows that nobody has appended."""
    (tokens, heads, rank), rope, capacity = q.shape, q_rope.shape[2], len(latents)
    sizes = tokens, capacity if context is None else context, capacity, heads, rank, rope
    kind = next(name for name, dtype in TYPES.items() if dtype == latents.dtype)
    arrays = q, q_rope, latents, rope_keys
    if form == "tiled":
        return run_kernel(device, f"mla_attention_{kind}", *arrays, Out(q.shape), *sizes, scale)[0]
    rows = (tokens, heads, blocks)
    outs = Out((*rows, rank)), Out(rows), Out(rows)
    parts = run_kernel(device, f"mla_partials_{kind}", *arrays, *outs, *sizes, blocks, scale)
    args = (*parts, None, None, Out(q.shape), *rows, rank)
    return run_kernel(device, "attention_merge", *args, constants={"has_sinks": False, "has_gate": False})[0]


@pytest.mark.parametrize("form", ["split", "tiled"])
@pytest.mark.parametrize(
    ("tokens", "context", "heads", "rank", "rope", "kind"),
    [
        (1, 1, 1, 8, 8, "f32"),
        (3, 77, 5, 72, 24, "f16"),  # a chunk of columns with both parts of a key
        (13, 47, 3, 128, 64, "bf16"),
        (2, 70, 4, 512, 64, "f16"),
        (5, 3, 2, 40, 16, "f32"),  # queries that see no key
        (1, 9, 20, 328, 40, "bf16"),  # heads of two threadgroups; fewer keys than a block
        (3, 5, 8, 72, 48, "f16"),
        (2, 37, 40, 264, 8, "f32"),
        (1, 70, 128, 96, 56, "f16"),
        (1, 203, 16, 512, 64, "f32"),  # blocks of several tiles
    ],
)
def test_attention_matches_float64(device, rng, form, tokens, context, heads, rank, rope, kind):
    args = operands(rng, tokens, context, heads, rank, rope, TYPES[kind])
    args[0][0] *= 10
    scale = 1.3 * (rank + rope) ** -0.5
    y = run(form, device, *args, scale)
    assert_close(
        y, reference.mla_attention(*args, scale), "attention", reference.mla_attention_magnitude(*args, scale)
    )


@pytest.mark.parametrize("form", ["split", "tiled"])
def test_rows_past_the_context_and_nan_stay_unseen(device, rng, form):
    args = operands(rng, 3, 50, 2, 16, 8)
    q, q_rope, latents, rope_keys = args
    want = run(form, device, q, q_rope, latents[:41], rope_keys[:41], 0.2)
    latents[41:], rope_keys[41:] = np.nan, np.inf
    np.testing.assert_array_equal(run(form, device, *args, 0.2, context=41), want)
    latents[40, 3] = np.nan  # the key of the last query alone
    y = run(form, device, *args, 0.2, context=41)
    np.testing.assert_allclose(y[:2], want[:2], rtol=0, atol=1e-6)  # other order of additions
    assert np.isnan(y[2]).all()


@pytest.mark.parametrize("form", ["split", "tiled"])
@pytest.mark.parametrize("kind", TYPES)
def test_heads_that_share_rows_do_not_reach_each_other(device, rng, form, kind):
    args = operands(rng, 2, 75, 20, 40, 16, TYPES[kind])
    q, q_rope = args[:2]
    want = run(form, device, *args, 0.2)
    q[0, 6, 3], q_rope[1, 17, 5], q[1, 19, 0] = np.nan, np.inf, -np.inf
    y = run(form, device, *args, 0.2)
    lost = np.zeros(y.shape[:2], bool)
    lost[0, 6] = lost[1, 17] = lost[1, 19] = True
    assert np.isnan(y[lost]).all()
    np.testing.assert_array_equal(y[~lost], want[~lost])


@pytest.mark.parametrize("tokens", [1, SPLIT_TOKENS, SPLIT_TOKENS + 3])
def test_folded_equals_expanded(device, rng, tokens):
    """The three operations against attention with keys and values of every head."""
    heads, nope, rope, v_dim, rank, context = 3, 24, 16, 40, 64, 75
    q_nope, q_rope = (rng.standard_normal((tokens, heads, width), np.float32) for width in (nope, rope))
    latents, rope_keys = (rng.standard_normal((context, width), np.float32) for width in (rank, rope))
    weight = rng.standard_normal((heads * (nope + v_dim), rank), np.float32) / 8
    q = ops.mla_project_q(q_nope, weight, device=device)
    mix = ops.mla_attention(q, q_rope, latents, rope_keys, None, 0.15, device=device)
    y = ops.mla_project_out(mix, weight, v_dim, device=device)
    matrices = reference.key_matrices(weight, heads, nope), reference.value_matrices(weight, heads, v_dim)
    want = reference.expanded(q_nope, q_rope, latents, rope_keys, *matrices, 0.15)
    np.testing.assert_allclose(y, want, rtol=0, atol=2e-5)
    embed_q, unembed_out = matrices[0].swapaxes(1, 2).astype(np.float32), matrices[1].astype(np.float32)
    for weights in (weight, (np.ascontiguousarray(embed_q), np.ascontiguousarray(unembed_out))):
        y = ops.mla_attention(q_nope, q_rope, latents, rope_keys, weights, 0.15, device=device)
        np.testing.assert_allclose(y, want, rtol=0, atol=2e-5)
    y = ops.mla_attention(q_nope, q_rope, latents, rope_keys, weight, 0.15, causal=False, device=device)
    for t in range(tokens):
        want = reference.expanded(q_nope[t : t + 1], q_rope[t : t + 1], latents, rope_keys, *matrices, 0.15)
        np.testing.assert_allclose(y[t : t + 1], want, rtol=0, atol=2e-5)


def test_refuses(device):
    def zeros(*shape):
        return np.zeros(shape, np.float32)

    for message, call in (
        (
            "mla_split: q: expected 3 heads of more than 4",
            lambda: ops.mla_split(zeros(2, 12), zeros(2, 9), 3, 4),
        ),
        (
            "mla_split: kv: expected rows of more than 4",
            lambda: ops.mla_split(zeros(2, 18), zeros(2, 4), 3, 4),
        ),
        (
            r"mla_append: rope_key: expected shape \[2, 8\], got \[1, 8\]",
            lambda: ops.mla_append((zeros(9, 16), zeros(9, 8)), zeros(2, 16), zeros(1, 8), 0),
        ),
        (
            "mla_append_f32: requires position \\+ tokens <= capacity",
            lambda: ops.mla_append((zeros(9, 16), zeros(9, 8)), zeros(2, 16), zeros(2, 8), 8, device=device),
        ),
        (
            "mla_project_q: weight: expected 3 times more than 4 rows",
            lambda: ops.mla_project_q(zeros(1, 3, 4), zeros(12, 8)),
        ),
        (
            r"mla_project_q: weight: expected shape \[3, 8, 4\], got \[3, 8, 5\]",
            lambda: ops.mla_project_q(zeros(1, 3, 4), zeros(3, 8, 5)),
        ),
        (
            r"mla_project_out: weight: expected shape \[3, 6, 8\], got \[3, 7, 8\]",
            lambda: ops.mla_project_out(zeros(1, 3, 8), zeros(3, 7, 8), 6),
        ),
        (
            "mla_project_out: weight: expected 2 or 3 axes",
            lambda: ops.mla_project_out(zeros(1, 3, 8), zeros(8), 6),
        ),
        (
            "mla_attention: latents: expected rows of a multiple of 8 up to 512 values, got 520",
            lambda: ops.mla_attention(
                zeros(1, 3, 520), zeros(1, 3, 8), zeros(4, 520), zeros(4, 8), None, 1.0
            ),
        ),
        (
            "mla_attention: rope_keys: expected rows of a multiple of 8 up to 64 values, got 12",
            lambda: ops.mla_attention(
                zeros(1, 3, 16), zeros(1, 3, 12), zeros(4, 16), zeros(4, 12), None, 1.0
            ),
        ),
    ):
        with pytest.raises(errors.ArgumentError, match=message):
            call()
