"""Affine-quantised products against float64 references.

The weights are random words, scales and biases, so every code occurs. References are of the activations as
the device reads them: one that rounds them is held to the arithmetic on the rounded ones. What these tests
cannot catch: speed, and races between simdgroups, which the reference execution runs in turn; test_checked
looks for those.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.harness import Out, assert_bucket, assert_close, chosen, in_slots, plain_product, run_kernel
from pyturbo import ops
from pyturbo._dtypes import bfloat16
from pyturbo.errors import AllocationError, ArgumentError, DeviceError
from reference import affine as reference
from reference.activations import as_read
from reference.affine import Weight

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": bfloat16}
#: Every instance, and every pair of a width or a type with a size of groups.
FORMATS = [
    (bits, GROUP_SIZES[(b + k) % 3], kind) for b, bits in enumerate(BITS) for k, kind in enumerate(TYPES)
]
SOME_FORMATS = [(3, 32, "bf16"), (4, 64, "bf16"), (5, 128, "f16"), (8, 64, "f32")]

formats = pytest.mark.parametrize(("bits", "group_size", "kind"), FORMATS)
some_formats = pytest.mark.parametrize(("bits", "group_size", "kind"), SOME_FORMATS)


def random_weight(rng, shape, bits, group_size, kind):
    """A quantised array of values around 1; `shape` ends with (out, in)."""
    *lead, width = shape
    packed = rng.integers(0, 1 << 32, (*lead, width * bits // 32), np.uint32)
    groups = (*lead, width // group_size)
    scales = rng.uniform(-2, 2, groups) / (1 << bits)
    return Weight(
        packed, scales.astype(TYPES[kind]), rng.uniform(-1, 1, groups).astype(TYPES[kind]), bits, group_size
    )


def random_rows(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def read_by(device, op, x, group_size):
    """x as the device reads it: the kernels of few tokens have no bodies for processors."""
    return x.astype(np.float64) if "few" in op else as_read(device, x, group_size)


def name(op, w):
    kind = next(kind for kind, dtype in TYPES.items() if w.scales.dtype == dtype)
    return f"{op}_b{w.bits}_{kind}"


def run_product(device, op, x, *weights):
    """affine_matvec, affine_matmul or a swiglu, between guard bytes."""
    w, arrays = weights[0], [array for weight in weights for array in weight[:3]]
    tokens, in_dim = x.shape
    out_dim = w.packed.shape[-2]
    sizes = tokens, in_dim, out_dim, w.group_size
    return run_kernel(device, name(op, w), x, *arrays, Out((tokens, out_dim)), *sizes)[0]


def strides(w):
    return [int(np.prod(array.shape[1:])) for array in w[:3]]


def stacks_in_slots(stacks, slots):
    """The arrays of stacks, as they are or in their slots of 7, the number of matrices, and the strides."""
    if slots is None:
        return [array for stack in stacks for array in stack[:3]], len(stacks[0].packed), *strides(stacks[0])
    placed = [[in_slots(a, slots, 7, gap) for a, gap in zip(stack[:3], (8, 12, 20))] for stack in stacks]
    return [memory for stack in placed for memory, _ in stack], 7, *(stride for _, stride in placed[0])


def run_experts(device, op, x, ids, *stacks, slots=None, initial=None):
    """affine_experts_matvec or affine_experts_swiglu, between guard bytes."""
    w = stacks[0]
    experts, out_dim, _ = w.packed.shape
    arrays, *matrices = stacks_in_slots(stacks, slots)
    x_rows = 1 if x.ndim == 2 else ids.shape[1]
    sizes = *ids.shape, x_rows, x.shape[-1], out_dim, w.group_size, experts, *matrices
    args = x, ids, *arrays, slots, Out((*ids.shape, out_dim), initial=initial), *sizes
    return run_kernel(device, name(op, w), *args, constants={"by_slot": slots is not None})[0]


def run_grouped(device, x, offsets, *stacks, slots=None, initial=None):
    """affine_grouped_matmul, or with a gate and an up affine_grouped_swiglu."""
    op = "affine_grouped_matmul" if len(stacks) == 1 else "affine_grouped_swiglu"
    w = stacks[0]
    out_dim = w.packed.shape[-2]
    arrays, *matrices = stacks_in_slots(stacks, slots)
    sizes = *x.shape, out_dim, w.group_size, len(w.packed), *matrices
    args = x, offsets, *arrays, slots, Out((len(x), out_dim), initial=initial), *sizes
    constants = {"by_slot": slots is not None}
    return run_kernel(device, name(op, w), *args, constants=constants)[0]


def run_embed(device, ids, table):
    vocab = len(table.packed)
    hidden = table.packed.shape[1] * 32 // table.bits
    args = ids, *table[:3], Out((len(ids), hidden)), len(ids), vocab, hidden, table.group_size
    return run_kernel(device, name("affine_embed", table), *args)[0]


# Products -----------------------------------------------------------------------------------------


@formats
def test_matvec(device, rng, bits, group_size, kind):
    w = random_weight(rng, (13, 5 * group_size), bits, group_size, kind)
    x = random_rows(rng, 3, 5 * group_size)
    want, terms = reference.matmul(as_read(device, x, w.group_size), w)
    assert_close(run_product(device, "affine_matvec", x, w), want, "dot", terms)


@formats
def test_matmul(device, rng, bits, group_size, kind):
    w = random_weight(rng, (45, 3 * group_size), bits, group_size, kind)
    x = random_rows(rng, 37, 3 * group_size)
    want, terms = reference.matmul(as_read(device, x, w.group_size), w)
    assert_close(run_product(device, "affine_matmul", x, w), want, "long dot", terms)


@formats
def test_few(device, rng, bits, group_size, kind):
    w = random_weight(rng, (45, 5 * group_size), bits, group_size, kind)
    x = random_rows(rng, 11, 5 * group_size)
    want, terms = reference.matmul(x.astype(np.float64), w)
    assert_close(run_product(device, "affine_few_matmul", x, w), want, "long dot", terms)


@pytest.mark.parametrize("op", ["affine_swiglu", "affine_few_swiglu", "affine_swiglu_matmul"])
@formats
def test_swiglu(device, rng, op, bits, group_size, kind):
    gate, up = (random_weight(rng, (35, group_size), bits, group_size, kind) for _ in range(2))
    x = random_rows(rng, {"affine_swiglu": 2, "affine_few_swiglu": 13}.get(op, 33), group_size)
    want, terms = reference.swiglu(read_by(device, op, x, group_size), gate, up)
    assert_close(run_product(device, op, x, gate, up), want, "long dot", terms)


@pytest.mark.parametrize("in_dim", [4096, 7168, 12288, 18432])
@pytest.mark.parametrize(
    ("op", "tokens", "out_dim"),
    [("affine_matvec", 1, 9), ("affine_few_matmul", 3, 5), ("affine_matmul", 10, 7)],
)
def test_width_of_a_model(device, rng, op, tokens, out_dim, in_dim):
    w = random_weight(rng, (out_dim, in_dim), 4, 64, "bf16")
    x = np.abs(random_rows(rng, tokens, in_dim))  # sums that grow
    want, terms = reference.matmul(read_by(device, op, x, w.group_size), w)
    assert_close(run_product(device, op, x, w), want, "dot" if tokens == 1 else "long dot", terms)


@pytest.mark.parametrize("op", ["affine_matvec", "affine_few_matmul", "affine_matmul"])
@some_formats
def test_extreme_rows_stay_apart(device, rng, op, bits, group_size, kind):
    """NaN and inf fill their own token and nothing else; huge, tiny and zero rows are exact in proportion."""
    w = random_weight(rng, (11, 3 * group_size), bits, group_size, kind)
    x = random_rows(rng, 34, 3 * group_size)
    x[0] *= 1e30
    x[1] *= 1e-30
    x[2] = 0
    x[5, 7] = np.nan
    x[33, -1] = np.inf
    y = run_product(device, op, x, w)
    assert np.isnan(y[5]).all()
    assert not np.isfinite(y[33]).any()
    assert not y[2].any()
    finite = np.isfinite(x).all(axis=1)
    want, terms = reference.matmul(read_by(device, op, x[finite], group_size), w)
    assert_close(y[finite], want, "long dot", terms)


@pytest.mark.parametrize(("op", "powers"), [("affine_matvec", (-28, 28)), ("affine_swiglu", (-18, 17))])
@pytest.mark.parametrize(("bits", "group_size", "kind"), [*SOME_FORMATS, (2, 32, "f16")])
def test_groups_of_all_sizes(device, rng, op, powers, bits, group_size, kind):
    """Each row has one group that is not zero, and is exact in proportion to the activations there."""
    sizes = 10.0 ** np.linspace(*powers, 29)
    others = ~np.eye(29, dtype=bool)
    weights = [random_weight(rng, (29, 29 * group_size), bits, group_size, kind) for _ in range(2)]
    for w in weights:
        w.scales[others], w.biases[others] = 0, 0
    x = random_rows(rng, 3, 29 * group_size) * np.repeat(sizes, group_size).astype(np.float32)
    x[1, 3 * group_size : 4 * group_size] = 0
    x[2, 1::2] = -x[2, ::2]
    if op == "affine_matvec":
        weights.pop()
    y = run_product(device, op, x, *weights)
    assert y[1, 3] == 0
    multiply = reference.matmul if op == "affine_matvec" else reference.swiglu
    want, terms = multiply(read_by(device, op, x, group_size), *weights)
    assert_close(y, want, "long dot", terms)


@pytest.mark.parametrize("op", ["affine_matvec", "affine_few_matmul", "affine_matmul"])
def test_nan_of_a_weight_stays_in_its_row(device, rng, op):
    w = random_weight(rng, (35, 192), 4, 64, "bf16")
    w.scales[33, 1] = np.nan
    w.biases[2, 0] = np.inf
    y = run_product(device, op, random_rows(rng, 3, 192), w)
    assert not np.isfinite(y[:, [2, 33]]).any()
    assert np.isfinite(np.delete(y, [2, 33], axis=1)).all()


@some_formats
def test_one_token_is_the_matvec(device, rng, bits, group_size, kind):
    """The bits of a row do not depend on how many others are computed, as long as they are few.

    Where a device has a kernel for few tokens, they may.
    """
    w = random_weight(rng, (21, 3 * group_size), bits, group_size, kind)
    x = random_rows(rng, 7, 3 * group_size)
    alone = run_product(device, "affine_matvec", x[:1], w)
    np.testing.assert_array_equal(ops.affine_matmul(x[:1], *w, device=device), alone)
    together = ops.affine_matmul(x, *w, device=device)
    if device.traits.few_tokens == 0:
        np.testing.assert_array_equal(together[:1], alone)
    else:
        np.testing.assert_array_equal(together, run_product(device, "affine_few_matmul", x, w))


@pytest.mark.spread
@settings(max_examples=30, deadline=None)
@given(
    tokens=st.integers(1, 40), out_dim=st.integers(1, 70), groups=st.integers(1, 5),
    form=st.sampled_from(FORMATS), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_shape(device, tokens, out_dim, groups, form, seed):
    rng = np.random.default_rng(seed)
    w = random_weight(rng, (out_dim, groups * form[1]), *form)
    x = random_rows(rng, tokens, groups * form[1])
    want, terms = reference.matmul(as_read(device, x, w.group_size), w)
    assert_close(ops.affine_matmul(x, *w, device=device), want, "long dot", terms)


# Experts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False], ids=["row per token", "row per choice"])
@formats
def test_experts_matvec(device, rng, shared, bits, group_size, kind):
    w = random_weight(rng, (5, 11, 3 * group_size), bits, group_size, kind)
    ids = np.array([[4, 0, 2], [3, 3, 1]], np.int32)
    x = random_rows(rng, 2, 3 * group_size) if shared else random_rows(rng, 2, 3, 3 * group_size)
    want, terms = reference.per_expert(reference.matmul, as_read(device, x, w.group_size), ids, w)
    assert_close(run_experts(device, "affine_experts_matvec", x, ids, w), want, "dot", terms)


@some_formats
def test_experts_swiglu(device, rng, bits, group_size, kind):
    gate, up = (random_weight(rng, (5, 9, 3 * group_size), bits, group_size, kind) for _ in range(2))
    ids = np.array([[4, 0], [1, 1], [2, 4]], np.int32)
    for x in (random_rows(rng, 3, 3 * group_size), random_rows(rng, 3, 2, 3 * group_size)):
        read = as_read(device, x, group_size)
        want, terms = reference.per_expert(reference.swiglu, read, ids, gate, up)
        assert_close(run_experts(device, "affine_experts_swiglu", x, ids, gate, up), want, "long dot", terms)


def test_many_experts_of_one_token(device, rng):
    w = random_weight(rng, (40, 10, 96), 4, 32, "bf16")
    ids = rng.permutation(40)[:19].astype(np.int32)[None]
    x = random_rows(rng, 1, 96)
    want, terms = reference.per_expert(reference.matmul, as_read(device, x, w.group_size), ids, w)
    assert_close(run_experts(device, "affine_experts_matvec", x, ids, w), want, "dot", terms)


def test_unknown_expert_gives_nan(device, rng):
    gate, up = (random_weight(rng, (3, 10, 64), 4, 64, "bf16") for _ in range(2))
    ids = np.array([[1, -1, 2, 3], [2**31 - 1, -(2**31), 0, 1]], np.int32)
    known = (ids >= 0) & (ids < 3)
    x = random_rows(rng, 2, 64)
    for op, stacks in (("affine_experts_matvec", [gate]), ("affine_experts_swiglu", [gate, up])):
        y = run_experts(device, op, x, ids, *stacks)
        assert np.isnan(y[~known]).all()
        assert np.isfinite(y[known]).all()


@pytest.mark.parametrize("op", ["affine_experts_matvec", "affine_experts_swiglu"])
@some_formats
def test_experts_by_slot(device, rng, op, bits, group_size, kind):
    """Expert 2 has no slot, expert 4 one that does not exist; the last id is no expert."""
    stacks = [random_weight(rng, (5, 11, 3 * group_size), bits, group_size, kind) for _ in range(2)]
    stacks = stacks[: 1 if op == "affine_experts_matvec" else 2]
    slots = np.array([6, 2, -1, 0, 7], np.int32)
    ids = np.array([[2, 3, 1], [4, 0, 2], [3, 5, -1]], np.int32)
    x = random_rows(rng, 3, 3 * group_size)
    y = run_experts(device, op, x, ids, *stacks, slots=slots, initial=7)
    found = np.isin(ids, [0, 1, 3])
    product = reference.matmul if len(stacks) == 1 else reference.swiglu
    read = as_read(device, x, group_size)
    want, terms = reference.per_expert(product, read, np.where(found, ids, 0), *stacks)
    assert_close(y[found], want[found], "dot" if len(stacks) == 1 else "long dot", terms[found])
    assert (y[ids == 2] == 7).all()
    assert np.isnan(y[~found & (ids != 2)]).all()
    resident = run_experts(device, op, x, ids, *stacks)
    np.testing.assert_array_equal(y[found], resident[found])


def test_slots_without_any_matrix(device, rng):
    w = random_weight(rng, (3, 11, 64), 4, 64, "bf16")
    x, ids = random_rows(rng, 2, 64), np.array([[0, 1], [2, 2]], np.int32)
    slots = np.array([-1, -(2**31), -7], np.int32)
    assert (run_experts(device, "affine_experts_matvec", x, ids, w, slots=slots, initial=3) == 3).all()
    offsets = np.array([0, 1, 1, 2], np.int32)
    assert (run_grouped(device, x, offsets, w, slots=slots, initial=3) == 3).all()


def test_experts_far_apart(device, rng, tmp_path):
    """Expert 2 of a sparse file starts past 2^32 words."""
    w = random_weight(rng, (3, 4, 64), 8, 32, "bf16")
    step = (1 << 31) + 8
    stack = np.memmap(tmp_path / "stack", np.uint32, "w+", shape=(2 * step + w.packed[0].size,))
    for e in range(3):
        stack[e * step : e * step + w.packed[e].size] = w.packed[e].ravel()
    ids, x = np.array([[2, 1, 0]], np.int32), random_rows(rng, 1, 64)
    y = device.empty((1, 3, 4))
    kernel = device.kernel("affine_experts_matvec_b8_bf16", {"by_slot": False})
    args = x, ids, stack, w.scales, w.biases, None, y, 1, 3, 1, 64, 4, 32, 3, 3, step, *strides(w)[1:]
    if device.name == "metal":
        with pytest.raises(DeviceError, match="packed: expected at most [0-9]+ bytes, the longest"):
            kernel(*args)
        return
    if device.traits.host_memory == "none" and device.memory.free < stack.nbytes:
        with pytest.raises(AllocationError, match="cannot allocate a buffer of 17"):
            kernel(*args)
        return
    kernel(*args)
    np.testing.assert_array_equal(y.numpy(), run_experts(device, "affine_experts_matvec", x, ids, w))


# Grouped ------------------------------------------------------------------------------------------


@formats
def test_grouped_matmul(device, rng, bits, group_size, kind):
    w = random_weight(rng, (4, 34, 2 * group_size), bits, group_size, kind)
    offsets = np.array([0, 0, 33, 34, 39], np.int32)
    x = random_rows(rng, 39, 2 * group_size)
    want, terms = reference.grouped_matmul(as_read(device, x, group_size), offsets, w)
    assert_close(run_grouped(device, x, offsets, w), want, "long dot", terms)


@formats
def test_grouped_swiglu(device, rng, bits, group_size, kind):
    """Also bit for bit what the products and `swiglu` give."""
    gate, up = (random_weight(rng, (4, 69, 2 * group_size), bits, group_size, kind) for _ in range(2))
    offsets = np.array([0, 0, 33, 34, 39], np.int32)
    x = random_rows(rng, 39, 2 * group_size)
    want, terms = reference.grouped_swiglu(as_read(device, x, group_size), offsets, gate, up)
    y = run_grouped(device, x, offsets, gate, up)
    assert_close(y, want, "long dot", terms)
    apart = ops.swiglu(*(run_grouped(device, x, offsets, w) for w in (gate, up)), device=device)
    assert_bucket(device, y, apart)


@some_formats
@pytest.mark.parametrize("count", [1, 2], ids=["matmul", "swiglu"])
@pytest.mark.parametrize("slots", [[6, -1, 2, 7, 0], [-1, -1, 4, -1, -1], [3, 4, -1, -1, 7]])
def test_grouped_by_slot(device, rng, bits, group_size, kind, count, slots):
    """Rows of experts without a slot stay as they are, those of a slot that does not exist are NaN."""
    stacks = [random_weight(rng, (5, 34, 2 * group_size), bits, group_size, kind) for _ in range(count)]
    product = reference.matmul if count == 1 else reference.swiglu
    offsets, slots = np.array([0, 3, 36, 69, 70, 75], np.int32), np.array(slots, np.int32)
    x = random_rows(rng, 75, 2 * group_size)
    y = run_grouped(device, x, offsets, *stacks, slots=slots, initial=7)
    want, terms = reference.per_bucket(product, as_read(device, x, group_size), offsets, *stacks)
    slot = np.repeat(slots, np.diff(offsets))
    found = (slot >= 0) & (slot < 7)
    assert_close(y[found], want[found], "long dot", terms[found])
    assert (y[slot < 0] == 7).all()
    assert np.isnan(y[slot == 7]).all()
    np.testing.assert_array_equal(y[found], run_grouped(device, x, offsets, *stacks)[found])


@pytest.mark.spread
@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.sampled_from([0, 0, 1, 2, 31, 32, 33, 64, 65]), min_size=1, max_size=9).filter(any))
def test_any_buckets(device, sizes):
    """Every row meets its own expert, bit for bit what the plain product of its bucket gives."""
    rng = np.random.default_rng(sum(sizes))
    w, up = (random_weight(rng, (len(sizes), 3, 32), 4, 32, "f32") for _ in range(2))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    x = random_rows(rng, offsets[-1], 32)
    y = ops.affine_grouped_matmul(x, offsets, *w, device=device)
    gated = ops.affine_grouped_swiglu(x, offsets, w, up, device=device)
    for e, (a, b) in enumerate(pairwise(offsets)):
        if b > a:
            own, plain = reference.expert(w, e), plain_product(device, "affine", b - a)
            np.testing.assert_array_equal(y[a:b], run_product(device, plain, x[a:b], own))
            both, plain = (own, reference.expert(up, e)), plain_product(device, "affine", b - a, gated=True)
            np.testing.assert_array_equal(gated[a:b], run_product(device, plain, x[a:b], *both))


@pytest.mark.parametrize("experts", [67, 129, 600])
def test_many_buckets(device, rng, experts):
    """Most have no rows, and some have more than a tile; tables that are wrong are harmless."""
    sizes = np.zeros(experts, int)
    sizes[[0, 7, 8, 63, 64, experts // 2 + 1, experts - 1]] = [1, 65, 2, 33, 1, 130, 3]
    w = random_weight(rng, (experts, 3, 32), 4, 32, "f32")
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    x = random_rows(rng, offsets[-1], 32)
    want, terms = reference.grouped_matmul(as_read(device, x, 32), offsets, w)
    assert_close(run_grouped(device, x, offsets, w), want, "long dot", terms)
    for table in (offsets[::-1], offsets - 5, np.full(experts + 1, 2**31 - 1, np.int32)):
        run_grouped(device, x, np.ascontiguousarray(table), w)


def test_nan_stays_in_its_bucket(device, rng):
    w = random_weight(rng, (3, 34, 64), 4, 32, "bf16")
    w.scales[1, 5] = np.nan
    offsets = np.array([0, 10, 22, 50], np.int32)
    x = random_rows(rng, 50, 64)
    x[3, 1] = np.nan
    y = run_grouped(device, x, offsets, w)
    bad = np.zeros(y.shape, bool)
    bad[3] = True
    bad[10:22, 5] = True
    np.testing.assert_array_equal(np.isnan(y), bad)


def test_wrong_offsets_are_harmless(device, rng):
    """The kernel never leaves its buffers, whatever the table says."""
    w = random_weight(rng, (3, 6, 64), 4, 32, "bf16")
    x = random_rows(rng, 40, 64)
    for table in ([0, 5, 10, 2**31 - 1], [-7, 5, 20, 40], [30, 20, 10, 0], [0, 0, 0, 0]):
        for stacks in ((w,), (w, w)):
            run_grouped(device, x, np.array(table, np.int32), *stacks)
            slots = np.array([5, -1, 2**31 - 1], np.int32)
            run_grouped(device, x, np.array(table, np.int32), *stacks, slots=slots)


# Embedding ----------------------------------------------------------------------------------------


@formats
def test_embed(device, rng, bits, group_size, kind):
    table = random_weight(rng, (17, 3 * group_size), bits, group_size, kind)
    ids = np.array([16, 0, 5, 5], np.int32)
    assert_close(run_embed(device, ids, table), reference.dequantize(table)[ids], "elementwise")


def test_embed_of_an_unknown_token_is_nan(device, rng):
    table = random_weight(rng, (17, 4096), 4, 64, "bf16")
    ids = np.array([-1, 16, 17, 2**31 - 1, -(2**31)], np.int32)
    y = run_embed(device, ids, table)
    assert np.isnan(y[[0, 2, 3, 4]]).all()
    assert_close(y[1], reference.dequantize(table)[16], "elementwise")


def test_embed_of_a_mapped_vocabulary(device, rng, tmp_path):
    """248320 rows of 18432 8-bit values: a sparse file, its last row past 2^32 bytes."""
    vocab, hidden = 248320, 18432
    ids = np.array([0, 123456, vocab - 1])
    some = random_weight(rng, (3, hidden), 8, 128, "bf16")
    packed = np.memmap(tmp_path / "packed", np.uint32, "w+", shape=(vocab, hidden // 4))
    groups = [
        np.memmap(tmp_path / part, np.uint16, "w+", shape=(vocab, hidden // 128))
        for part in ("scales", "biases")
    ]
    packed[ids] = some.packed
    for array, part in zip(groups, (some.scales, some.biases)):
        array[ids] = part.view(np.uint16)
    table = device.map(tmp_path / "packed", dtype="uint32", shape=packed.shape)
    scales, biases = (
        device.map(tmp_path / part, dtype="bfloat16", shape=groups[0].shape) for part in ("scales", "biases")
    )
    y = ops.affine_embed(ids, table, scales, biases, 8, 128, device=device)
    assert_close(y, reference.dequantize(some), "elementwise")


# Operations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 7, 8, 33])
def test_operations_choose_their_kernel(device, rng, tokens):
    gate, up = (random_weight(rng, (3, 12, 96), 4, 32, "bf16") for _ in range(2))
    x = random_rows(rng, tokens, 96)
    g, u = (reference.expert(w, 1) for w in (gate, up))
    product = chosen(device, tokens, "affine_matvec", "affine_few_matmul", "affine_matmul")
    swiglu = chosen(device, tokens, "affine_swiglu", "affine_few_swiglu", "affine_swiglu_matmul")
    np.testing.assert_array_equal(ops.affine_matmul(x, *g, device=device), run_product(device, product, x, g))
    np.testing.assert_array_equal(
        ops.affine_swiglu(x, g, u, device=device), run_product(device, swiglu, x, g, u)
    )
    ids = rng.integers(0, 3, (tokens, 2))
    read = as_read(device, x, 32)
    want, terms = reference.per_expert(reference.matmul, read, ids, gate)
    assert_close(ops.affine_experts_matmul(x, ids, *gate, device=device), want, "dot", terms)
    want, terms = reference.per_expert(reference.swiglu, read, ids, gate, up)
    assert_close(ops.affine_experts_swiglu(x, ids, gate, up, device=device), want, "long dot", terms)


def test_quantized_product(device, rng):
    """The whole way: quantise, multiply, and compare with what was quantised."""
    w, x = random_rows(rng, 14, 192), random_rows(rng, 3, 192)
    for bits in BITS:
        packed, scales, biases = ops.affine_quantize(w, bits, 32)
        step = np.abs(scales.astype(np.float64)).max()
        error = ops.affine_matmul(x, packed, scales, biases, bits, 32, device=device) - x @ w.T
        assert np.abs(error).max() < 0.6 * step * np.abs(x).sum(axis=1).max()


def test_checked(checked, rng):
    """One launch of each kernel under the checker: bounds, barriers, unwritten memory and races."""
    for bits, group_size, kind in ((4, 64, "bf16"), (3, 32, "f16")):
        gate, up = (random_weight(rng, (3, 35, 2 * group_size), bits, group_size, kind) for _ in range(2))
        x = random_rows(rng, 33, 2 * group_size)
        g, u = (reference.expert(w, 1) for w in (gate, up))
        run_product(checked, "affine_matvec", x[:2], g)
        run_product(checked, "affine_swiglu", x[:2], g, u)
        run_product(checked, "affine_matmul", x, g)
        run_product(checked, "affine_swiglu_matmul", x, g, u)
        run_grouped(checked, x, np.array([0, 1, 1, 33], np.int32), gate)
        run_grouped(checked, x, np.array([0, 1, 1, 33], np.int32), gate, up)
        run_embed(checked, np.array([34, -1], np.int32), g)
        ids = np.array([[2, 5], [0, -1]], np.int32)
        run_experts(checked, "affine_experts_matvec", x[:2], ids, gate)
        run_experts(checked, "affine_experts_swiglu", x[:2], ids, gate, up)
        slots = np.array([-1, 6, 0], np.int32)
        run_grouped(checked, x, np.array([0, 1, 20, 33], np.int32), gate, slots=slots)
        run_grouped(checked, x, np.array([0, 1, 20, 33], np.int32), gate, up, slots=slots)
        run_experts(checked, "affine_experts_matvec", x[:2], ids, gate, slots=slots)
        run_experts(checked, "affine_experts_swiglu", x[:2], ids, gate, up, slots=slots)


def test_arguments_are_checked(device, rng):
    w = random_weight(rng, (6, 64), 4, 32, "bf16")
    stack = random_weight(rng, (2, 6, 64), 4, 32, "bf16")
    x = random_rows(rng, 3, 64)
    other = random_weight(rng, (6, 64), 8, 32, "bf16")
    wide = random_weight(rng, (2, 6, 64), 8, 32, "bf16")
    wrong = [
        ("x: expected shape", lambda: ops.affine_matmul(x[:, :32], *w, device=device)),
        ("x: expected float32", lambda: ops.affine_matmul(x.astype(np.float64), *w, device=device)),
        ("x: expected at least one row", lambda: ops.affine_matmul(x[:0], *w, device=device)),
        ("bits: expected", lambda: ops.affine_matmul(x, *w[:3], 7, 32, device=device)),
        ("group_size: expected", lambda: ops.affine_matmul(x, *w[:3], 4, 16, device=device)),
        ("packed: expected uint32", lambda: ops.affine_matmul(x, w[0].view(np.int32), *w[1:], device=device)),
        ("packed: expected rows of", lambda: ops.affine_matmul(x, w[0][:, :7], *w[1:], device=device)),
        ("scales: expected shape", lambda: ops.affine_matmul(x, w[0], w[1][:, :1], *w[2:], device=device)),
        ("scales: expected float32,", lambda: ops.affine_matmul(x, w[0], w[0], *w[2:], device=device)),
        (
            "biases: expected bfloat16",
            lambda: ops.affine_matmul(x, *w[:2], np.float32(w[2]), 4, 32, device=device),
        ),
        ("up: expected the format of gate", lambda: ops.affine_swiglu(x, w, other, device=device)),
        ("gate: expected \\(packed", lambda: ops.affine_swiglu(x, w[:3], w, device=device)),
        ("ids: expected 0 to 5, got 6", lambda: ops.affine_embed([6], *w, device=device)),
        ("ids: expected 0 to 5, got -1", lambda: ops.affine_embed([0, -1], *w, device=device)),
        ("ids: expected integers", lambda: ops.affine_embed([0.5], *w, device=device)),
        (
            "ids: expected 0 to 1, got 2",
            lambda: ops.affine_experts_matmul(x, [[0], [1], [2]], *stack, device=device),
        ),
        ("ids: expected 32-bit", lambda: ops.affine_embed([2**40], *w, device=device)),
        ("x: expected shape \\[1,", lambda: ops.affine_experts_matmul(x, [[0]], *stack, device=device)),
        ("offsets: expected shape", lambda: ops.affine_grouped_matmul(x, [0, 3], *stack, device=device)),
        ("offsets: expected an", lambda: ops.affine_grouped_matmul(x, [0, 4, 3], *stack, device=device)),
        ("offsets: expected an", lambda: ops.affine_grouped_matmul(x, [0, 1, 2], *stack, device=device)),
        (
            "affine_grouped_swiglu: offsets: expected an",
            lambda: ops.affine_grouped_swiglu(x, [0, 1, 2], stack, stack, device=device),
        ),
        (
            "affine_grouped_swiglu: up: expected the format of gate",
            lambda: ops.affine_grouped_swiglu(x, [0, 1, 3], stack, wide, device=device),
        ),
    ]
    for message, call in wrong:
        with pytest.raises(ArgumentError, match=message):
            call()


def test_kernel_states_what_it_requires(device, rng):
    w = random_weight(rng, (6, 64), 4, 32, "bf16")
    x, y = random_rows(rng, 3, 64), device.empty((3, 6))
    kernel = device.kernel("affine_matvec_b4_bf16")
    for sizes, message in (
        ((3, 64, 6, 16), "requires group_size"),
        ((3, 64, 6, 128), "requires in % group_size == 0"),
        ((3, 0, 6, 32), "requires in > 0"),
        ((4, 64, 6, 32), "x: expected at least 256"),
        ((3, 64, 7, 32), "packed: expected at least"),
    ):
        with pytest.raises(ArgumentError, match=message):
            kernel(x, *w[:3], y, *sizes)
