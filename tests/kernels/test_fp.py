"""Products with weights of small floats against float64 references.

The weights are random bytes, so every code occurs, NaN of E4M3 left out. References are of the activations as
the device reads them. What these tests cannot catch: speed.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.harness import Out, assert_bucket, assert_close, chosen, in_slots, plain_product, run_kernel
from pyturbo import ops
from pyturbo.errors import ArgumentError
from reference import fp as reference
from reference.activations import as_read
from reference.fp import GROUPS, Weight

MODES = list(GROUPS)
modes = pytest.mark.parametrize("mode", MODES)
#: Each mode, and the one that may have a global scale with one.
FORMS = [(mode, False) for mode in MODES] + [("nvfp4", True)]
forms = pytest.mark.parametrize(("mode", "scaled"), FORMS, ids=[*MODES, "nvfp4 global"])


def random_weight(rng, shape, mode, scaled=False):
    """A quantised array of values around 1; `shape` ends with (out, in)."""
    *lead, width = shape
    bits = 8 if mode == "mxfp8" else 4
    stream = rng.integers(0, 256, (*lead, width * bits // 8), np.uint8)
    if mode == "mxfp8":  # from 2^-9 to 448: those past 1 would drown the others
        stream = np.where(stream & 0x7F == 0x7F, 0, stream)
    groups = (*lead, width // GROUPS[mode])
    low, high = {"mxfp4": (122, 128), "mxfp8": (115, 121), "nvfp4": (0x18, 0x40)}[mode]
    scales = rng.integers(low, high, groups).astype(np.uint8)
    global_scale = None
    if scaled:
        global_scale = rng.uniform(1000, 5000, lead[:-1] or (1,)).astype(np.float32)
    return Weight(stream.view(np.uint32), scales, mode, global_scale)


def random_rows(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def read_by(device, x, mode, op="fp_matmul"):
    """x as the device reads it: beside E4M3 codes and where tokens are few as it is, in any precision."""
    exact = mode == "mxfp8" or "few" in op  # these have no bodies for processors
    return x.astype(np.float64) if exact else as_read(device, x, GROUPS[mode])


def width(w):
    return w.packed.shape[-1] * (4 if w.mode == "mxfp8" else 8)


def arrays(w):
    return w.packed, w.scales, w.global_scale


def constants(w):
    return {"has_global_scale": w.global_scale is not None}


def run_product(device, op, x, *weights):
    """A product with one weight, or with a gate and an up, between guard bytes."""
    w, (tokens, in_dim) = weights[0], x.shape
    out_dim = w.packed.shape[-2]
    memory = (array for weight in weights for array in arrays(weight))
    args = x, *memory, Out((tokens, out_dim)), tokens, in_dim, out_dim
    return run_kernel(device, f"{op}_{w.mode}", *args, constants=constants(w))[0]


def stacks_in_slots(stacks, slots):
    """The arrays of stacks, as they are or in their slots of 7, the number of matrices, and the strides."""
    if slots is None:
        w, memory = stacks[0], [array for stack in stacks for array in arrays(stack)]
        return memory, len(w.packed), w.packed[0].size, w.scales[0].size, 1
    placed = [
        (in_slots(w.packed, slots, 7, 8), in_slots(w.scales, slots, 7, 12), global_in_slots(w, slots))
        for w in stacks
    ]
    return [memory for stack in placed for memory, _ in stack], 7, *(stride for _, stride in placed[0])


def global_in_slots(w, slots):
    return (None, 1) if w.global_scale is None else in_slots(w.global_scale, slots, 7, 3)


def run_experts(device, x, ids, *stacks, slots=None, initial=None):
    """fp_experts_matvec, or with a gate and an up fp_experts_swiglu."""
    op = "fp_experts_matvec" if len(stacks) == 1 else "fp_experts_swiglu"
    w = stacks[0]
    experts, out_dim, _ = w.packed.shape
    memory, *matrices = stacks_in_slots(stacks, slots)
    x_rows = 1 if x.ndim == 2 else ids.shape[1]
    sizes = *ids.shape, x_rows, x.shape[-1], out_dim, experts, *matrices
    args = x, ids, *memory, slots, Out((*ids.shape, out_dim), initial=initial), *sizes
    chosen = {"by_slot": slots is not None, **constants(w)}
    return run_kernel(device, f"{op}_{w.mode}", *args, constants=chosen)[0]


def run_grouped(device, x, offsets, *stacks, slots=None, initial=None):
    """fp_grouped_matmul, or with a gate and an up fp_grouped_swiglu."""
    op = "fp_grouped_matmul" if len(stacks) == 1 else "fp_grouped_swiglu"
    w = stacks[0]
    out_dim = w.packed.shape[-2]
    memory, *matrices = stacks_in_slots(stacks, slots)
    sizes = *x.shape, out_dim, len(w.packed), *matrices
    args = x, offsets, *memory, slots, Out((len(x), out_dim), initial=initial), *sizes
    chosen = {"by_slot": slots is not None, **constants(w)}
    return run_kernel(device, f"{op}_{w.mode}", *args, constants=chosen)[0]


def run_embed(device, ids, table):
    vocab, hidden = len(table.packed), width(table)
    args = ids, *arrays(table), Out((len(ids), hidden)), len(ids), vocab, hidden
    return run_kernel(device, f"fp_embed_{table.mode}", *args, constants=constants(table))[0]


# Formats ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_every_code_and_scale(device, mode):
    """A table whose rows have each scale there is, and in every row every code."""
    columns = 256 if mode == "mxfp8" else 32
    codes = np.arange(columns).astype(np.uint8)
    stream = codes if mode == "mxfp8" else (codes[::2] & 15) | (codes[1::2] & 15) << 4
    packed = np.ascontiguousarray(np.broadcast_to(stream, (256, stream.size))).view(np.uint32)
    scales = np.repeat(np.arange(256, dtype=np.uint8)[:, None], columns // GROUPS[mode], 1)
    table = Weight(packed, scales, mode)
    want = reference.dequantize(table)
    got = run_embed(device, np.arange(256, dtype=np.int32), table)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    normal = np.abs(want) >= np.finfo(np.float32).tiny
    np.testing.assert_array_equal(got[normal & ~(np.abs(want) > 3e38)], want[normal & ~(np.abs(want) > 3e38)])
    assert_close(np.where(np.abs(want) > 3e38, 0, got), np.where(np.abs(want) > 3e38, 0, want), "elementwise")


# Products -----------------------------------------------------------------------------------------


@forms
def test_matvec(device, rng, mode, scaled):
    w = random_weight(rng, (13, 160), mode, scaled)
    x = random_rows(rng, 3, 160)
    want, terms = reference.matmul(read_by(device, x, mode), w)
    assert_close(run_product(device, "fp_matvec", x, w), want, "dot", terms)


@forms
def test_matmul(device, rng, mode, scaled):
    w = random_weight(rng, (45, 96), mode, scaled)
    x = random_rows(rng, 37, 96)
    want, terms = reference.matmul(read_by(device, x, mode), w)
    assert_close(run_product(device, "fp_matmul", x, w), want, "long dot", terms)


@forms
def test_few(device, rng, mode, scaled):
    w = random_weight(rng, (45, 160), mode, scaled)
    x = random_rows(rng, 11, 160)
    want, terms = reference.matmul(x.astype(np.float64), w)
    assert_close(run_product(device, "fp_few_matmul", x, w), want, "long dot", terms)


@pytest.mark.parametrize(
    ("op", "tokens"), [("fp_swiglu", 3), ("fp_few_swiglu", 13), ("fp_swiglu_matmul", 37)]
)
@forms
def test_swiglu(device, rng, mode, scaled, op, tokens):
    gate, up = (random_weight(rng, (69, 160), mode, scaled) for _ in range(2))
    x = random_rows(rng, tokens, 160)
    want, terms = reference.swiglu(read_by(device, x, mode, op), gate, up)
    assert_close(run_product(device, op, x, gate, up), want, "long dot", terms)


@forms
def test_swiglu_of_one_token_has_the_bits_of_the_products(device, rng, mode, scaled):
    gate, up = (random_weight(rng, (21, 96), mode, scaled) for _ in range(2))
    x = random_rows(rng, 1, 96)
    apart = ops.swiglu(*(run_product(device, "fp_matvec", x, w) for w in (gate, up)), device=device)
    assert_bucket(device, ops.fp_swiglu(x, gate, up, device=device), apart)


@pytest.mark.parametrize("in_dim", [2880, 4096, 7168])
@pytest.mark.parametrize(
    ("op", "tokens", "out_dim"), [("fp_matvec", 1, 9), ("fp_few_matmul", 3, 5), ("fp_matmul", 10, 7)]
)
@modes
def test_width_of_a_model(device, rng, mode, op, tokens, out_dim, in_dim):
    w = random_weight(rng, (out_dim, in_dim), mode)
    x = np.abs(random_rows(rng, tokens, in_dim))  # sums that grow
    want, terms = reference.matmul(read_by(device, x, mode, op), w)
    assert_close(run_product(device, op, x, w), want, "dot" if tokens == 1 else "long dot", terms)


@pytest.mark.parametrize("op", ["fp_matvec", "fp_few_matmul", "fp_matmul"])
@modes
def test_extreme_rows_stay_apart(device, rng, op, mode):
    """NaN and inf fill their own token and nothing else; huge, tiny and zero rows are exact in proportion."""
    w = random_weight(rng, (11, 96), mode)
    x = random_rows(rng, 34, 96)
    x[0] *= 1e30
    x[1] *= 1e-30
    x[2] = 0
    x[5, 7] = np.nan
    x[33, -1] = np.inf
    y = run_product(device, op, x, w)
    assert np.isnan(y[5]).all()
    assert not y[2].any()
    finite = np.isfinite(x).all(axis=1)
    want, terms = reference.matmul(read_by(device, x[finite], mode, op), w)
    assert_close(y[finite], want, "long dot", terms)


@pytest.mark.parametrize("op", ["fp_matvec", "fp_few_matmul", "fp_matmul"])
@modes
def test_nan_of_a_weight_stays_in_its_row(device, rng, op, mode):
    w = random_weight(rng, (35, 192), mode)
    w.scales[33, 1] = 0x7F if mode == "nvfp4" else 0xFF
    bad = [33]
    if mode == "mxfp8":
        w.packed[2, 5] = 0xFF000000
        bad = [2, 33]
    y = run_product(device, op, random_rows(rng, 3, 192), w)
    assert np.isnan(y[:, bad]).all()
    assert np.isfinite(np.delete(y, bad, axis=1)).all()


@modes
def test_one_token_is_the_matvec(device, rng, mode):
    """The bits of a row do not depend on how many others are computed, as long as they are few.

    Where a device has a kernel for few tokens, they may.
    """
    w = random_weight(rng, (21, 96), mode)
    x = random_rows(rng, 7, 96)
    alone = run_product(device, "fp_matvec", x[:1], w)
    np.testing.assert_array_equal(ops.fp_matmul(x[:1], *w, device=device), alone)
    together = ops.fp_matmul(x, *w, device=device)
    if device.traits.few_tokens == 0:
        np.testing.assert_array_equal(together[:1], alone)
    else:
        np.testing.assert_array_equal(together, run_product(device, "fp_few_matmul", x, w))


@pytest.mark.spread
@settings(max_examples=30, deadline=None)
@given(
    tokens=st.integers(1, 40), out_dim=st.integers(1, 70), units=st.integers(1, 9),
    form=st.sampled_from(FORMS), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_shape(device, tokens, out_dim, units, form, seed):
    rng = np.random.default_rng(seed)
    w = random_weight(rng, (out_dim, units * 32), *form)
    x = random_rows(rng, tokens, units * 32)
    want, terms = reference.matmul(read_by(device, x, w.mode), w)
    assert_close(ops.fp_matmul(x, *w, device=device), want, "long dot", terms)


# Experts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False], ids=["row per token", "row per choice"])
@forms
def test_experts_matvec(device, rng, shared, mode, scaled):
    w = random_weight(rng, (5, 11, 96), mode, scaled)
    ids = np.array([[4, 0, 2], [3, 3, 1]], np.int32)
    x = random_rows(rng, 2, 96) if shared else random_rows(rng, 2, 3, 96)
    want, terms = reference.per_expert(reference.matmul, read_by(device, x, mode), ids, w)
    assert_close(run_experts(device, x, ids, w), want, "dot", terms)


@pytest.mark.parametrize("shared", [True, False], ids=["row per token", "row per choice"])
@forms
def test_experts_swiglu(device, rng, shared, mode, scaled):
    gate, up = (random_weight(rng, (5, 11, 96), mode, scaled) for _ in range(2))
    ids = np.array([[4, 0, 2], [3, 3, 1]], np.int32)
    x = random_rows(rng, 2, 96) if shared else random_rows(rng, 2, 3, 96)
    want, terms = reference.per_expert(reference.swiglu, read_by(device, x, mode), ids, gate, up)
    assert_close(run_experts(device, x, ids, gate, up), want, "long dot", terms)


@pytest.mark.parametrize("count", [1, 2], ids=["matvec", "swiglu"])
@modes
def test_unknown_expert_gives_nan(device, rng, mode, count):
    weights = [random_weight(rng, (3, 10, 64), mode) for _ in range(count)]
    ids = np.array([[1, -1, 2, 3], [2**31 - 1, -(2**31), 0, 1]], np.int32)
    known = (ids >= 0) & (ids < 3)
    y = run_experts(device, random_rows(rng, 2, 64), ids, *weights)
    assert np.isnan(y[~known]).all()
    assert np.isfinite(y[known]).all()


@pytest.mark.parametrize("count", [1, 2], ids=["matvec", "swiglu"])
@forms
def test_experts_by_slot(device, rng, mode, scaled, count):
    """Expert 2 has no slot, expert 4 one that does not exist; the last id is no expert."""
    stacks = [random_weight(rng, (5, 11, 96), mode, scaled) for _ in range(count)]
    product = reference.matmul if count == 1 else reference.swiglu
    slots = np.array([6, 2, -1, 0, 7], np.int32)
    ids = np.array([[2, 3, 1], [4, 0, 2], [3, 5, -1]], np.int32)
    x = random_rows(rng, 3, 96)
    y = run_experts(device, x, ids, *stacks, slots=slots, initial=7)
    found = np.isin(ids, [0, 1, 3])
    known = np.where(found, ids, 0)
    want, terms = reference.per_expert(product, read_by(device, x, mode), known, *stacks)
    assert_close(y[found], want[found], "dot" if count == 1 else "long dot", terms[found])
    assert (y[ids == 2] == 7).all()
    assert np.isnan(y[~found & (ids != 2)]).all()
    np.testing.assert_array_equal(y[found], run_experts(device, x, ids, *stacks)[found])


@forms
@pytest.mark.parametrize("count", [1, 2], ids=["matmul", "swiglu"])
@pytest.mark.parametrize("slots", [[6, -1, 2, 7, 0], [-1, -1, 4, -1, -1]])
def test_grouped_by_slot(device, rng, mode, scaled, count, slots):
    """Rows of experts without a slot stay as they are, those of a slot that does not exist are NaN."""
    stacks = [random_weight(rng, (5, 34, 64), mode, scaled) for _ in range(count)]
    grouped = reference.grouped_matmul if count == 1 else reference.grouped_swiglu
    offsets, slots = np.array([0, 3, 36, 69, 70, 75], np.int32), np.array(slots, np.int32)
    x = random_rows(rng, 75, 64)
    y = run_grouped(device, x, offsets, *stacks, slots=slots, initial=7)
    want, terms = grouped(read_by(device, x, mode), offsets, *stacks)
    slot = np.repeat(slots, np.diff(offsets))
    found = (slot >= 0) & (slot < 7)
    assert_close(y[found], want[found], "long dot", terms[found])
    assert (y[slot < 0] == 7).all()
    assert np.isnan(y[slot == 7]).all()
    np.testing.assert_array_equal(y[found], run_grouped(device, x, offsets, *stacks)[found])


@forms
def test_grouped_matmul(device, rng, mode, scaled):
    w = random_weight(rng, (4, 34, 64), mode, scaled)
    offsets = np.array([0, 0, 33, 34, 39], np.int32)
    x = random_rows(rng, 39, 64)
    want, terms = reference.grouped_matmul(read_by(device, x, mode), offsets, w)
    assert_close(run_grouped(device, x, offsets, w), want, "long dot", terms)


@forms
def test_grouped_swiglu(device, rng, mode, scaled):
    """Also bit for bit what the products and `swiglu` give."""
    gate, up = (random_weight(rng, (4, 69, 64), mode, scaled) for _ in range(2))
    offsets = np.array([0, 0, 33, 34, 39], np.int32)
    x = random_rows(rng, 39, 64)
    want, terms = reference.grouped_swiglu(read_by(device, x, mode), offsets, gate, up)
    y = ops.fp_grouped_swiglu(x, offsets, gate, up, device=device)
    np.testing.assert_array_equal(y, run_grouped(device, x, offsets, gate, up))
    assert_close(y, want, "long dot", terms)
    apart = ops.swiglu(*(run_grouped(device, x, offsets, w) for w in (gate, up)), device=device)
    assert_bucket(device, y, apart)


@modes
def test_buckets_are_plain_products(device, rng, mode):
    """Every row meets its own expert, bit for bit what the plain product of its bucket gives."""
    w = random_weight(rng, (5, 3, 32), mode)
    offsets = np.concatenate([[0], np.cumsum([2, 0, 33, 1, 32])]).astype(np.int32)
    x = random_rows(rng, offsets[-1], 32)
    y = ops.fp_grouped_matmul(x, offsets, *w, device=device)
    for e, (a, b) in enumerate(pairwise(offsets)):
        if b > a:
            alone = run_product(device, plain_product(device, "fp", b - a), x[a:b], reference.expert(w, e))
            assert_bucket(device, y[a:b], alone)


def test_wrong_offsets_are_harmless(device, rng):
    """The kernel never leaves its buffers, whatever the table says."""
    w = random_weight(rng, (3, 6, 64), "mxfp4")
    x = random_rows(rng, 40, 64)
    for table in ([0, 5, 10, 2**31 - 1], [-7, 5, 20, 40], [30, 20, 10, 0], [0, 0, 0, 0]):
        for stacks in ((w,), (w, w)):
            run_grouped(device, x, np.array(table, np.int32), *stacks)
            slots = np.array([5, -1, 2**31 - 1], np.int32)
            run_grouped(device, x, np.array(table, np.int32), *stacks, slots=slots)


# Embedding ----------------------------------------------------------------------------------------


@forms
def test_embed(device, rng, mode, scaled):
    table = random_weight(rng, (17, 96), mode, scaled)
    ids = np.array([16, 0, 5, 5], np.int32)
    assert_close(run_embed(device, ids, table), reference.dequantize(table)[ids], "elementwise")


def test_embed_of_an_unknown_token_is_nan(device, rng):
    table = random_weight(rng, (17, 4096), "nvfp4")
    ids = np.array([-1, 16, 17, 2**31 - 1, -(2**31)], np.int32)
    y = run_embed(device, ids, table)
    assert np.isnan(y[[0, 2, 3, 4]]).all()
    assert_close(y[1], reference.dequantize(table)[16], "elementwise")


# Operations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 7, 8, 33])
@forms
def test_operations_choose_their_kernel(device, rng, mode, scaled, tokens):
    stack, other = (random_weight(rng, (3, 12, 96), mode, scaled) for _ in range(2))
    w, up = (reference.expert(one, 1) for one in (stack, other))
    x = random_rows(rng, tokens, 96)
    np.testing.assert_array_equal(
        ops.fp_matmul(x, *w, device=device),
        run_product(device, chosen(device, tokens, "fp_matvec", "fp_few_matmul", "fp_matmul"), x, w),
    )
    swiglu = chosen(device, tokens, "fp_swiglu", "fp_few_swiglu", "fp_swiglu_matmul")
    np.testing.assert_array_equal(
        ops.fp_swiglu(x, w, up, device=device), run_product(device, swiglu, x, w, up)
    )
    ids = rng.integers(0, 3, (tokens, 2)).astype(np.int32)
    want, terms = reference.per_expert(reference.matmul, read_by(device, x, mode), ids, stack)
    assert_close(ops.fp_experts_matmul(x, ids, *stack, device=device), want, "dot", terms)
    np.testing.assert_array_equal(
        ops.fp_experts_swiglu(x, ids, stack, other, device=device), run_experts(device, x, ids, stack, other)
    )
    np.testing.assert_array_equal(
        ops.fp_embed([3, 11], *w, device=device), run_embed(device, np.array([3, 11], np.int32), w)
    )


@modes
def test_quantized_product(device, rng, mode):
    """The whole way: quantise, multiply, and compare with the values that were left of the weight."""
    w, x = random_rows(rng, 14, 192), random_rows(rng, 3, 192)
    packed, scales = ops.fp_quantize(w, mode)
    left = ops.fp_dequantize(packed, scales, mode)
    assert np.abs(left - w).max() <= np.abs(w).max() * (1 / 16 if mode == "mxfp8" else 1 / 3)
    error = ops.fp_matmul(x, packed, scales, mode, device=device) - x @ left.T
    assert np.abs(error).max() < 1e-5 * np.abs(x).sum(axis=1).max()


def test_checked(checked, rng):
    """One launch of each kernel under the checker: bounds, barriers, unwritten memory and races."""
    for mode, scaled in FORMS:
        stack, up = (random_weight(rng, (3, 35, 64), mode, scaled) for _ in range(2))
        x = random_rows(rng, 33, 64)
        w = reference.expert(stack, 1)
        run_product(checked, "fp_matvec", x[:2], w)
        run_product(checked, "fp_matmul", x, w)
        run_product(checked, "fp_swiglu", x[:2], w, reference.expert(up, 1))
        run_product(checked, "fp_swiglu_matmul", x, w, reference.expert(up, 1))
        run_grouped(checked, x, np.array([0, 1, 1, 33], np.int32), stack)
        run_grouped(checked, x, np.array([0, 1, 1, 33], np.int32), stack, up)
        run_embed(checked, np.array([34, -1], np.int32), w)
        ids, slots = np.array([[2, 5], [0, -1]], np.int32), np.array([-1, 6, 0], np.int32)
        run_experts(checked, x[:2], ids, stack)
        run_experts(checked, x[:2], ids, stack, slots=slots)
        run_experts(checked, x[:2], ids, stack, up, slots=slots)
        run_grouped(checked, x, np.array([0, 1, 20, 33], np.int32), stack, slots=slots)
        run_grouped(checked, x, np.array([0, 1, 20, 33], np.int32), stack, up, slots=slots)


def test_arguments_are_checked(device, rng):
    w = random_weight(rng, (6, 64), "mxfp4")
    stack = random_weight(rng, (2, 6, 64), "nvfp4", scaled=True)
    x = random_rows(rng, 3, 64)
    packed, scales, mode, _ = w
    wrong = [
        ("x: expected shape", lambda: ops.fp_matmul(x[:, :32], *w, device=device)),
        ("x: expected float32", lambda: ops.fp_matmul(x.astype(np.float64), *w, device=device)),
        ("x: expected at least one row", lambda: ops.fp_matmul(x[:0], *w, device=device)),
        (
            "fp_matmul: mode: expected one of mxfp4, mxfp8, nvfp4, got 'fp4'",
            lambda: ops.fp_matmul(x, packed, scales, "fp4", device=device),
        ),
        (
            "packed: expected uint32",
            lambda: ops.fp_matmul(x, packed.view(np.int32), scales, mode, device=device),
        ),
        ("packed: expected rows of", lambda: ops.fp_matmul(x, packed[:, :7], scales, mode, device=device)),
        ("scales: expected shape", lambda: ops.fp_matmul(x, packed, scales[:, :1], mode, device=device)),
        (
            "scales: expected uint8",
            lambda: ops.fp_matmul(x, packed, scales.astype(np.float32), mode, device=device),
        ),
        (
            "global_scale: expected None for mxfp4",
            lambda: ops.fp_matmul(x, packed, scales, mode, 1.0, device=device),
        ),
        (
            "global_scale: expected 2 float32, got float32 of shape \\[3\\]",
            lambda: ops.fp_experts_matmul(
                x, [[0], [1], [1]], *stack[:3], np.ones(3, np.float32), device=device
            ),
        ),
        ("ids: expected 0 to 5, got 6", lambda: ops.fp_embed([6], *w, device=device)),
        (
            "ids: expected 0 to 1, got 2",
            lambda: ops.fp_experts_matmul(x, [[0], [1], [2]], *stack, device=device),
        ),
        ("offsets: expected shape", lambda: ops.fp_grouped_matmul(x, [0, 3], *stack, device=device)),
        ("offsets: expected an", lambda: ops.fp_grouped_matmul(x, [0, 4, 3], *stack, device=device)),
        (
            "fp_grouped_swiglu: offsets: expected an",
            lambda: ops.fp_grouped_swiglu(x, [0, 4, 3], stack, stack, device=device),
        ),
        (
            "fp_swiglu: up: expected the format of gate, .*6, 8.* as mxfp4, got .*5, 8",
            lambda: ops.fp_swiglu(x, w, (packed[:5], scales[:5], mode, None), device=device),
        ),
        (
            "fp_experts_swiglu: ids: expected 0 to 1, got 2",
            lambda: ops.fp_experts_swiglu(x, [[0], [1], [2]], stack, stack, device=device),
        ),
        (
            "fp_grouped_swiglu: up: expected the format of gate, .* with a global scale, got",
            lambda: ops.fp_grouped_swiglu(x, [0, 1, 3], stack, (*stack[:3], None), device=device),
        ),
        (
            "fp_grouped_swiglu: gate: expected \\(packed, scales, mode, global_scale\\), got 3 items",
            lambda: ops.fp_grouped_swiglu(x, [0, 1, 3], stack[:3], stack, device=device),
        ),
        (
            "fp_grouped_swiglu: up packed: expected uint32",
            lambda: ops.fp_grouped_swiglu(x, [0, 1, 3], stack, (scales, *stack[1:]), device=device),
        ),
    ]
    for message, call in wrong:
        with pytest.raises(ArgumentError, match=message):
            call()


def test_kernel_states_what_it_requires(device, rng):
    w = random_weight(rng, (6, 64), "mxfp4")
    x, y = random_rows(rng, 3, 64), device.empty((3, 6))
    kernel = device.kernel("fp_matvec_mxfp4", {"has_global_scale": False})
    for sizes, message in (
        ((3, 48, 6), "requires in % 32 == 0"),
        ((3, 0, 6), "requires in > 0"),
        ((4, 64, 6), "x: expected at least 256"),
        ((3, 64, 7), "packed: expected at least"),
    ):
        with pytest.raises(ArgumentError, match=message):
            kernel(x, w.packed, w.scales, None, y, *sizes)
