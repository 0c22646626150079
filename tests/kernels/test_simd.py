"""Kernels made for a processor, at every level of this machine, against the reference of the same name.

Both are within the tolerance of float64, so they are within twice the tolerance of each other. What these
tests cannot catch: levels that this machine has not, and speed.
"""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from kernels import test_affine, test_fp
from kernels.harness import assert_close
from kernels.levels import LEVELS, device_at, forced
from kernels.test_affine import (
    FORMATS,
    name,
    random_rows,
    random_weight,
    run_embed,
    run_experts,
    run_grouped,
    run_product,
)
from kernels.test_linear import WEIGHTS, operands
from pyturbo import ops, turbo_codec
from pyturbo.errors import ArgumentError
from pyturbo.model import default_model
from reference import affine as reference
from reference import fp, linear
from reference.activations import as_read
from tolerances import TOLERANCES

LONG_DOT = TOLERANCES["f32"]["long dot"]

pytestmark = pytest.mark.skipif(not LEVELS, reason="this machine has no level")
precisions = pytest.mark.parametrize("precision", ["default", "fast"])
some_formats = pytest.mark.parametrize(
    ("bits", "group_size", "kind"),
    [
        (2, 32, "f32"),
        (3, 64, "f16"),
        (4, 128, "bf16"),
        (4, 32, "f16"),
        (5, 32, "bf16"),
        (6, 128, "f32"),
        (8, 64, "f16"),
    ],
)


small_floats = pytest.mark.parametrize(("mode", "scaled"), test_fp.FORMS)


def assert_agree(got, want, terms):
    """Both are within LONG_DOT of the sum of |terms| of the exact result."""
    assert got.shape == want.shape
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    error = np.abs(got.astype(np.float64) - want)
    known = ~np.isnan(want)
    assert (error[known] <= 2 * LONG_DOT * terms[known]).all(), np.nanmax(error / terms) / LONG_DOT


# Numerics -----------------------------------------------------------------------------------------


@precisions
def test_every_format(level, rng, precision):
    device = device_at(level, precision)
    for bits, group_size, kind in FORMATS:
        w = random_weight(rng, (37, 3 * group_size), bits, group_size, kind)
        x = random_rows(rng, 14, 3 * group_size)
        want, terms = reference.matmul(as_read(device, x, group_size), w)
        for tokens in (1, 7, 14):
            y = ops.affine_matmul(x[:tokens], *w, device=device)
            assert_close(y, want[:tokens], "long dot", terms[:tokens])


@precisions
@some_formats
def test_products(level, reference_device, rng, precision, bits, group_size, kind):
    device = device_at(level, precision)
    gate, up = (random_weight(rng, (45, 5 * group_size), bits, group_size, kind) for _ in range(2))
    x = random_rows(rng, 37, 5 * group_size)
    read = as_read(device, x, group_size).astype(np.float32)
    _, terms = reference.matmul(x, gate)
    _, gated_terms = reference.swiglu(x, gate, up)
    for op, tokens in (("affine_matvec", 1), ("affine_matvec", 7), ("affine_matmul", 37)):
        want = run_product(reference_device, op, read[:tokens], gate)
        assert_agree(run_product(device, op, x[:tokens], gate), want, terms[:tokens])
    for op, tokens in (("affine_swiglu", 2), ("affine_swiglu_matmul", 37)):
        want = run_product(reference_device, op, read[:tokens], gate, up)
        assert_agree(run_product(device, op, x[:tokens], gate, up), want, gated_terms[:tokens])


@precisions
@some_formats
def test_experts(level, reference_device, rng, precision, bits, group_size, kind):
    device = device_at(level, precision)
    gate, up = (random_weight(rng, (4, 35, 3 * group_size), bits, group_size, kind) for _ in range(2))
    x = random_rows(rng, 39, 3 * group_size)
    read = as_read(device, x, group_size).astype(np.float32)
    ids = np.array([[3, -1, 0], [2, 2, 4]], np.int32)  # two of them unknown
    known = np.clip(ids, 0, 3)
    _, terms = reference.per_expert(reference.matmul, x[:2], known, gate)
    _, gated_terms = reference.per_expert(reference.swiglu, x[:2], known, gate, up)
    want = run_experts(reference_device, "affine_experts_matvec", read[:2], ids, gate)
    assert_agree(run_experts(device, "affine_experts_matvec", x[:2], ids, gate), want, terms)
    want = run_experts(reference_device, "affine_experts_swiglu", read[:2], ids, gate, up)
    assert_agree(run_experts(device, "affine_experts_swiglu", x[:2], ids, gate, up), want, gated_terms)
    offsets = np.array([0, 0, 33, 34, 39], np.int32)
    _, terms = reference.grouped_matmul(x, offsets, gate)
    want = run_grouped(reference_device, read, offsets, gate)
    assert_agree(run_grouped(device, x, offsets, gate), want, terms)
    _, gated_terms = reference.grouped_swiglu(x, offsets, gate, up)
    want = run_grouped(reference_device, read, offsets, gate, up)
    assert_agree(run_grouped(device, x, offsets, gate, up), want, gated_terms)


@precisions
@some_formats
def test_slots(level, rng, precision, bits, group_size, kind):
    """Fast precision quantises the rows of buckets that have a slot, and those between them."""
    device, form = device_at(level, precision), (bits, group_size, kind)
    for op in ("affine_experts_matvec", "affine_experts_swiglu"):
        test_affine.test_experts_by_slot(device, rng, op, *form)
    for slots in ([6, -1, 2, 7, 0], [-1, -1, 4, -1, -1], [-1] * 5):
        for count in (1, 2):
            test_affine.test_grouped_by_slot(device, rng, *form, count, slots)


@some_formats
def test_embed_has_the_bits_of_the_reference(level, reference_device, rng, bits, group_size, kind):
    table = random_weight(rng, (17, 5 * group_size), bits, group_size, kind)
    ids = np.array([16, 0, -1, 5, 17], np.int32)
    got = run_embed(device_at(level), ids, table)
    np.testing.assert_array_equal(got, run_embed(reference_device, ids, table))


@precisions
@small_floats
def test_small_floats(level, reference_device, rng, precision, mode, scaled):
    """Every kernel of shaders/fp; rows of many blocks, of one, and of a part of one."""
    device = device_at(level, precision)
    for units in (1, 3, 19):
        stack, other = (test_fp.random_weight(rng, (4, 45, 32 * units), mode, scaled) for _ in range(2))
        w, x = fp.expert(stack, 2), random_rows(rng, 37, 32 * units)
        read = test_fp.read_by(device, x, mode)
        want, terms = fp.matmul(read, w)
        for op, tokens in (("fp_matvec", 1), ("fp_matvec", 7), ("fp_matmul", 37)):
            y = test_fp.run_product(device, op, x[:tokens], w)
            assert_close(y, want[:tokens], "long dot", terms[:tokens])
        up = fp.expert(other, 2)
        want, terms = fp.swiglu(read, w, up)
        for op, tokens in (("fp_swiglu", 1), ("fp_swiglu", 7), ("fp_swiglu_matmul", 37)):
            y = test_fp.run_product(device, op, x[:tokens], w, up)
            assert_close(y, want[:tokens], "long dot", terms[:tokens])
        ids = np.array([[3, 1, 0], [2, 2, 1]], np.int32)
        want, terms = fp.per_expert(fp.matmul, read[:2], ids, stack)
        assert_close(test_fp.run_experts(device, x[:2], ids, stack), want, "long dot", terms)
        want, terms = fp.per_expert(fp.swiglu, read[:2], ids, stack, other)
        assert_close(test_fp.run_experts(device, x[:2], ids, stack, other), want, "long dot", terms)
        offsets = np.array([0, 0, 33, 34, 37], np.int32)
        want, terms = fp.grouped_matmul(read, offsets, stack)
        assert_close(test_fp.run_grouped(device, x, offsets, stack), want, "long dot", terms)
        want, terms = fp.grouped_swiglu(read, offsets, stack, other)
        assert_close(test_fp.run_grouped(device, x, offsets, stack, other), want, "long dot", terms)
        ids = np.array([44, 0, -1, 5, 45], np.int32)
        want = test_fp.run_embed(reference_device, ids, w)
        got = test_fp.run_embed(device, ids, w)
        if scaled:  # the reference rounds the product with the scale of a group first
            np.testing.assert_allclose(got, want, rtol=3e-7)
        else:
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("inputs", [1, 7, 33, 64, 515])
def test_dense(level, reference_device, rng, kind, inputs):
    device = device_at(level)
    x, w = operands(rng, 9, 21, inputs, WEIGHTS[kind])
    terms = linear.matmul_magnitude(x, w)
    assert_agree(ops.matmul(x, w, device=device), ops.matmul(x, w, device=reference_device), terms)
    stack, ids = w.reshape(3, 7, inputs), np.array([[2, 0]] * 9, np.int32)
    want = ops.dense_experts_matmul(x, ids, stack, device=reference_device)
    terms = np.stack([linear.matmul_magnitude(x, stack[e]) for e in (2, 0)], axis=1)
    assert_agree(ops.dense_experts_matmul(x, ids, stack, device=device), want, terms)


@precisions
def test_8_bit_activations_are_the_only_coarse_ones(level, rng, precision):
    """How far rounding moves a result: half a step of each group, max|x| / 127 with fast precision."""
    device = device_at(level, precision)
    w = random_weight(rng, (33, 256), 4, 32, "f16")
    x = random_rows(rng, 9, 256)
    x[:, ::32] *= 100  # one value of each group sets its step
    exact, terms = reference.matmul(x, w)
    steps = np.repeat(np.abs(x).reshape(9, 8, 32).max(-1) / 127, 32, axis=1)
    bound = 0.5 * steps @ np.abs(reference.dequantize(w)).T if precision == "fast" else 0
    for tokens in (1, 9):
        error = np.abs(ops.affine_matmul(x[:tokens], *w, device=device) - exact[:tokens])
        assert (error <= (bound + LONG_DOT * terms)[:tokens]).all()
        assert precision == "default" or error.max() > LONG_DOT * terms.max()


@pytest.mark.parametrize("bits", turbo_codec.WIDTHS)
@pytest.mark.parametrize("dim", turbo_codec.DIMS)
def test_turbo_codec(level, reference_device, rng, bits, dim):
    """Codes differ only where a value is next to a boundary, scales then by as little."""
    device = device_at(level)
    x = random_rows(rng, 37 * 3, dim).reshape(37, 3, dim)
    want = ops.turbo_encode(x, bits, means=True, device=reference_device)
    got = ops.turbo_encode(x, bits, means=True, device=device)
    assert (got.packed != want.packed).mean() < 1e-3
    np.testing.assert_allclose(got.scales, want.scales, rtol=1e-4 + 2**-10)  # one float16 apart
    np.testing.assert_allclose(got.means, want.means, rtol=0, atol=1e-6 * np.abs(x).max())
    y = ops.turbo_decode(want, rotated=True, device=device)
    np.testing.assert_allclose(
        y, ops.turbo_decode(want, rotated=True, device=reference_device), rtol=1e-6, atol=1e-7
    )


@cache
def turbo_attention_on_the_reference(bits, dim):
    """The arguments, and results by method: the same for every level."""
    rng, device = np.random.default_rng(20240617), pyturbo.Device("cpu:reference", check=False)
    k, v = rng.standard_normal((2, 149, 2, dim), np.float32)
    rows = [ops.turbo_encode(part, bits, means=True, device=device) for part in (k, v)]
    own = tuple(rng.standard_normal((2, 9, 2, dim), np.float32))
    arguments = rng.standard_normal((9, 14, dim), np.float32), *rows, dim**-0.5
    methods = ("split", "fused", "tiled")
    return (
        arguments,
        own,
        {
            method: ops.turbo_attention(*arguments, method=method, own=own, device=device)
            for method in methods
        },
    )


@pytest.mark.parametrize("bits", turbo_codec.WIDTHS)
@pytest.mark.parametrize("dim", [64, 80, 512])
def test_turbo_attention(level, bits, dim):
    """Long enough for several tiles, the last of them not whole."""
    arguments, own, results = turbo_attention_on_the_reference(bits, dim)
    for method, want in results.items():
        got = ops.turbo_attention(*arguments, method=method, own=own, device=device_at(level))
        np.testing.assert_allclose(got, want, rtol=0, atol=5e-6)


# Behaviour ----------------------------------------------------------------------------------------


def turbo_results(device, x):
    """What is left of rows x [40, 640] by every kernel of the compressed cache."""
    vectors = x.reshape(40, 5, 128)
    rows = ops.turbo_encode(vectors, 4, device=device)
    q = np.concatenate([vectors, vectors], axis=1)
    attention = [
        ops.turbo_attention(q[:tokens], rows, rows, 0.1, method=method, device=device)
        for method, tokens in (("split", 3), ("fused", 3), ("tiled", 40))
    ]
    scores = ops.turbo_scores(q, rows, device=device)
    values = ops.turbo_values(np.isfinite(scores).astype(np.float32), rows, device=device)
    return [rows.packed, rows.scales, ops.turbo_decode(rows, device=device), *attention, scores, values]


def fp_results(device, x, stack):
    """The products of x [40, 640] with a stack of three matrices of small floats."""
    w = fp.expert(stack, 1)
    return [
        ops.fp_matmul(x[:1], *w, device=device),
        ops.fp_matmul(x, *w, device=device),
        ops.fp_experts_matmul(x, [[0, 2]] * 40, *stack, device=device),
        ops.fp_grouped_matmul(x, [0, 7, 7, 40], *stack, device=device),
    ]


def delta_results(device, x):
    """Rows x [40, 640] as the queries, keys and values of a delta net of two heads."""
    q, k = (x[:, first : first + 64].reshape(40, 1, 64) / 30 for first in (0, 64))
    v = np.ascontiguousarray(x[:, 128:288]).reshape(40, 2, 80)
    gates = np.full((2, 40, 2), 0.7, np.float32)
    return ops.delta_net(q, k, v, *gates, np.ones((2, 80, 64), np.float32), "chunkwise", device=device)


@precisions
def test_bits_do_not_depend_on_the_number_of_threads(level, rng, precision):
    gate, up = (random_weight(rng, (300, 640), 4, 64, "bf16") for _ in range(2))
    x = random_rows(rng, 40, 640)
    table = random_weight(rng, (4, 300, 640), 4, 64, "bf16")
    ids = np.array([[0, 3, 1]] * 40, np.int32)
    dense = random_rows(rng, 300, 640)
    small = [test_fp.random_weight(rng, (3, 70, 640), mode) for mode in test_fp.MODES]
    offsets = np.array([0, 7, 7, 30, 40], np.int32)
    results = []
    for threads in (1, 2, 3, 4):
        device = device_at(level, precision, threads)
        results.append(
            [
                ops.affine_matmul(x[:1], *gate, device=device),
                ops.affine_matmul(x, *gate, device=device),
                ops.affine_swiglu(x[:3], gate, up, device=device),
                ops.affine_swiglu(x, gate, up, device=device),
                ops.affine_experts_matmul(x, ids, *table, device=device),
                ops.affine_grouped_matmul(x, offsets, *table, device=device),
                ops.matmul(x, dense, device=device),
                *(result for w in small for result in fp_results(device, x, w)),
                *turbo_results(device, x),
                *delta_results(device, x),
            ]
        )
    for other in results[1:]:
        for a, b in zip(results[0], other):
            assert a.tobytes() == b.tobytes()


@precisions
@some_formats
def test_bits_do_not_depend_on_the_number_of_tokens(level, rng, precision, bits, group_size, kind):
    device = device_at(level, precision)
    for groups in (3, 33, 131):
        w = random_weight(rng, (21, groups * group_size), bits, group_size, kind)
        x = random_rows(rng, 7, groups * group_size)
        alone = np.concatenate([run_product(device, "affine_matvec", row[None], w) for row in x])
        for tokens in range(2, 8):
            together = run_product(device, "affine_matvec", x[:tokens], w)
            np.testing.assert_array_equal(together, alone[:tokens])


@precisions
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_what_is_not_finite_stays_visible(level, rng, precision, bits):
    device = device_at(level, precision)
    w = random_weight(rng, (35, 192), bits, 64, "bf16")
    w.scales[33, 1] = np.nan
    w.biases[2, 0] = np.inf
    x = random_rows(rng, 10, 192)
    x[3, 100] = np.nan
    x[5, 0] = -np.inf
    for op, tokens in (("affine_matvec", 7), ("affine_matmul", 10)):
        y = run_product(device, op, x[:tokens], w)
        bad = np.zeros(y.shape, bool)
        bad[[3, 5]] = bad[:, [2, 33]] = True
        np.testing.assert_array_equal(~np.isfinite(y), bad)


@pytest.mark.parametrize("bits", turbo_codec.WIDTHS)
@pytest.mark.parametrize("dim", [64, 80, 128])
def test_nothing_behind_compressed_rows_is_read(level, rng, at_the_edge, bits, dim):
    device = device_at(level)
    own = [at_the_edge(part) for part in rng.standard_normal((2, 5, 2, dim), np.float32)]
    q = at_the_edge(rng.standard_normal((5, 6, dim), np.float32))
    for tokens in (1, 36):  # rows end in the middle of a tile
        x = at_the_edge(rng.standard_normal((tokens, 2, dim), np.float32))
        rows = ops.turbo_encode(x, bits, device=device)
        rows = rows._replace(packed=at_the_edge(rows.packed), scales=at_the_edge(rows.scales))
        assert np.isfinite(ops.turbo_decode(rows, device=device)).all()
        for method in ("split", "fused", "tiled"):
            y = ops.turbo_attention(q, rows, rows, 0.1, method=method, own=own, rotated=True, device=device)
            assert np.isfinite(y).all()


@pytest.mark.parametrize("bits", turbo_codec.WIDTHS)
@pytest.mark.parametrize("rank", [64, 80])
def test_nothing_behind_compressed_latents_is_read(level, rng, at_the_edge, bits, rank):
    device = device_at(level)

    def normal(*shape):
        return at_the_edge(rng.standard_normal(shape, np.float32))

    for live, tokens in ((1, 1), (37, 1), (37, 11)):
        rows = ops.turbo_encode(normal(live, 1, rank), bits, device=device)
        rows = rows._replace(packed=at_the_edge(rows.packed), scales=at_the_edge(rows.scales))
        keys = at_the_edge(rng.standard_normal((live, 8)).astype(np.float16))
        queries, own = (
            (normal(tokens, 3, rank), normal(tokens, 3, 8)),
            (normal(tokens, rank), normal(tokens, 8)),
        )
        assert np.isfinite(ops.mla_turbo_attention(*queries, rows, keys, 0.1, own=own, device=device)).all()


@pytest.mark.parametrize("tokens", [1, 33])
@pytest.mark.parametrize("dims", [(64, 8), (128, 40)])
def test_nothing_behind_a_delta_net_is_read(level, rng, at_the_edge, tokens, dims):
    k_dim, v_dim = dims
    shapes = (tokens, 1, k_dim), (tokens, 1, k_dim), (tokens, 2, v_dim), (2, v_dim, k_dim)
    q, k, v, state = (at_the_edge(0.1 * rng.standard_normal(shape, np.float32)) for shape in shapes)
    g, beta = (at_the_edge(part) for part in rng.uniform(0, 1, (2, tokens, 2)).astype(np.float32))
    for method in ("recurrent", "chunkwise"):
        for part in ops.delta_net(q, k, v, g, beta, at_the_edge(state), method, device=device_at(level)):
            assert np.isfinite(part).all()


@pytest.mark.parametrize("mode", ops.FP_FORMATS)
def test_nothing_behind_projections_of_latents_is_read(level, rng, at_the_edge, mode):
    parts = ops.fp_quantize(rng.standard_normal((3 * 25, 32), np.float32), mode)
    weight = (*(at_the_edge(part) for part in parts), mode, None)
    for op, args in ((ops.mla_project_q, (weight,)), (ops.mla_project_out, (weight, 15))):
        x = at_the_edge(rng.standard_normal((2, 3, 10 if op is ops.mla_project_q else 32), np.float32))
        assert np.isfinite(op(x, *args, device=device_at(level))).all()


@precisions
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("groups", [1, 3])
def test_nothing_behind_a_buffer_is_read(level, rng, at_the_edge, precision, bits, groups):
    device = device_at(level, precision)
    for group_size in (32, 64, 128):
        w = random_weight(rng, (40, groups * group_size), bits, group_size, "f32")
        w = w._replace(
            packed=at_the_edge(w.packed), scales=at_the_edge(w.scales), biases=at_the_edge(w.biases)
        )
        x = at_the_edge(random_rows(rng, 12, groups * group_size))
        for op, tokens in (("affine_matvec", 1), ("affine_matmul", 12)):
            y = device.empty((tokens, 40))
            device.kernel(name(op, w))(x[-tokens:], *w[:3], y, tokens, groups * group_size, 40, group_size)
            assert np.isfinite(y.numpy()).all()


@precisions
@small_floats
@pytest.mark.parametrize("units", [1, 3, 5])
def test_nothing_behind_small_floats_is_read(level, rng, at_the_edge, precision, mode, scaled, units):
    device = device_at(level, precision)
    w = test_fp.random_weight(rng, (48, 32 * units), mode, scaled)
    w = w._replace(packed=at_the_edge(w.packed), scales=at_the_edge(w.scales))
    x = at_the_edge(random_rows(rng, 12, 32 * units))
    for op, tokens in (("fp_matvec", 1), ("fp_matmul", 12)):
        y = device.empty((tokens, 48))
        kernel = device.kernel(f"{op}_{mode}", test_fp.constants(w))
        kernel(x[-tokens:], *test_fp.arrays(w), y, tokens, 32 * units, 48)
        assert np.isfinite(y.numpy()).all()
    ids, y = at_the_edge(np.array([47, 0, 5, 46], np.int32)), device.empty((4, 32 * units))
    device.kernel(f"fp_embed_{mode}", test_fp.constants(w))(ids, *test_fp.arrays(w), y, 4, 48, 32 * units)
    assert np.isfinite(y.numpy()).all()


def test_read_words(level, rng):
    words = rng.integers(0, 1 << 32, (3, 16384), np.uint32)
    device = device_at(level)
    sums = device.empty((3,), np.uint32)
    device.kernel("read_words")(words, sums, 3)
    np.testing.assert_array_equal(sums.numpy(), words.sum(axis=1, dtype=np.uint32))


# Choice of a level --------------------------------------------------------------------------------


def test_levels_are_chosen_and_shown(level):
    device = device_at(level)
    assert device.properties["kernels"] == level
    assert device.properties["precision"] == "default"
    assert device_at(level, "fast").properties["precision"] == "fast"


#: What levels use of the features that a device tells apart.
USED = {
    "amx": {"avx512f", "avx512_vnni", "avx_vnni", "amx_bf16"},
    "vnni": {"avx512f", "avx512_vnni", "avx_vnni"},
    "avx512": {"avx512f"},
    "avxvnni": {"avx_vnni"},
    "i8mm": {"asimddp", "i8mm"},
    "dotprod": {"asimddp"},
}


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="needs Linux")
def test_features_that_a_level_does_not_use_are_shown(level):
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    known = {*USED["amx"], "avx512_vbmi", "avx512_bf16", "avx512_fp16", "amx_int8"}
    known |= {*USED["i8mm"], "asimdhp", "bf16", "sve", "sve2", "sme"}
    used, unused = USED.get(level, set()), set(device_at(level).properties.get("unused", "").split())
    assert not unused & used
    assert known & set(flags[1].split()) - used <= unused


def test_reference_and_checked_devices_have_no_level():
    for device, check, kernels in (("cpu:reference", False, "reference"), ("cpu", True, "checked")):
        properties = pyturbo.Device(device, check=check, precision="fast").properties
        assert (properties["kernels"], properties["precision"]) == (kernels, "default")
        assert "unused" not in properties


def test_without_a_level_every_kernel_runs_as_its_shader(rng):
    w, x = random_weight(rng, (5, 64), 4, 32, "f16"), random_rows(rng, 1, 64)
    with forced("none"):
        device = pyturbo.Device("cpu", check=False)
    want = run_product(pyturbo.Device("cpu:reference"), "affine_matvec", x, w)
    assert run_product(device, "affine_matvec", x, w).tobytes() == want.tobytes()


def test_wrong_choices(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("PYTURBO_THREADS", "two")
        with pytest.raises(ArgumentError, match="^PYTURBO_THREADS: expected an integer from 0 on, got 'two'"):
            pyturbo.Device("cpu")
    with forced("mmx"), pytest.raises(ArgumentError, match=r"PYTURBO_ISA: expected one of .*none, got mmx"):
        pyturbo.Device("cpu", check=False)
    with pytest.raises(ArgumentError, match="precision: expected 'default' or 'fast', got 'slow'"):
        pyturbo.Device("cpu", precision="slow")


def test_operations_run_by_bodies(level, rng):
    """They say how many teams a GPU should form, which changes neither bits nor what runs."""
    w, x = random_weight(rng, (600, 64), 4, 32, "bf16"), random_rows(rng, 1, 64)
    results = [ops.affine_matmul(x, *w, device=device_at(level)).tobytes()]
    for constants in ({}, {"row_teams": 1}, {"row_teams": 16}):
        y = device_at(level).empty((1, 600))
        kernel = device_at(level).kernel(name("affine_matvec", w), constants)
        kernel(x, *w[:3], y, 1, 64, 600, 32)
        results.append(y.numpy().tobytes())
    assert len(set(results)) == 1


def test_decode_runs_by_bodies(level):
    """Shaders take a hundred times as long."""
    bodies = seconds_of_a_token(device_at(level))
    assert bodies < seconds_of_a_token(pyturbo.Device("cpu:reference", threads=2, check=False)) / 5


def seconds_of_a_token(device):
    with pyturbo.load(default_model(), device) as model:
        session = model.session(64)
        session.prefill([5, 6, 7])
        session.step(8)
        begin = time.perf_counter()
        session.step(9)
        return time.perf_counter() - begin


def test_a_launch_with_its_own_geometry_runs_as_the_shader(level, rng):
    """Half of the threadgroups compute half of the rows, whatever the device."""
    w, x = random_weight(rng, (16, 64), 4, 32, "f16"), random_rows(rng, 1, 64)
    device = device_at(level)
    y = device.empty((1, 16))
    kernel = device.kernel(name("affine_matvec", w))
    kernel(x, *w[:3], y, 1, 64, 16, 32, groups=1, threads=128)
    assert y.numpy()[0, :8].all()
    assert not y.numpy()[0, 8:].any()
