"""Products with weights in blocks of GGUF against float64 references.

The weights are random bytes with factors of blocks around one value, so every code occurs. References are of
the activations as the device reads them. What these tests cannot catch: speed.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.harness import Out, assert_bucket, assert_close, chosen, in_slots, plain_product, run_kernel
from kernels.random_blocks import FACTORS, random_weight
from pyturbo import ops
from pyturbo.errors import ArgumentError
from reference import gguf as reference
from reference.activations import as_read
from reference.gguf import SIZES, Weight

KINDS = list(SIZES)
kinds = pytest.mark.parametrize("kind", KINDS)
#: One type of each size of blocks and of groups, with and without a bias, and of each alignment.
FEW = ["Q4_1", "Q3_K", "Q4_K", "MXFP4"]
few = pytest.mark.parametrize("kind", FEW)


def unit(kind):
    """The smallest width of a matrix."""
    return SIZES[kind][1]


def random_rows(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def read_by(device, x, kind, op="gguf_matmul"):
    """x as the device reads it: the kernels of few tokens have no bodies for processors."""
    if "few" in op:
        return x.astype(np.float64)
    return as_read(device, x, 16 if kind in ("Q2_K", "Q3_K", "Q6_K") else 32)


def width(w):
    size, values = SIZES[w.kind]
    return w.blocks.shape[-1] // size * values


def run_product(device, op, x, *weights):
    """A product with one weight, or with a gate and an up, between guard bytes."""
    tokens, in_dim = x.shape
    out_dim = weights[0].blocks.shape[-2]
    args = x, *(w.blocks for w in weights), Out((tokens, out_dim)), tokens, in_dim, out_dim
    return run_kernel(device, f"{op}_{weights[0].kind.lower()}", *args)[0]


def stacks_in_slots(weights, slots):
    """The blocks of stacks, as they are or in their slots of 7, the number of matrices, and the stride."""
    if slots is None:
        return [w.blocks for w in weights], len(weights[0].blocks), weights[0].blocks[0].size
    size = weights[0].blocks[0].size
    placed = [in_slots(w.blocks, slots, 7, 16 + -size % 4) for w in weights]
    return [memory for memory, _ in placed], 7, placed[0][1]


def run_experts(device, x, ids, *weights, slots=None, initial=None):
    """gguf_experts_matvec, or with a gate and an up gguf_experts_swiglu."""
    op = "gguf_experts_matvec" if len(weights) == 1 else "gguf_experts_swiglu"
    experts, out_dim, _ = weights[0].blocks.shape
    memory, matrices, stride = stacks_in_slots(weights, slots)
    x_rows = 1 if x.ndim == 2 else ids.shape[1]
    sizes = *ids.shape, x_rows, x.shape[-1], out_dim, experts, matrices, stride
    args = x, ids, *memory, slots, Out((*ids.shape, out_dim), initial=initial), *sizes
    constants = {"by_slot": slots is not None}
    return run_kernel(device, f"{op}_{weights[0].kind.lower()}", *args, constants=constants)[0]


def run_grouped(device, x, offsets, *weights, slots=None, initial=None):
    """gguf_grouped_matmul, or with a gate and an up gguf_grouped_swiglu."""
    op = "gguf_grouped_matmul" if len(weights) == 1 else "gguf_grouped_swiglu"
    w = weights[0]
    out_dim = w.blocks.shape[-2]
    memory, matrices, stride = stacks_in_slots(weights, slots)
    sizes = *x.shape, out_dim, len(w.blocks), matrices, stride
    args = x, offsets, *memory, slots, Out((len(x), out_dim), initial=initial), *sizes
    constants = {"by_slot": slots is not None}
    return run_kernel(device, f"{op}_{w.kind.lower()}", *args, constants=constants)[0]


def run_embed(device, ids, table):
    vocab, hidden = len(table.blocks), width(table)
    args = ids, table.blocks, Out((len(ids), hidden)), len(ids), vocab, hidden
    return run_kernel(device, f"gguf_embed_{table.kind.lower()}", *args)[0]


# Formats ------------------------------------------------------------------------------------------


def assert_same_floats(got, want):
    """Equal bits where values are normal numbers; a device may flush those below."""
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    normal = ~(np.abs(want) < np.finfo(np.float32).tiny)
    np.testing.assert_array_equal(got[normal], want[normal])
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
    assert_close(np.where(normal, 0, got), np.where(normal, 0, want).astype(np.float64), "elementwise")


@pytest.fixture(scope="module")
def golden():
    with np.load(Path(__file__).parents[1] / "goldens" / "gguf_blocks.npz") as arrays:
        return dict(arrays)


@kinds
def test_values_are_those_of_the_gguf_package(device, golden, kind):
    """Bit for bit, with the most extreme factors."""
    table = Weight(golden[f"{kind}_blocks"], kind)
    want = golden[f"{kind}_values"].view(np.float32)
    np.testing.assert_array_equal(np.isnan(reference.dequantize(table)), np.isnan(want))
    known = ~np.isnan(want)
    assert reference.dequantize(table)[known].tobytes() == want[known].tobytes()
    assert_same_floats(run_embed(device, np.arange(len(want), dtype=np.int32), table), want)


@kinds
def test_values_of_any_bytes(device, rng, kind):
    table = Weight(rng.integers(0, 256, (40, 2 * SIZES[kind][0]), np.uint8), kind)
    ids = np.arange(40, dtype=np.int32)
    assert_same_floats(run_embed(device, ids, table), reference.dequantize(table))


def test_every_scale_of_mxfp4(device):
    codes = np.arange(16, dtype=np.uint8) * 17
    blocks = [[exponent, *codes] for exponent in range(256)]
    table = Weight(np.array(blocks, np.uint8), "MXFP4")
    got = run_embed(device, np.arange(256, dtype=np.int32), table)
    assert_same_floats(got, reference.dequantize(table))


# Products -----------------------------------------------------------------------------------------


@kinds
def test_matvec(device, rng, kind):
    w = random_weight(rng, (13, 3), kind)
    x = random_rows(rng, 2, width(w))
    want, terms = reference.matmul(read_by(device, x, kind), w)
    assert_close(run_product(device, "gguf_matvec", x, w), want, "dot", terms)


@kinds
def test_matmul(device, rng, kind):
    w = random_weight(rng, (45, 3), kind)
    x = random_rows(rng, 37, width(w))
    want, terms = reference.matmul(read_by(device, x, kind), w)
    assert_close(run_product(device, "gguf_matmul", x, w), want, "long dot", terms)


@kinds
def test_few(device, rng, kind):
    w = random_weight(rng, (45, 3), kind)
    x = random_rows(rng, 11, width(w))
    want, terms = reference.matmul(x.astype(np.float64), w)
    assert_close(run_product(device, "gguf_few_matmul", x, w), want, "long dot", terms)


@kinds
@pytest.mark.parametrize(
    ("op", "tokens"), [("gguf_swiglu", 3), ("gguf_few_swiglu", 13), ("gguf_swiglu_matmul", 37)]
)
def test_swiglu(device, rng, kind, op, tokens):
    gate, up = (random_weight(rng, (34, 2), kind) for _ in range(2))
    x = random_rows(rng, tokens, width(gate))
    want, terms = reference.swiglu(read_by(device, x, kind, op), gate, up)
    assert_close(run_product(device, op, x, gate, up), want, "long dot", terms)


@few
def test_any_number_of_tokens(device, rng, kind):
    """Tiles of processors have 4 to 12 tokens of a prompt: a result does not depend on the others.

    AMX multiplies 32 tokens and more.
    """
    w = random_weight(rng, (21, 3), kind)
    x = random_rows(rng, 36, width(w))
    want, terms = reference.matmul(read_by(device, x, kind), w)
    for first, end in ((24, 32), (32, 37)):
        most = run_product(device, "gguf_matmul", x[: end - 1], w)
        for tokens in range(first, end):
            got = run_product(device, "gguf_matmul", x[:tokens], w)
            assert_close(got, want[:tokens], "long dot", terms[:tokens])
            if device.name.startswith("cpu"):
                np.testing.assert_array_equal(got, most[:tokens])


@pytest.mark.parametrize("in_dim", [1536, 8960])
@pytest.mark.parametrize(
    ("op", "tokens", "out_dim"), [("gguf_matvec", 1, 9), ("gguf_few_matmul", 3, 5), ("gguf_matmul", 10, 7)]
)
@few
def test_width_of_a_model(device, rng, kind, op, tokens, out_dim, in_dim):
    w = random_weight(rng, (out_dim, in_dim // unit(kind)), kind)
    x = np.abs(random_rows(rng, tokens, in_dim))  # sums that grow
    want, terms = reference.matmul(read_by(device, x, kind, op), w)
    assert_close(run_product(device, op, x, w), want, "dot" if tokens == 1 else "long dot", terms)


@pytest.mark.parametrize("op", ["gguf_matvec", "gguf_few_matmul", "gguf_matmul"])
@kinds
def test_extreme_rows_stay_apart(device, rng, op, kind):
    """NaN and inf fill their own token and nothing else; huge, tiny and zero rows are exact in proportion."""
    w = random_weight(rng, (11, 1), kind)
    x = random_rows(rng, 34, width(w))
    x[0] *= 1e30
    x[1] *= 1e-30
    x[2] = 0
    x[5, 7] = np.nan
    x[33, -1] = np.inf
    y = run_product(device, op, x, w)
    assert np.isnan(y[5]).all()
    assert not y[2].any()
    finite = np.isfinite(x).all(axis=1)
    want, terms = reference.matmul(read_by(device, x[finite], kind, op), w)
    assert_close(y[finite], want, "long dot", terms)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if FACTORS[kind]])
def test_blocks_of_all_sizes(device, rng, kind):
    """Each row has one block that is not zero, and is exact in proportion to the activations there."""
    sizes = 10.0 ** np.arange(-28, 29, 4)
    w = random_weight(rng, (len(sizes), len(sizes)), kind)
    blocks = w.blocks.reshape(len(sizes), len(sizes), -1)
    for at in FACTORS[kind]:
        blocks[~np.eye(len(sizes), dtype=bool), at : at + 2] = 0
    x = random_rows(rng, 1, width(w)) * np.repeat(sizes, unit(kind)).astype(np.float32)
    y = run_product(device, "gguf_matvec", x, w)
    want, terms = reference.matmul(read_by(device, x, kind), w)
    assert_close(y, want, "long dot", terms)


@pytest.mark.parametrize("op", ["gguf_matvec", "gguf_few_matmul", "gguf_matmul"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if FACTORS[kind]])
def test_nan_of_a_weight_stays_in_its_row(device, rng, op, kind):
    w = random_weight(rng, (35, 2), kind)
    at = next(iter(FACTORS[kind])) + SIZES[kind][0]  # of the second block
    w.blocks[33, at : at + 2] = 0xFF
    y = run_product(device, op, random_rows(rng, 3, width(w)), w)
    assert np.isnan(y[:, 33]).all()
    assert np.isfinite(np.delete(y, 33, axis=1)).all()


@kinds
def test_one_token_is_the_matvec(device, rng, kind):
    """The bits of a row do not depend on how many others are computed, as long as they are few.

    Where a device has a kernel for few tokens, they may.
    """
    w = random_weight(rng, (21, 2), kind)
    x = random_rows(rng, 7, width(w))
    alone = run_product(device, "gguf_matvec", x[:1], w)
    np.testing.assert_array_equal(ops.gguf_matmul(x[:1], *w, device=device), alone)
    together = ops.gguf_matmul(x, *w, device=device)
    if device.traits.few_tokens == 0:
        np.testing.assert_array_equal(together[:1], alone)
    else:
        np.testing.assert_array_equal(together, run_product(device, "gguf_few_matmul", x, w))


@pytest.mark.spread
@settings(max_examples=30, deadline=None)
@given(
    tokens=st.integers(1, 40), out_dim=st.integers(1, 70), blocks=st.integers(1, 9),
    kind=st.sampled_from(KINDS), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_shape(device, tokens, out_dim, blocks, kind, seed):
    rng = np.random.default_rng(seed)
    w = random_weight(rng, (out_dim, -(-blocks * 32 // unit(kind))), kind)
    x = random_rows(rng, tokens, width(w))
    want, terms = reference.matmul(read_by(device, x, kind), w)
    assert_close(ops.gguf_matmul(x, *w, device=device), want, "long dot", terms)


# Experts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False], ids=["row per token", "row per choice"])
@kinds
def test_experts_matvec(device, rng, shared, kind):
    w = random_weight(rng, (5, 11, 1), kind)
    ids = np.array([[4, 0, 2], [3, 3, 1]], np.int32)
    x = random_rows(rng, 2, width(w)) if shared else random_rows(rng, 2, 3, width(w))
    want, terms = reference.per_expert(reference.matmul, read_by(device, x, kind), ids, w)
    assert_close(run_experts(device, x, ids, w), want, "dot", terms)


@kinds
def test_experts_swiglu(device, rng, kind):
    gate, up = (random_weight(rng, (5, 11, 1), kind) for _ in range(2))
    ids = np.array([[4, 0, 2], [3, 3, 1]], np.int32)
    x = random_rows(rng, 2, width(gate))
    want, terms = reference.per_expert(reference.swiglu, read_by(device, x, kind), ids, gate, up)
    assert_close(run_experts(device, x, ids, gate, up), want, "long dot", terms)


@pytest.mark.parametrize("count", [1, 2], ids=["matvec", "swiglu"])
@few
def test_unknown_expert_gives_nan(device, rng, kind, count):
    weights = [random_weight(rng, (3, 10, 1), kind) for _ in range(count)]
    ids = np.array([[1, -1, 2, 3], [2**31 - 1, -(2**31), 0, 1]], np.int32)
    known = (ids >= 0) & (ids < 3)
    y = run_experts(device, random_rows(rng, 2, unit(kind)), ids, *weights)
    assert np.isnan(y[~known]).all()
    assert np.isfinite(y[known]).all()


@pytest.mark.parametrize("count", [1, 2], ids=["matvec", "swiglu"])
@kinds
def test_experts_by_slot(device, rng, kind, count):
    """Expert 2 has no slot, expert 4 one that does not exist; the last id is no expert."""
    weights = [random_weight(rng, (5, 11, 1), kind) for _ in range(count)]
    slots = np.array([6, 2, -1, 0, 7], np.int32)
    ids = np.array([[2, 3, 1], [4, 0, 2], [3, 5, -1]], np.int32)
    x = random_rows(rng, 3, unit(kind))
    y = run_experts(device, x, ids, *weights, slots=slots, initial=7)
    found = np.isin(ids, [0, 1, 3])
    assert (y[ids == 2] == 7).all()
    assert np.isnan(y[~found & (ids != 2)]).all()
    np.testing.assert_array_equal(y[found], run_experts(device, x, ids, *weights)[found])


@kinds
@pytest.mark.parametrize("count", [1, 2], ids=["matmul", "swiglu"])
@pytest.mark.parametrize("slots", [[6, -1, 2, 7, 0], [-1, -1, 4, -1, -1]])
def test_grouped_by_slot(device, rng, kind, count, slots):
    """Rows of experts without a slot stay as they are, those of a slot that does not exist are NaN."""
    weights = [random_weight(rng, (5, 34, 1), kind) for _ in range(count)]
    grouped = reference.grouped_matmul if count == 1 else reference.grouped_swiglu
    offsets, slots = np.array([0, 3, 36, 69, 70, 75], np.int32), np.array(slots, np.int32)
    x = random_rows(rng, 75, unit(kind))
    y = run_grouped(device, x, offsets, *weights, slots=slots, initial=7)
    want, terms = grouped(read_by(device, x, kind), offsets, *weights)
    slot = np.repeat(slots, np.diff(offsets))
    found = (slot >= 0) & (slot < 7)
    assert_close(y[found], want[found], "long dot", terms[found])
    assert (y[slot < 0] == 7).all()
    assert np.isnan(y[slot == 7]).all()
    np.testing.assert_array_equal(y[found], run_grouped(device, x, offsets, *weights)[found])


@kinds
def test_grouped_swiglu(device, rng, kind):
    """Also bit for bit what the products and `swiglu` give."""
    gate, up = (random_weight(rng, (4, 69, 1), kind) for _ in range(2))
    offsets = np.array([0, 0, 33, 34, 39], np.int32)
    x = random_rows(rng, 39, unit(kind))
    want, terms = reference.grouped_swiglu(read_by(device, x, kind), offsets, gate, up)
    y = run_grouped(device, x, offsets, gate, up)
    assert_close(y, want, "long dot", terms)
    apart = ops.swiglu(*(run_grouped(device, x, offsets, w) for w in (gate, up)), device=device)
    assert_bucket(device, y, apart)


@kinds
def test_buckets_are_plain_products(device, rng, kind):
    """Every row meets its own expert, bit for bit what the plain product of its bucket gives."""
    w, up = (random_weight(rng, (5, 3, 1), kind) for _ in range(2))
    offsets = np.concatenate([[0], np.cumsum([2, 0, 33, 1, 32])]).astype(np.int32)
    x = random_rows(rng, offsets[-1], width(w))
    y = ops.gguf_grouped_matmul(x, offsets, *w, device=device)
    gated = ops.gguf_grouped_swiglu(x, offsets, w.blocks, up.blocks, kind, device=device)
    for e, (a, b) in enumerate(pairwise(offsets)):
        if b > a:
            own, plain = reference.expert(w, e), plain_product(device, "gguf", b - a)
            assert_bucket(device, y[a:b], run_product(device, plain, x[a:b], own))
            both, plain = (own, reference.expert(up, e)), plain_product(device, "gguf", b - a, gated=True)
            assert_bucket(device, gated[a:b], run_product(device, plain, x[a:b], *both))


def test_wrong_offsets_are_harmless(device, rng):
    """The kernel never leaves its buffers, whatever the table says."""
    w = random_weight(rng, (3, 6, 2), "Q5_0")
    x = random_rows(rng, 40, 64)
    for table in ([0, 5, 10, 2**31 - 1], [-7, 5, 20, 40], [30, 20, 10, 0], [0, 0, 0, 0]):
        for weights in ((w,), (w, w)):
            run_grouped(device, x, np.array(table, np.int32), *weights)
            slots = np.array([5, -1, 2**31 - 1], np.int32)
            run_grouped(device, x, np.array(table, np.int32), *weights, slots=slots)


# Embedding ----------------------------------------------------------------------------------------


@kinds
def test_embed_of_an_unknown_token_is_nan(device, rng, kind):
    table = random_weight(rng, (17, 3), kind)
    ids = np.array([-1, 16, 17, 2**31 - 1, -(2**31), 5, 5], np.int32)
    y = run_embed(device, ids, table)
    assert np.isnan(y[[0, 2, 3, 4]]).all()
    np.testing.assert_array_equal(y[[1, 5, 6]], reference.dequantize(table)[[16, 5, 5]])


def test_embed_of_long_rows(device, rng):
    table = random_weight(rng, (9, 16), "Q6_K")
    np.testing.assert_array_equal(
        run_embed(device, np.array([8], np.int32), table), reference.dequantize(table)[[8]]
    )


# Operations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 7, 8, 33])
@few
def test_operations_choose_their_kernel(device, rng, kind, tokens):
    stacks = [random_weight(rng, (3, 12, 2), kind) for _ in range(2)]
    gate, up = (reference.expert(stack, 1) for stack in stacks)
    x = random_rows(rng, tokens, width(gate))
    product = chosen(device, tokens, "gguf_matvec", "gguf_few_matmul", "gguf_matmul")
    swiglu = chosen(device, tokens, "gguf_swiglu", "gguf_few_swiglu", "gguf_swiglu_matmul")
    np.testing.assert_array_equal(
        ops.gguf_matmul(x, *gate, device=device), run_product(device, product, x, gate)
    )
    np.testing.assert_array_equal(
        ops.gguf_swiglu(x, gate.blocks, up.blocks, kind, device=device),
        run_product(device, swiglu, x, gate, up),
    )
    ids = rng.integers(0, 3, (tokens, 2)).astype(np.int32)
    np.testing.assert_array_equal(
        ops.gguf_experts_matmul(x, ids, *stacks[0], device=device), run_experts(device, x, ids, stacks[0])
    )
    np.testing.assert_array_equal(
        ops.gguf_experts_swiglu(x, ids, *(stack.blocks for stack in stacks), kind, device=device),
        run_experts(device, x, ids, *stacks),
    )
    np.testing.assert_array_equal(
        ops.gguf_embed([3, 11], *gate, device=device),
        run_embed(device, np.array([3, 11], np.int32), gate),
    )


@few
def test_stacks_with_any_stride(device, rng, kind):
    """A stack may be a part of records; one that kernels cannot use in place is copied."""
    gate, up = (random_weight(rng, (3, 5, 1), kind) for _ in range(2))
    x, ids = random_rows(rng, 2, width(gate)), np.array([[2, 0], [1, 1]])
    want = ops.gguf_experts_matmul(x, ids, *gate, device=device)
    both = ops.gguf_experts_swiglu(x, ids, gate.blocks, up.blocks, kind, device=device)
    for gap in (64, 4, 1, 2):
        records = np.zeros((3, gate.blocks[0].size + gap), np.uint8)
        records[:, :-gap] = gate.blocks.reshape(3, -1)
        stack = np.lib.stride_tricks.as_strided(
            records, gate.blocks.shape, (records.strides[0], *gate.blocks.strides[1:])
        )
        np.testing.assert_array_equal(ops.gguf_experts_matmul(x, ids, stack, kind, device=device), want)
        got = ops.gguf_experts_swiglu(x, ids, stack, up.blocks, kind, device=device)
        np.testing.assert_array_equal(got, both)


def test_checked(checked, rng):
    """One launch of each kernel under the checker: bounds, barriers, unwritten memory and races."""
    for kind in KINDS:
        stacks = [random_weight(rng, (3, 35, 1), kind) for _ in range(2)]
        pair = [reference.expert(stack, 1) for stack in stacks]
        x = random_rows(rng, 33, unit(kind))
        run_product(checked, "gguf_matvec", x[:2], pair[0])
        run_product(checked, "gguf_matmul", x, pair[0])
        run_product(checked, "gguf_swiglu", x[:2], *pair)
        run_product(checked, "gguf_swiglu_matmul", x, *pair)
        run_grouped(checked, x, np.array([0, 1, 1, 33], np.int32), stacks[0])
        run_grouped(checked, x, np.array([0, 1, 1, 33], np.int32), *stacks)
        run_embed(checked, np.array([34, -1], np.int32), pair[0])
        ids, slots = np.array([[2, 5], [0, -1]], np.int32), np.array([-1, 6, 0], np.int32)
        run_experts(checked, x[:2], ids, stacks[0])
        run_experts(checked, x[:2], ids, stacks[0], slots=slots)
        run_experts(checked, x[:2], ids, *stacks, slots=slots)
        run_grouped(checked, x, np.array([0, 1, 20, 33], np.int32), stacks[0], slots=slots)
        run_grouped(checked, x, np.array([0, 1, 20, 33], np.int32), *stacks, slots=slots)


def test_arguments_are_checked(device, rng):
    w = random_weight(rng, (6, 2), "Q4_0")
    stack = random_weight(rng, (2, 6, 2), "Q4_0")
    x = random_rows(rng, 3, 64)
    wrong = [
        ("x: expected shape", lambda: ops.gguf_matmul(x[:, :32], *w, device=device)),
        ("x: expected float32", lambda: ops.gguf_matmul(x.astype(np.float64), *w, device=device)),
        ("x: expected at least one row", lambda: ops.gguf_matmul(x[:0], *w, device=device)),
        (
            "gguf_matmul: kind: expected one of Q4_0, .*, MXFP4, got 'IQ2_XS'",
            lambda: ops.gguf_matmul(x, w.blocks, "IQ2_XS", device=device),
        ),
        ("blocks: expected uint8", lambda: ops.gguf_matmul(x, w.blocks.view(np.int8), "Q4_0", device=device)),
        (
            r"blocks: expected rows of Q4_0 blocks of 18 bytes, got shape \[6, 35\]",
            lambda: ops.gguf_matmul(x, w.blocks[:, :35], "Q4_0", device=device),
        ),
        (
            "up: expected the shape of gate",
            lambda: ops.gguf_swiglu(x, w.blocks, w.blocks[:5], "Q4_0", device=device),
        ),
        ("ids: expected 0 to 5, got 6", lambda: ops.gguf_embed([6], *w, device=device)),
        (
            "ids: expected 0 to 1, got 2",
            lambda: ops.gguf_experts_matmul(x, [[0], [1], [2]], *stack, device=device),
        ),
        ("offsets: expected shape", lambda: ops.gguf_grouped_matmul(x, [0, 3], *stack, device=device)),
        ("offsets: expected an", lambda: ops.gguf_grouped_matmul(x, [0, 4, 3], *stack, device=device)),
        (
            "gguf_grouped_swiglu: offsets: expected an",
            lambda: ops.gguf_grouped_swiglu(x, [0, 4, 3], *[stack.blocks] * 2, "Q4_0", device=device),
        ),
        (
            "gguf_grouped_swiglu: up: expected the shape of gate",
            lambda: ops.gguf_grouped_swiglu(
                x, [0, 1, 3], stack.blocks, stack.blocks[:, :5], "Q4_0", device=device
            ),
        ),
    ]
    for message, call in wrong:
        with pytest.raises(ArgumentError, match=message):
            call()


def test_kernel_states_what_it_requires(device, rng):
    w = random_weight(rng, (6, 1), "Q4_K")
    x, y = random_rows(rng, 3, 256), device.empty((3, 6))
    kernel = device.kernel("gguf_matvec_q4_k", {})
    for sizes, message in (
        ((3, 128, 6), "requires in % block == 0"),
        ((3, 0, 6), "requires in > 0"),
        ((4, 256, 6), "x: expected at least 1024"),
        ((3, 256, 7), "blocks: expected at least"),
    ):
        with pytest.raises(ArgumentError, match=message):
            kernel(x, w.blocks, y, *sizes)
    stack = random_weight(rng, (2, 3, 1), "Q4_K")
    kernel = device.kernel("gguf_experts_matvec_q4_k", {"by_slot": False})
    sizes = 3, 1, 1, 256, 3, 2, 2, stack.blocks[0].size - 2
    with pytest.raises(ArgumentError, match="requires blocks_stride % "):
        kernel(x, np.zeros((3, 1), np.int32), stack.blocks, None, device.empty((3, 3)), *sizes)
