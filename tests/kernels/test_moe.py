"""Routers, buckets, gather_rows and moe_combine against their references, on every device.

Does not catch: a router that breaks ties of probabilities which are equal only after rounding; logits decide.
"""

import sys
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import pyturbo
from kernels.harness import Out, assert_close, in_slots, of_shaders, run_kernel
from pyturbo import Recorder, Tensor, errors, ops, symbol
from pyturbo._machine import resident_memory
from reference import moe as reference
from reference.activations import as_read
from reference.norm import rms_norm

STORED = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def check_route(ids, weights, logits, k, normalize):
    want_ids, want = reference.route(logits, k, normalize)
    np.testing.assert_array_equal(ids, want_ids)
    assert_close(weights, want, "elementwise", reference.route_magnitude(logits, want_ids, want))


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    ("tokens", "experts", "k"), [(5, 6, 3), (1, 512, 10), (3, 512, 16), (7, 1, 1), (2, 33, 16), (4, 128, 8)]
)
def test_route(device, rng, tokens, experts, k, normalize):
    logits = rng.standard_normal((tokens, experts), np.float32) * 3
    logits[-1] *= 20
    args = (logits, Out((tokens, k), np.int32), Out((tokens, k)), tokens, experts, k)
    ids, weights = run_kernel(device, "route", *args, constants={"normalize": normalize})
    check_route(ids, weights, logits, k, normalize)


@pytest.mark.spread
@settings(max_examples=30, deadline=None)
@given(
    tokens=st.integers(1, 6),
    experts=st.integers(1, 512),
    k=st.integers(1, 16),
    levels=st.sampled_from([1, 2, 5, 1000]),
    normalize=st.booleans(),
    seed=st.integers(0, 99),
)
def test_route_any_shape_with_ties(device, tokens, experts, k, levels, normalize, seed):
    k = min(k, experts)
    rng = np.random.default_rng(seed)
    logits = rng.integers(-levels, levels, (tokens, experts)).astype(np.float32) / np.float32(levels)
    check_route(*ops.route(logits, k, normalize, device=device), logits, k, normalize)


def test_route_orders_zeros_and_subnormals(device):
    logits = np.array([[-1e-45, -0.0, 0.0, 1e-45, -0.0, -3e38, 3e38]], np.float32)
    ids, _ = ops.route(logits, 7, device=device)
    np.testing.assert_array_equal(ids, [[6, 3, 1, 2, 4, 0, 5]])


def test_route_shows_what_is_not_finite(device, rng):
    """Ids stay distinct and in range; a row whose softmax is not defined has NaN weights, other rows none."""
    logits = rng.standard_normal((6, 40), np.float32)
    logits[1, 35] = -np.nan  # what x86 makes of inf - inf
    logits[2, [3, 39]] = np.nan
    logits[3, 8] = np.inf
    logits[4] = -np.inf
    logits[5, 1:] = -np.inf
    for normalize in (True, False):
        ids, weights = ops.route(logits, 3, normalize, device=device)
        np.testing.assert_array_equal(ids, reference.route(logits, 3, normalize)[0])
        np.testing.assert_array_equal(np.isnan(weights).all(1), [False, True, True, True, True, False])
        np.testing.assert_array_equal(np.isnan(weights).any(1), np.isnan(weights).all(1))
        np.testing.assert_array_equal(weights[5], [1, 0, 0])
    assert ids[1, 0] == 35
    np.testing.assert_array_equal(ids[2, :2], [3, 39])


def test_normalized_weights_are_the_softmax_of_the_chosen_logits(device, rng):
    """The router of gpt-oss: the k best first, then a softmax over them alone."""
    logits = rng.standard_normal((5, 32), np.float32) * 4
    ids, weights = ops.route_topk_softmax(logits, 4, device=device)
    chosen = np.sort(logits.astype(np.float64), axis=1)[:, :-5:-1]
    np.testing.assert_array_equal(np.take_along_axis(logits, ids, 1), chosen)
    want = np.exp(chosen) / np.exp(chosen).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(weights, want, rtol=1e-5)


def check_route_grouped(got, logits, bias, k, *options):
    want_ids, want = reference.route_grouped(logits, bias, k, *options)
    np.testing.assert_array_equal(got[0], want_ids)
    assert_close(got[1], want, "elementwise", 4 * np.abs(want))  # sigmoid, sum, quotient and scale


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    ("tokens", "experts", "k", "groups", "kept"),
    [
        (3, 256, 8, 8, 4),
        (5, 384, 8, 1, 1),
        (6, 12, 4, 4, 2),
        (2, 6, 3, 6, 4),
        (1, 512, 16, 32, 5),
        (9, 1, 1, 1, 1),
    ],
)
def test_route_grouped(device, rng, tokens, experts, k, groups, kept, normalize):
    logits = rng.standard_normal((tokens, experts), np.float32) * 2
    bias = rng.standard_normal(experts).astype(np.float32)
    outs = Out((tokens, k), np.int32), Out((tokens, k))
    sizes = tokens, experts, k, groups, kept, 2.5
    got = run_kernel(device, "route_grouped", logits, bias, *outs, *sizes, constants={"normalize": normalize})
    check_route_grouped(got, logits, bias, k, groups, kept, 2.5, normalize)


@pytest.mark.spread
@settings(max_examples=30, deadline=None)
@given(
    tokens=st.integers(1, 6),
    size=st.integers(1, 16),
    groups=st.integers(1, 32),
    share=st.floats(0, 1),
    k=st.integers(1, 16),
    normalize=st.booleans(),
    seed=st.integers(0, 99),
)
def test_route_grouped_any_shape(device, tokens, size, groups, share, k, normalize, seed):
    kept = 1 + int(share * (groups - 1))
    k = min(k, kept * size)
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((tokens, groups * size), np.float32) * 2
    bias = rng.standard_normal(groups * size).astype(np.float32)
    assume(reference.choice_gap(logits, bias, groups) > 2e-6)
    got = ops.route_grouped(logits, bias, k, groups, kept, 0.5, normalize, device=device)
    check_route_grouped(got, logits, bias, k, groups, kept, 0.5, normalize)


def test_route_grouped_breaks_ties_by_id_and_chooses_by_bias_alone(device):
    logits = np.array([[1, 1, 1, 1, 1, 1, 1, 1], [-4, -4, 3, 3, 3, 3, -4, -4]], np.float32)
    ids, weights = ops.route_grouped(logits, np.zeros(8, np.float32), 3, 4, 2, device=device)
    np.testing.assert_array_equal(ids, [[0, 1, 2], [2, 3, 4]])
    np.testing.assert_allclose(weights, np.full((2, 3), 1 / 3), rtol=1e-6)
    bias = np.array([0, 0, 0, 0, 0, 0, -5, -6], np.float32)
    ids, weights = ops.route_grouped(logits[:1], bias, 8, 4, 4, normalize=False, device=device)
    np.testing.assert_array_equal(ids, [np.arange(8)])  # choices below 0 are chosen, weights stay scores
    assert np.ptp(weights) == 0


def test_route_grouped_shows_nan(device, rng):
    logits = rng.standard_normal((4, 12), np.float32)
    logits[1, 5], logits[2, 0] = np.nan, np.inf
    ids, weights = ops.route_grouped(logits, np.zeros(12, np.float32), 4, 3, 2, device=device)
    assert ids[1, 0] == 5
    np.testing.assert_array_equal(np.isnan(weights).all(1), [False, True, False, False])
    bias = np.zeros(12, np.float32)
    bias[7] = np.nan
    ids, weights = ops.route_grouped(logits[:1], bias, 4, 3, 2, normalize=False, device=device)
    assert ids[0, 0] == 7
    np.testing.assert_array_equal(np.isnan(weights), [[True, False, False, False]])


@pytest.mark.parametrize(("tokens", "count", "dim"), [(5, 15, 259), (4, 3, 7), (1, 1, 1), (3, 9, 600)])
def test_bucket_accumulate(device, rng, tokens, count, dim):
    y, rows = rng.standard_normal((tokens, dim), np.float32), rng.standard_normal((count, dim), np.float32)
    owners = rng.integers(-1, tokens + 1, count, np.int32)  # some are no token
    weights = rng.uniform(0, 1, count).astype(np.float32)
    outs = Out(y.shape, initial=y)
    (got,) = run_kernel(device, "bucket_accumulate", rows, owners, weights, outs, tokens, count, dim)
    want = reference.bucket_accumulate(y, rows, owners, weights)
    magnitude = reference.bucket_accumulate(np.abs(y), np.abs(rows), owners, weights)
    assert_close(got, want, "dot", magnitude)
    again = ops.bucket_accumulate(y, rows, owners, weights, device=device)
    assert again.tobytes() == got.tobytes()


def test_buckets_one_by_one_equal_all_at_once(device, rng):
    ids = rng.integers(0, 5, (9, 3), np.int32)
    offsets, order, _ = ops.moe_buckets(ids, 5, device=device)
    rows, y = rng.standard_normal((27, 40), np.float32), np.zeros((9, 40), np.float32)
    owners, weights = order // 3, rng.uniform(0, 1, 27).astype(np.float32)
    whole = ops.bucket_accumulate(y.copy(), rows, owners, weights, device=device)
    for begin, end in pairwise(offsets):
        if end > begin:
            part = slice(begin, end)
            y = ops.bucket_accumulate(y, rows[part], owners[part], weights[part], device=device)
    np.testing.assert_array_equal(y, whole)


def check_buckets(got, ids, experts):
    for each, want in zip(got, reference.moe_buckets(ids, experts)):
        np.testing.assert_array_equal(each, want)


@pytest.mark.parametrize(("tokens", "k", "experts"), [(1, 1, 1), (5, 3, 6), (7, 10, 512), (100, 4, 33)])
def test_moe_buckets(device, rng, tokens, k, experts):
    ids = rng.permuted(np.tile(np.arange(experts, dtype=np.int32), (tokens, 1)), axis=1)[:, :k].copy()
    outs = Out((experts + 1,), np.int32), Out((tokens * k,), np.int32), Out((tokens, k), np.int32)
    check_buckets(run_kernel(device, "moe_buckets", ids, *outs, tokens * k, experts), ids, experts)


def test_moe_buckets_whose_ids_change_meanwhile(device):
    """Rows go over the ids that are still to be placed; nothing is written after them."""
    count, experts = 64, 2
    memory = np.full(2 * count, -7, np.int32)
    ids = memory[:count]
    ids[:] = 0
    ids[5:11] = 1  # whose rows, the last six, then hold numbers that are no experts
    offsets, inverse = np.zeros(experts + 1, np.int32), np.zeros(count, np.int32)
    device.kernel("moe_buckets")(ids, offsets, ids, inverse, count, experts)
    np.testing.assert_array_equal(memory[count:], -7)


def test_moe_buckets_of_a_large_prefill(device, rng):
    ids = rng.integers(0, 512, (1638, 10), np.int32)
    ids[:, 0] = 511
    check_buckets(ops.moe_buckets(ids, 512, device=device), ids, 512)


@pytest.mark.spread
@settings(max_examples=30, deadline=None)
@given(
    tokens=st.integers(1, 40),
    k=st.integers(1, 5),
    experts=st.integers(1, 40),
    beyond=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_moe_buckets_any_shape_and_any_ids(device, tokens, k, experts, beyond, seed):
    ids = np.random.default_rng(seed).integers(-beyond, experts + beyond, (tokens, k), np.int32)
    check_buckets(ops.moe_buckets(ids, experts, device=device), ids, experts)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the memory in use is not known elsewhere")
def test_memory_of_a_launch_is_given_back():
    """Also that of one which leaves nothing for the threads to do."""
    device, experts = pyturbo.Device("cpu", threads=1), 1 << 20
    rows = [device.empty(experts, dtype) for dtype in ("int32", "uint32", "int32")]
    arguments = (device.empty(1, "int32"), *rows, device.empty(1, "uint32"), 1, experts)
    find_slots = device.kernel("find_slots")
    find_slots(*arguments)
    before = resident_memory()
    for _ in range(50):
        find_slots(*arguments)
    assert resident_memory() - before < 20_000_000


def check_find_slots(got, ids, table, counts):
    want, missing = reference.find_slots(ids, table, counts)
    np.testing.assert_array_equal(got[0], want)
    np.testing.assert_array_equal(got[1], table)
    np.testing.assert_array_equal(got[2], [missing])


@pytest.mark.parametrize(
    ("tokens", "k", "experts"), [(1, 8, 256), (1, 1, 1), (5, 3, 6), (2, 10, 512), (40, 4, 1027)]
)
def test_find_slots(device, rng, tokens, k, experts):
    ids = rng.integers(-1, experts + 1, (tokens, k), np.int32)  # some are no expert
    ids[0, 0] = experts - 1
    table = rng.permutation(np.arange(experts) - experts // 2).astype(np.int32)
    table[-1] = -1
    counts = rng.integers(0, 1 << 31, experts, np.uint32)
    outs = Out((experts,), np.uint32, counts), Out((experts,), np.int32), Out((1,), np.uint32)
    got = run_kernel(device, "find_slots", ids, table, *outs, tokens * k, experts)
    check_find_slots(got, ids, table, counts)
    arrays = counts.copy(), np.zeros(experts, np.int32), np.zeros(1, np.uint32)
    check_find_slots(ops.find_slots(ids, table, *arrays, device=device), ids, table, counts)


def test_the_table_may_be_the_slots(device):
    ids, table = np.array([2, 0, 2], np.int32), device.buffer(np.array([-1, 4, -9, 1], np.int32))
    counts, missing = device.empty(4, np.uint32), device.empty(1, np.uint32)
    device.kernel("find_slots")(ids, table, counts, table, missing, 3, 4)
    np.testing.assert_array_equal(table.numpy(), [-1, 4, -9, 1])
    np.testing.assert_array_equal(counts.numpy(), [1, 0, 2, 0])
    assert missing.numpy()[0] == 2


def test_find_slots_of_ids_that_are_no_expert(device):
    ids, table = np.array([[-1, 3], [2**31 - 1, -(2**31)]], np.int32), np.array([-1, -1, -1], np.int32)
    counts, slots, missing = np.array([4, 0, 7], np.uint32), np.zeros(3, np.int32), np.ones(1, np.uint32)
    ops.find_slots(ids, table, counts, slots, missing, device=device)
    np.testing.assert_array_equal(counts, [4, 0, 7])
    np.testing.assert_array_equal(slots, table)
    assert missing[0] == 0


@pytest.mark.spread
@settings(max_examples=30, deadline=None)
@given(
    tokens=st.integers(1, 9),
    k=st.integers(1, 8),
    experts=st.integers(1, 600),
    slots=st.integers(0, 600),
    seed=st.integers(0, 99),
)
def test_find_slots_any_shape(device, tokens, k, experts, slots, seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, experts, (tokens, k), np.int32)
    table = np.full(experts, -1, np.int32)
    table[rng.permutation(experts)[:slots]] = np.arange(min(experts, slots))
    counts = np.zeros(experts, np.uint32)
    arrays = counts.copy(), np.zeros(experts, np.int32), np.zeros(1, np.uint32)
    check_find_slots(ops.find_slots(ids, table, *arrays, device=device), ids, table, counts)


def test_counts_of_replays_add_up(device, rng):
    """Each replay reads the table and the ids as they are then. Counts wrap around."""
    buffers = {
        name: device.empty(shape, dtype)
        for name, shape, dtype in (
            ("ids", (9, 4), np.int32), ("table", 7, np.int32), ("counts", 7, np.uint32),
            ("slots", 7, np.int32), ("missing", 1, np.uint32),
        )
    }  # fmt: skip
    counts = np.full(7, 2**32 - 3, np.uint32)
    buffers["counts"].write(counts)
    tokens = symbol("tokens")
    operands = {name: Tensor(buffer, buffer.shape, buffer.dtype) for name, buffer in buffers.items()}
    operands["ids"] = Tensor(buffers["ids"], (tokens, 4), np.int32)
    with Recorder(device, {"tokens": 9}) as recorder:
        ops.find_slots(**operands)
    for count in (1, 9, 5):
        ids, table = rng.integers(0, 7, (9, 4), np.int32), rng.integers(-2, 2, 7, np.int32)
        buffers["ids"].write(ids)
        buffers["table"].write(table)
        recorder.program.run(tokens=count)
        want, missing = reference.find_slots(ids[:count], table, counts.astype(np.int64))
        counts = want.astype(np.uint32)
        np.testing.assert_array_equal(buffers["counts"].numpy(), counts)
        np.testing.assert_array_equal(buffers["slots"].numpy(), table)
        np.testing.assert_array_equal(buffers["missing"].numpy(), [missing])


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(
    ("x_rows", "repeat", "rows", "dim"), [(1, 1, 3, 1), (5, 3, 15, 259), (9, 2, 4, 33), (3, 2, 5, 1100)]
)
def test_gather_rows(device, rng, x_rows, repeat, rows, dim, kind):
    dtype = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    x = rng.standard_normal((x_rows, dim), np.float32).astype(dtype)
    index = rng.integers(0, x_rows * repeat, rows, np.int32)
    (y,) = run_kernel(device, f"gather_rows_{kind}", x, index, Out((rows, dim)), rows, x_rows, dim, repeat)
    np.testing.assert_array_equal(y, x[index // repeat].astype(np.float32))


def test_gather_rows_out_of_range_is_nan(device, rng):
    x = rng.standard_normal((4, 7), np.float32)
    y = ops.gather_rows(x, np.array([[-1, 11], [12, -(2**31)], [0, 2**31 - 1]], np.int32), 3, device=device)
    assert y.shape == (3, 2, 7)
    np.testing.assert_array_equal(np.isnan(y).all(2), [[True, False], [True, True], [False, True]])
    np.testing.assert_array_equal(y[[0, 2], [1, 0]], x[[3, 0]])


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("tokens", "k", "experts", "dim"), [(1, 1, 1, 1), (5, 3, 4, 259), (9, 2, 33, 40)])
def test_add_expert_bias(device, rng, tokens, k, experts, dim, kind, ordered):
    dtype = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    x = rng.standard_normal((tokens, k, dim), np.float32)
    bias = rng.standard_normal((experts, dim), np.float32).astype(dtype)
    ids = rng.integers(0, experts, (tokens, k), np.int32)
    want = x + bias[ids].astype(np.float32)  # one addition is exactly rounded
    rows = tokens * k
    sizes = (rows, experts, experts, dim, dim)
    order = None
    if ordered:
        _, order, _ = ops.moe_buckets(ids, experts, device=device)
        x, want = (array.reshape(rows, dim)[order] for array in (x, want))
    arrays = (x.reshape(rows, dim), bias, ids.ravel(), order, None, Out((rows, dim)))
    constants = {"has_order": ordered, "by_slot": False}
    (y,) = run_kernel(device, f"add_expert_bias_{kind}", *arrays, *sizes, constants=constants)
    np.testing.assert_array_equal(y, want.reshape(rows, dim))
    np.testing.assert_array_equal(ops.add_expert_bias(x, bias, ids, order, device=device), want)


def test_add_expert_bias_of_unknown_experts_is_nan(device, rng):
    x, bias = rng.standard_normal((4, 7), np.float32), rng.standard_normal((3, 7), np.float32)
    x[2, 5] = np.nan
    ids = np.array([3, 0, 2, -1], np.int32)
    y = ops.add_expert_bias(x, bias, ids, device=device)
    np.testing.assert_array_equal(y[1:3], x[1:3] + bias[[0, 2]])
    assert np.isnan(y[[0, 3]]).all()
    y = ops.add_expert_bias(x, bias, ids, np.array([1, 4, 0, 2], np.int32), device=device)
    np.testing.assert_array_equal(np.isnan(y).all(1), [False, True, True, False])


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("ordered", [False, True])
def test_add_expert_bias_by_slot(device, rng, kind, ordered):
    """Expert 2 has no slot, expert 4 one that does not exist."""
    dtype = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    x, bias = rng.standard_normal((24, 259), np.float32), rng.standard_normal((5, 259)).astype(dtype)
    ids, slots = rng.integers(-1, 6, 24, np.int32), np.array([6, 2, -1, 0, 7], np.int32)
    order = rng.permutation(24).astype(np.int32) if ordered else None
    memory, stride = in_slots(bias, slots, 7, 13)
    arrays = x, memory, ids, order, slots, Out(x.shape, initial=7)
    constants = {"has_order": ordered, "by_slot": True}
    (y,) = run_kernel(device, f"add_expert_bias_{kind}", *arrays, 24, 5, 7, 259, stride, constants=constants)
    own = ids[order] if ordered else ids
    assert set(own) == {-1, 0, 1, 2, 3, 4, 5}
    found = np.isin(own, [0, 1, 3])
    np.testing.assert_array_equal(y[found], x[found] + bias[own[found]].astype(np.float32))
    assert (y[own == 2] == 7).all()
    assert np.isnan(y[~found & (own != 2)]).all()


def combine_inputs(rng, tokens, k, dim):
    residual, shared = rng.standard_normal((2, tokens, dim), np.float32)
    experts = rng.standard_normal((tokens, k, dim), np.float32) * 8
    return residual, experts, rng.uniform(0, 1, (tokens, k)).astype(np.float32), shared


def check_combine(y, *inputs):
    want, magnitude = reference.moe_combine(*inputs), reference.moe_combine_magnitude(*inputs)
    assert_close(y, want, "dot", magnitude)


@pytest.mark.parametrize("variant", ["gated", "unscaled", "none"])
@pytest.mark.parametrize(("tokens", "k", "dim"), [(1, 10, 4096), (5, 3, 259), (2, 1, 7)])
def test_moe_combine(device, rng, variant, tokens, k, dim):
    residual, experts, weights, shared = combine_inputs(rng, tokens, k, dim)
    gate = rng.standard_normal(tokens, np.float32) * 3
    gate[0] = -200
    shared = None if variant == "none" else shared
    gate = gate if variant == "gated" else None
    constants = {"has_shared": shared is not None, "has_shared_gate": gate is not None}
    args = (residual, experts, weights, shared, gate, Out(residual.shape), tokens, k, dim)
    (y,) = run_kernel(device, "moe_combine", *args, constants=constants)
    check_combine(y, residual, experts, weights, shared, gate)


@pytest.mark.spread
@settings(max_examples=15, deadline=None)
@given(tokens=st.integers(1, 5), k=st.integers(1, 16), dim=st.integers(1, 300), seed=st.integers(0, 99))
def test_moe_combine_any_shape(device, tokens, k, dim, seed):
    rng = np.random.default_rng(seed)
    *inputs, shared = combine_inputs(rng, tokens, k, dim)
    gate = rng.standard_normal((tokens, 1), np.float32)
    check_combine(ops.moe_combine(*inputs, device=device), *inputs)
    check_combine(ops.moe_combine(*inputs, shared, device=device), *inputs, shared)
    check_combine(ops.moe_combine(*inputs, shared, gate, device=device), *inputs, shared, gate)


def test_moe_combine_in_place(device, rng):
    residual, experts, weights, shared = combine_inputs(rng, 3, 2, 300)
    want = ops.moe_combine(residual, experts, weights, shared, device=device)
    stream = device.empty(residual.shape)
    stream.write(residual)
    kernel = device.kernel("moe_combine", {"has_shared": True, "has_shared_gate": False})
    kernel(stream, experts, weights, shared, None, stream, 3, 2, 300)
    np.testing.assert_array_equal(stream.numpy(), want)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("variant", ["gated", "unscaled", "none"])
@pytest.mark.parametrize(("tokens", "k", "dim"), [(1, 10, 4096), (5, 3, 259), (2, 1, 7), (3, 2, 2050)])
def test_moe_combine_norm(device, rng, variant, tokens, k, dim, kind):
    residual, experts, weights, shared = combine_inputs(rng, tokens, k, dim)
    residual[-1] *= 1e25  # squares overflow
    gate = rng.standard_normal(tokens, np.float32) * 3
    shared = None if variant == "none" else shared
    gate = gate if variant == "gated" else None
    scale = rng.uniform(0.5, 2, dim).astype(STORED[kind])
    constants = {"has_shared": shared is not None, "has_shared_gate": gate is not None}
    outs = Out(residual.shape), Out(residual.shape)
    args = (residual, experts, weights, shared, gate, scale, *outs, tokens, k, dim, 1e-5)
    y, total = run_kernel(device, f"moe_combine_norm_{kind}", *args, constants=constants)
    check_combine(total, residual, experts, weights, shared, gate)
    assert_close(y, rms_norm(total, scale, 1e-5), "norm")


def test_moe_combine_norm_adds_like_moe_combine(device, rng):
    device = of_shaders(device)
    residual, experts, weights, shared = combine_inputs(rng, 3, 4, 300)
    gate, scale = rng.standard_normal((3, 1), np.float32), np.ones(300, np.float32)
    y, total = ops.moe_combine_norm(residual, experts, weights, scale, 1e-5, shared, gate, device=device)
    want = ops.moe_combine(residual, experts, weights, shared, gate, device=device)
    np.testing.assert_array_equal(total, want)
    assert_close(y, rms_norm(total, scale, 1e-5), "norm")
    experts[0, 1, 5] = np.nan
    for each in ops.moe_combine_norm(residual, experts, weights, scale, 1e-5, shared, gate, device=device):
        assert np.isnan(each[0]).any()
        assert np.isfinite(each[1:]).all()


@pytest.mark.parametrize("where", range(5))
def test_moe_combine_shows_nan(device, rng, where):
    residual, experts, weights, shared = combine_inputs(rng, 3, 2, 9)
    inputs = residual, experts, weights, shared, np.full(3, -200, np.float32)
    inputs[where].reshape(3, -1)[1, 0] = np.nan
    weights[1, 1] = 0
    y = ops.moe_combine(*inputs, device=device)
    assert np.isnan(y[1]).any()
    assert np.isfinite(y[[0, 2]]).all()


def test_prefill_through_buckets_equals_each_token_with_its_experts(device, rng):
    """The whole way: route, into buckets, one product per expert, back to tokens, combine."""
    tokens, experts, k, dim, out = 21, 6, 3, 64, 40
    weight = rng.standard_normal((experts, out, dim), np.float32)
    stack = (*ops.affine_quantize(weight, bits=4, group_size=32), 4, 32)
    dense = ops.affine_dequantize(*stack).astype(np.float64)
    x, residual = (
        rng.standard_normal((tokens, dim), np.float32),
        rng.standard_normal((tokens, out), np.float32),
    )
    ids, weights = ops.route(rng.standard_normal((tokens, experts), np.float32), k, device=device)

    offsets, order, inverse = ops.moe_buckets(ids, experts, device=device)
    sorted_x = ops.gather_rows(x, order, k, device=device)
    rows = ops.gather_rows(
        ops.affine_grouped_matmul(sorted_x, offsets, *stack, device=device), inverse, device=device
    )
    y = ops.moe_combine(residual, rows, weights, device=device)

    each = np.einsum("tkoi,ti->tko", dense[ids], as_read(device, x, 32))
    magnitude = np.einsum("tkoi,ti->tko", np.abs(dense[ids]), np.abs(x))
    assert_close(rows, each, "long dot", magnitude)
    bound = reference.moe_combine_magnitude(residual, magnitude, weights)
    assert_close(y, reference.moe_combine(residual, each, weights), "long dot", bound)


def test_refuses(device):
    logits = np.zeros((2, 20), np.float32)
    with pytest.raises(errors.ArgumentError, match="route: k: expected 1 to 16, got 17"):
        ops.route(logits, 17, device=device)
    with pytest.raises(errors.ArgumentError, match="route: k: expected 1 to 5, got 0"):
        ops.route(logits[:, :5], 0, device=device)
    with pytest.raises(errors.ArgumentError, match="route: requires experts <= 32"):
        ops.route(np.zeros((1, 513), np.float32), 2, device=device)
    bias = np.zeros(20, np.float32)
    with pytest.raises(errors.ArgumentError, match="route_grouped: groups: expected a divisor of 20"):
        ops.route_grouped(logits, bias, 2, 3, device=device)
    with pytest.raises(errors.ArgumentError, match="route_grouped: top_groups: expected 1 to 4, got 5"):
        ops.route_grouped(logits, bias, 2, 4, 5, device=device)
    with pytest.raises(errors.ArgumentError, match="route_grouped: k: expected 1 to 10, got 11"):
        ops.route_grouped(logits, bias, 11, 4, 2, device=device)
    with pytest.raises(
        errors.ArgumentError, match=r"bucket_accumulate: tokens: expected shape \[2\], got \[3\]"
    ):
        ops.bucket_accumulate(logits, logits, np.zeros(3, np.int32), logits[:, 0], device=device)
    with pytest.raises(errors.ArgumentError, match="moe_buckets: ids: expected int32, got int64"):
        ops.moe_buckets(np.zeros((1, 2), np.int64), 3, device=device)
    with pytest.raises(
        errors.ArgumentError, match="moe_buckets: experts: expected an integer from 1 on, got 0"
    ):
        ops.moe_buckets(np.zeros((1, 2), np.int32), 0, device=device)
    with pytest.raises(errors.ArgumentError, match="gather_rows: index: expected at least one, got shape"):
        ops.gather_rows(logits, np.zeros((0, 2), np.int32), device=device)
    with pytest.raises(errors.ArgumentError, match="gather_rows_f32: requires repeat > 0"):
        ops.gather_rows(logits, np.zeros(1, np.int32), 0, device=device)
    one, bias = np.zeros(2, np.int32), np.zeros((3, 20), np.float32)
    unsigned = one.astype(np.uint32)
    with pytest.raises(errors.ArgumentError, match="find_slots: ids: expected at least one, got shape"):
        ops.find_slots(one[None, :0], one, unsigned, one, unsigned[:1], device=device)
    with pytest.raises(errors.ArgumentError, match="find_slots: table: expected at least one, got shape"):
        ops.find_slots(one[None], one[:0], unsigned, one, unsigned[:1], device=device)
    with pytest.raises(errors.ArgumentError, match="find_slots: counts: expected uint32, got int32"):
        ops.find_slots(one[None], one, one, one, unsigned[:1], device=device)
    with pytest.raises(errors.ArgumentError, match=r"find_slots: slots: expected shape \[2\], got \[1\]"):
        ops.find_slots(one[None], one, unsigned, one[:1], unsigned[:1], device=device)
    with pytest.raises(errors.ArgumentError, match=r"find_slots: missing: expected shape \[1\], got \[2\]"):
        ops.find_slots(one[None], one, unsigned, one, unsigned, device=device)
    with pytest.raises(errors.ArgumentError, match=r"add_expert_bias: ids: expected shape \[2\], got \[1\]"):
        ops.add_expert_bias(logits, bias, one[:1], device=device)
    with pytest.raises(errors.ArgumentError, match="add_expert_bias: ids: expected 2 values, got 1"):
        ops.add_expert_bias(logits, bias, one[:1], one, device=device)
    with pytest.raises(errors.ArgumentError, match=r"add_expert_bias: bias: expected shape \[any, 20\]"):
        ops.add_expert_bias(logits, bias[:, :4], one, device=device)
    rows, weights = np.zeros((2, 3, 20), np.float32), np.zeros((2, 3), np.float32)
    with pytest.raises(
        errors.ArgumentError, match=r"moe_combine: weights: expected shape \[2, 3\], got \[2, 2\]"
    ):
        ops.moe_combine(logits, rows, weights[:, :2], device=device)
    with pytest.raises(errors.ArgumentError, match="moe_combine: shared: expected a value"):
        ops.moe_combine(logits, rows, weights, None, weights[:, 0], device=device)
    with pytest.raises(errors.ArgumentError, match=r"moe_combine: shared_gate: expected shape \[2, 1\]"):
        ops.moe_combine(logits, rows, weights, logits, weights, device=device)
