"""Products with blocks of GGUF as the processor computes them: every type, level and precision.

What these tests cannot catch: levels that this machine has not, and speed.
"""

from __future__ import annotations

import numpy as np
import pytest

from kernels import test_gguf
from kernels.harness import assert_close
from kernels.levels import LEVELS, device_at
from kernels.random_blocks import random_weight
from kernels.test_gguf import KINDS, random_rows, read_by, unit, width
from pyturbo import ops
from reference import gguf
from reference.activations import MANY

pytestmark = pytest.mark.skipif(not LEVELS, reason="this machine has no level")
precisions = pytest.mark.parametrize("precision", ["default", "fast"])
kinds = pytest.mark.parametrize("kind", KINDS)

#: Types with scales for 16 values.
SMALL_GROUPS = ("Q2_K", "Q3_K", "Q6_K")


@precisions
@kinds
def test_every_kernel(level, reference_device, rng, precision, kind):
    device = device_at(level, precision)
    for count in (1, 3, 5 if unit(kind) == 256 else 19):  # blocks of a row
        stack, other = (random_weight(rng, (4, 45, count), kind) for _ in range(2))
        w, up = gguf.expert(stack, 2), gguf.expert(other, 2)
        x = random_rows(rng, 37, width(w))
        read = read_by(device, x, kind)
        want, terms = gguf.matmul(read, w)
        # 15 tokens are 8, 4, 2 and 1 of a tile of integers.
        for op, tokens in (("gguf_matvec", 1), ("gguf_matvec", 11), ("gguf_matmul", 15), ("gguf_matmul", 37)):
            y = test_gguf.run_product(device, op, x[:tokens], w)
            assert_close(y, want[:tokens], "long dot", terms[:tokens])
        want, terms = gguf.swiglu(read, w, up)
        for op, tokens in (("gguf_swiglu", 1), ("gguf_swiglu", 11), ("gguf_swiglu_matmul", 37)):
            y = test_gguf.run_product(device, op, x[:tokens], w, up)
            assert_close(y, want[:tokens], "long dot", terms[:tokens])
        ids = np.array([[3, 1, 0], [2, 2, 1]], np.int32)
        want, terms = gguf.per_expert(gguf.matmul, read[:2], ids, stack)
        assert_close(test_gguf.run_experts(device, x[:2], ids, stack), want, "long dot", terms)
        want, terms = gguf.per_expert(gguf.swiglu, read[:2], ids, stack, other)
        assert_close(test_gguf.run_experts(device, x[:2], ids, stack, other), want, "long dot", terms)
        offsets = np.array([0, 11, 33, 34, 37], np.int32)
        want, terms = gguf.grouped_matmul(read, offsets, stack)
        assert_close(test_gguf.run_grouped(device, x, offsets, stack), want, "long dot", terms)
        want, terms = gguf.grouped_swiglu(read, offsets, stack, other)
        assert_close(test_gguf.run_grouped(device, x, offsets, stack, other), want, "long dot", terms)
        ids = np.array([44, 0, -1, 5, 45], np.int32)
        want = test_gguf.run_embed(reference_device, ids, w)
        np.testing.assert_array_equal(test_gguf.run_embed(device, ids, w), want)


#: Bytes whose codes are the largest numbers: signed ones, and nibbles whose high bit is a sign.
LARGEST_BYTES = {"Q8_0": 0x7F, "MXFP4": 0x77}


@precisions
@kinds
def test_largest_codes(level, rng, precision, kind):
    device = device_at(level, precision)
    w = random_weight(rng, (5, 3 if unit(kind) == 256 else 19), kind)
    factors = {at + i for at in test_gguf.FACTORS[kind] for i in (0, 1)} or {0}
    for at in range(w.blocks.shape[1]):
        if at % gguf.SIZES[kind][0] not in factors:
            w.blocks[:, at] = LARGEST_BYTES.get(kind, 0xFF)
    x = np.repeat(np.float32([[1], [-1], [0.7]]), width(w), axis=1)
    want, terms = gguf.matmul(read_by(device, x, kind), w)
    assert_close(test_gguf.run_product(device, "gguf_matvec", x, w), want, "long dot", terms)
    assert_close(test_gguf.run_product(device, "gguf_matvec", x[:1], w), want[:1], "long dot", terms[:1])
    is_float = level == "neon" or kind in SMALL_GROUPS  # or may be: sums of equal terms drift
    if precision == "fast" or not is_float:
        y = test_gguf.run_product(device, "gguf_matmul", np.tile(x, (4, 1)), w)
        assert_close(y, np.tile(want, (4, 1)), "long dot", np.tile(terms, (4, 1)))


@precisions
@kinds
def test_slots(level, rng, precision, kind):
    device = device_at(level, precision)
    for count in (1, 2):
        test_gguf.test_experts_by_slot(device, rng, kind, count)
        for slots in ([6, -1, 2, 7, 0], [-1] * 5):
            test_gguf.test_grouped_by_slot(device, rng, kind, count, slots)


@precisions
@kinds
def test_what_is_not_finite_stays_visible(level, rng, precision, kind):
    device = device_at(level, precision)
    for op in ("gguf_matvec", "gguf_matmul"):
        test_gguf.test_extreme_rows_stay_apart(device, rng, op, kind)
        if test_gguf.FACTORS[kind]:
            test_gguf.test_nan_of_a_weight_stays_in_its_row(device, rng, op, kind)


#: The most tokens whose products have the bits of single ones, at some levels; at others, and at "vnni" and
#: "amx" with small groups, 11. With NEON and fast precision all have.
LIKE_ALONE = {"i8mm": 71, "dotprod": 23, "neon": 7, "vnni": 7, "amx": 7}


@precisions
@kinds
def test_bits_do_not_depend_on_the_number_of_tokens(level, rng, precision, kind):
    device = device_at(level, precision)
    has_neon = level in ("i8mm", "dotprod", "neon")
    most = 71 if has_neon and precision == "fast" else LIKE_ALONE.get(level, 11)
    most = 11 if kind in SMALL_GROUPS and not has_neon else most
    for blocks in (1, 3, 20, 21, 131) if unit(kind) == 32 else (1, 3, 17):
        w = gguf.expert(random_weight(rng, (1, 21, blocks), kind), 0)
        x = random_rows(rng, most, width(w))
        alone = np.concatenate([test_gguf.run_product(device, "gguf_matvec", row[None], w) for row in x])
        for tokens in [tokens for tokens in (2, 3, 7, 8, 11, 23, 71) if tokens <= most]:
            op = "gguf_matvec" if tokens < 8 else "gguf_matmul"
            together = test_gguf.run_product(device, op, x[:tokens], w)
            np.testing.assert_array_equal(together, alone[:tokens])


@precisions
@pytest.mark.parametrize("kind", test_gguf.FEW)
def test_bits_of_tiles_do_not_depend_on_other_tokens_and_rows(level, rng, precision, kind):
    device = device_at(level, precision)
    w = random_weight(rng, (139, 2), kind)
    x = random_rows(rng, 150, width(w))
    x[40], x[41, 3] = 0, np.nan
    together = test_gguf.run_product(device, "gguf_matmul", x, w)
    for tokens in (slice(0, MANY), slice(2, 99), slice(35, 150)):
        for rows in (slice(0, 32), slice(32, 96), slice(128, 139)):
            part = w._replace(blocks=np.ascontiguousarray(w.blocks[rows]))
            alone = test_gguf.run_product(device, "gguf_matmul", x[tokens], part)
            np.testing.assert_array_equal(together[tokens, rows], alone)
    few = test_gguf.run_product(device, "gguf_matmul", x[30:53], w)
    for tokens in (slice(0, 12), slice(8, 23)):
        alone = test_gguf.run_product(device, "gguf_matmul", x[30:53][tokens], w)
        np.testing.assert_array_equal(few[tokens], alone)


@precisions
@kinds
def test_bits_do_not_depend_on_the_number_of_threads(level, rng, precision, kind):
    stack, other = (random_weight(rng, (3, 70, 2), kind) for _ in range(2))
    gate, up = gguf.expert(stack, 1), gguf.expert(other, 1)
    x = random_rows(rng, 40, width(gate))
    results = []
    for threads in (1, 2, 3):
        device = device_at(level, precision, threads)
        results.append(
            [
                ops.gguf_matmul(x[:1], *gate, device=device),
                ops.gguf_matmul(x, *gate, device=device),
                ops.gguf_swiglu(x[:3], gate.blocks, up.blocks, kind, device=device),
                ops.gguf_swiglu(x, gate.blocks, up.blocks, kind, device=device),
                ops.gguf_experts_matmul(x, [[0, 2]] * 40, *stack, device=device),
                ops.gguf_grouped_matmul(x, [0, 7, 7, 40], *stack, device=device),
            ]
        )
    for other_results in results[1:]:
        for a, b in zip(results[0], other_results):
            assert a.tobytes() == b.tobytes()


@precisions
@kinds
@pytest.mark.parametrize("count", [1, 3, 16, 19])
@pytest.mark.parametrize("rows", [48, 64])  # a tile of AVX-512 with half of its rows, and whole ones
def test_nothing_behind_blocks_is_read(level, rng, at_the_edge, precision, kind, count, rows):
    device = device_at(level, precision)
    gate, up = (random_weight(rng, (rows, count), kind) for _ in range(2))
    gate, up = (w._replace(blocks=at_the_edge(w.blocks)) for w in (gate, up))
    in_dim = width(gate)
    x = at_the_edge(random_rows(rng, 12, in_dim))
    ends = {"gguf_matvec": (gate,), "gguf_matmul": (gate,), "gguf_swiglu": (gate, up)}
    for op, weights in (ends | {"gguf_swiglu_matmul": (gate, up)}).items():
        tokens, y = (12, device.empty((12, rows))) if op.endswith("matmul") else (1, device.empty((1, rows)))
        kernel = device.kernel(f"{op}_{kind.lower()}")
        kernel(x[-tokens:], *(w.blocks for w in weights), y, tokens, in_dim, rows)
        assert np.isfinite(y.numpy()).all()
    ids, y = at_the_edge(np.array([rows - 1, 0, 5, rows - 2], np.int32)), device.empty((4, in_dim))
    device.kernel(f"gguf_embed_{kind.lower()}")(ids, gate.blocks, y, 4, rows, in_dim)
    assert np.isfinite(y.numpy()).all()


@kinds
def test_nothing_behind_projections_of_latents_is_read(level, rng, at_the_edge, kind):
    blocks = at_the_edge(random_weight(rng, (3 * 32, 1), kind).blocks)
    weight = blocks, kind
    for op, args in ((ops.mla_project_q, (weight,)), (ops.mla_project_out, (weight, 15))):
        columns = 17 if op is ops.mla_project_q else unit(kind)
        x = at_the_edge(rng.standard_normal((2, 3, columns), np.float32))
        assert np.isfinite(op(x, *args, device=device_at(level))).all()
