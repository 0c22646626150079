"""Products with weights that are not quantised against float64, on every device.

Does not catch: speed; a summation order that differs between devices (only the error is bounded).
"""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.harness import Out, assert_close, chosen, in_slots, run_kernel
from pyturbo import errors, ops
from reference import linear as reference

WEIGHTS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
SMALL = {"f16", "bf16"}
kinds = pytest.mark.parametrize("kind", WEIGHTS)
small_kinds = pytest.mark.parametrize("kind", sorted(SMALL))


def operands(rng, tokens, outputs, inputs, dtype):
    x = rng.standard_normal((tokens, inputs), np.float32)
    w = rng.standard_normal((outputs, inputs), np.float32).astype(dtype)
    return x, w


def run_product(device, op, x, w, kind):
    """One of the kernels of a product, between guard bytes."""
    sizes = len(x), *w.shape
    return run_kernel(device, f"{op}_{kind}", x, w, Out(sizes[:2]), *sizes)[0]


@kinds
@pytest.mark.parametrize(
    ("tokens", "outputs", "inputs"),
    [
        *((1, 13, 33), (2, 8, 31), (3, 5, 64), (4, 17, 1), (5, 1, 100), (7, 19, 257)),
        *((1, 11, 96), (9, 10, 160), (1, 9, 7168), (6, 3, 4096)),
    ],
)
def test_matches_float64(device, rng, kind, tokens, outputs, inputs):
    x, w = operands(rng, tokens, outputs, inputs, WEIGHTS[kind])
    x[0] *= 1e6
    w[-1] *= w.dtype.type(1 / 1024)
    y = run_product(device, "dense_matvec", x, w, kind)
    assert_close(y, reference.matmul(x, w), "dot", reference.matmul_magnitude(x, w))


@kinds
@pytest.mark.parametrize(("tokens", "outputs", "inputs"), [(1, 5, 32), (37, 45, 96), (67, 133, 160)])
def test_tiles(device, rng, kind, tokens, outputs, inputs):
    x, w = operands(rng, tokens, outputs, inputs, WEIGHTS[kind])
    w[-1] *= w.dtype.type(1 / 1024)
    y = run_product(device, "dense_matmul", x, w, kind)
    assert_close(y, reference.matmul(x, w), "long dot", reference.matmul_magnitude(x, w))


@small_kinds
@pytest.mark.parametrize(("tokens", "outputs", "inputs"), [(1, 5, 32), (11, 45, 160), (3, 3085, 64)])
def test_few(device, rng, kind, tokens, outputs, inputs):
    x, w = operands(rng, tokens, outputs, inputs, WEIGHTS[kind])
    y = run_product(device, "dense_few_matmul", x, w, kind)
    assert_close(y, reference.matmul(x, w), "long dot", reference.matmul_magnitude(x, w))


FORMS = [(op, kind) for kind in WEIGHTS for op in ("dense_matvec", "dense_matmul")]
FORMS += [("dense_few_matmul", kind) for kind in sorted(SMALL)]


@pytest.mark.parametrize(("op", "kind"), FORMS)
def test_width_of_a_model(device, rng, op, kind):
    tokens = 1 if op == "dense_matvec" else 10
    x, w = operands(rng, tokens, 7, 4096, WEIGHTS[kind])
    x = np.abs(x)  # sums that grow
    y = run_product(device, op, x, w, kind)
    terms = reference.matmul_magnitude(x, w)
    assert_close(y, reference.matmul(x, w), "dot" if tokens == 1 else "long dot", terms)


@pytest.mark.parametrize(("op", "kind"), FORMS)
def test_extreme_rows_stay_apart(device, rng, op, kind):
    """NaN and inf fill their own token or row and nothing else; others are exact in proportion."""
    x, w = operands(rng, 34, 11, 96, WEIGHTS[kind])
    x[0] *= 1e30
    x[1] *= 1e-30
    x[2] = 0
    x[5, 7] = np.nan
    x[33, -1] = np.inf
    w[3, 95] = np.nan
    y = run_product(device, op, x, w, kind)
    assert np.isnan(y[5]).all()
    assert not np.isfinite(y[33]).any()
    assert np.isnan(y[:, 3]).all()
    tokens, rows = np.isfinite(x).all(axis=1), np.arange(11) != 3
    assert not y[2, rows].any()
    x, w = x[tokens], w[rows]
    assert_close(y[tokens][:, rows], reference.matmul(x, w), "long dot", reference.matmul_magnitude(x, w))


@pytest.mark.parametrize(("op", "kind"), FORMS)
def test_values_of_all_magnitudes(device, op, kind):
    """Each row has one of them, at another place than its neighbours: the results are the values."""
    if kind in SMALL:
        values = np.arange(0, 1 << 16, 37, np.uint16).view(WEIGHTS[kind])
    else:
        values = np.arange(0x1001, 1 << 32, 0x251234, np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):  # some are NaN
        values = values[np.abs(values.astype(np.float32)) < 1e38]
    w = np.zeros((len(values), 32), values.dtype)
    w[np.arange(len(w)), np.arange(len(w)) % 32] = values
    x = np.ones((9, 32), np.float32)
    want = np.broadcast_to(values.astype(np.float64), (9, len(values)))
    assert_close(run_product(device, op, x, w, kind), want, "long dot", np.abs(want))


@pytest.mark.spread
@settings(max_examples=20, deadline=None)
@given(
    tokens=st.integers(1, 9), outputs=st.integers(1, 40), inputs=st.integers(1, 300), seed=st.integers(0, 99)
)
def test_any_shape(device, tokens, outputs, inputs, seed):
    x, w = operands(np.random.default_rng(seed), tokens, outputs, inputs, np.float32)
    assert_close(
        ops.matmul(x, w, device=device), reference.matmul(x, w), "dot", reference.matmul_magnitude(x, w)
    )


@kinds
def test_a_token_has_the_same_bits_in_every_batch(device, rng, kind):
    x, w = operands(rng, 11, 21, 515, WEIGHTS[kind])
    alone = np.concatenate([ops.matmul(x[t : t + 1], w, device=device) for t in range(len(x))])
    for tokens in range(1, len(x) + 1):
        assert ops.matmul(x[:tokens], w, device=device).tobytes() == alone[:tokens].tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_inf_stay_in_their_row(device, rng, bad):
    x, w = operands(rng, 6, 10, 37, np.float32)
    clean = ops.matmul(x, w, device=device)
    x[2, 36] = bad
    w[7, 0] = bad
    y = ops.matmul(x, w, device=device)
    hit = np.zeros(y.shape, bool)
    hit[2] = hit[:, 7] = True
    assert not np.isfinite(y[hit]).any()
    np.testing.assert_array_equal(y[~hit], clean[~hit])


def test_strided_inputs_are_read_as_numpy_sees_them(device, rng):
    x, w = operands(rng, 10, 30, 50, np.float32)
    x, w = x[::2, ::-1], w[::3].T.copy().T
    assert_close(
        ops.matmul(x, w, device=device), reference.matmul(x, w), "dot", reference.matmul_magnitude(x, w)
    )


@pytest.mark.parametrize("tokens", [1, 7, 8, 33])
@pytest.mark.parametrize(("outputs", "inputs"), [(131, 64), (131, 65), (12, 96)])
@kinds
def test_the_operation_chooses_its_kernel(device, rng, kind, outputs, inputs, tokens):
    x, w = operands(rng, tokens, outputs, inputs, WEIGHTS[kind])
    few = "dense_few_matmul" if kind in SMALL else "dense_matvec"
    many = "dense_matmul" if outputs >= 128 else "dense_matvec"
    op = "dense_matvec" if inputs % 32 else chosen(device, tokens, "dense_matvec", few, many)
    np.testing.assert_array_equal(ops.matmul(x, w, device=device), run_product(device, op, x, w, kind))


@pytest.mark.parametrize("tokens", [3, 9])
@kinds
def test_unaligned_memory(device, rng, kind, tokens):
    """Operands that begin after their memory, one value of each."""
    x, w = operands(rng, tokens, 130, 64, WEIGHTS[kind])
    want = ops.matmul(x, w, device=device)
    moved = []
    for array in (x, w):
        moved.append(np.zeros(array.size + 1, array.dtype)[1:].reshape(array.shape))
        moved[-1][:] = array
    assert all(array.ctypes.data % 16 for array in moved)
    np.testing.assert_array_equal(ops.matmul(*moved, device=device), want)


@pytest.mark.parametrize("shared", [True, False], ids=["row per token", "row per choice"])
@kinds
@pytest.mark.parametrize("inputs", [67, 96])
def test_experts(device, rng, kind, shared, inputs):
    ids = np.array([[4, 0, 2], [3, 3, 1]], np.int32)
    x, w = operands(rng, 6, 5 * 11, inputs, WEIGHTS[kind])
    w = w.reshape(5, 11, inputs)
    x = x[:2] if shared else x.reshape(2, 3, inputs)
    rows = np.broadcast_to(x[:, None], (2, 3, inputs)) if shared else x
    want, terms = (
        np.stack([[f(rows[t, j], w[ids[t, j]]) for j in range(3)] for t in range(2)])
        for f in (reference.matmul, reference.matmul_magnitude)
    )
    sizes = 2, 3, 1 if shared else 3, inputs, 11, 5, 5, 11 * inputs
    args = x, ids, w, None, Out((2, 3, 11)), *sizes
    (y,) = run_kernel(device, f"dense_experts_matvec_{kind}", *args, constants={"by_slot": False})
    assert_close(y, want, "dot", terms)
    assert ops.dense_experts_matmul(x, ids, w, device=device).tobytes() == y.tobytes()


def test_an_unknown_expert_gives_nan(device, rng):
    x, w = operands(rng, 2, 3 * 9, 40, np.float32)
    ids = np.array([[1, -1, 2, 3], [2**31 - 1, -(2**31), 0, 1]], np.int32)
    known = (ids >= 0) & (ids < 3)
    args = x, ids, w.reshape(3, 9, 40), None, Out((2, 4, 9)), 2, 4, 1, 40, 9, 3, 3, 9 * 40
    (y,) = run_kernel(device, "dense_experts_matvec_f32", *args, constants={"by_slot": False})
    assert np.isnan(y[~known]).all()
    assert np.isfinite(y[known]).all()
    with pytest.raises(errors.ArgumentError, match="dense_experts_matmul: ids: expected 0 to 2, got -1"):
        ops.dense_experts_matmul(x, ids, w.reshape(3, 9, 40), device=device)


@pytest.mark.parametrize(("inputs", "gap"), [(67, 9), (64, 9), (64, 8)])
@kinds
def test_experts_by_slot(device, rng, kind, inputs, gap):
    """Many tokens, one after another. Expert 2 has no slot, expert 4 one that does not exist."""
    tokens, k = 19, 4
    x, w = operands(rng, tokens, 5 * 11, inputs, WEIGHTS[kind])
    w = w.reshape(5, 11, inputs)
    slots = np.array([6, 2, -1, 0, 7], np.int32)
    ids = rng.integers(-1, 6, (tokens, k), np.int32)
    memory, stride = in_slots(w, slots, 7, gap)
    args = x, ids, memory, slots, Out((tokens, k, 11), initial=7), tokens, k, 1, inputs, 11, 5, 7, stride
    (y,) = run_kernel(device, f"dense_experts_matvec_{kind}", *args, constants={"by_slot": True})
    assert set(ids.ravel()) == {-1, 0, 1, 2, 3, 4, 5}
    for t, j in np.ndindex(ids.shape):
        if ids[t, j] in (0, 1, 3):
            own = w[ids[t, j]]
            assert_close(y[t, j], reference.matmul(x[t], own), "dot", reference.matmul_magnitude(x[t], own))
    assert (y[ids == 2] == 7).all()
    assert np.isnan(y[~np.isin(ids, [0, 1, 2, 3])]).all()


def run_grouped(device, x, offsets, w, kind, slots=None, initial=None):
    memory, stride = (w, w[0].size) if slots is None else in_slots(w, slots, 7, 8)
    matrices = len(w) if slots is None else 7
    sizes = *x.shape, w.shape[1], len(w), matrices, stride
    args = x, offsets, memory, slots, Out((len(x), w.shape[1]), initial=initial), *sizes
    constants = {"by_slot": slots is not None}
    return run_kernel(device, f"dense_grouped_matmul_{kind}", *args, constants=constants)[0]


def stack_of(rng, experts, outputs, inputs, kind):
    return rng.standard_normal((experts, outputs, inputs), np.float32).astype(WEIGHTS[kind])


@small_kinds
@pytest.mark.parametrize("bounds", [[0, 0, 33, 34, 39], [0, 63, 127, 192, 193]])
def test_buckets(device, rng, kind, bounds):
    """Experts without rows, with few, and with more than a tile."""
    offsets = np.array(bounds, np.int32)
    w = stack_of(rng, 4, 133, 64, kind)
    x = rng.standard_normal((bounds[-1], 64), np.float32)
    y = run_grouped(device, x, offsets, w, kind)
    want, terms = reference.grouped_matmul(x, offsets, w)
    assert_close(y, want, "long dot", terms)
    np.testing.assert_array_equal(ops.dense_grouped_matmul(x, offsets, w, device=device), y)


@small_kinds
@pytest.mark.parametrize("slots", [[6, -1, 2, 7, 0], [-1, -1, 4, -1, -1]])
def test_buckets_by_slot(device, rng, kind, slots):
    """Rows of experts without a slot stay as they are, those of a slot that does not exist are NaN."""
    w = stack_of(rng, 5, 34, 64, kind)
    offsets, slots = np.array([0, 3, 36, 69, 70, 75], np.int32), np.array(slots, np.int32)
    x = rng.standard_normal((75, 64), np.float32)
    y = run_grouped(device, x, offsets, w, kind, slots, initial=7)
    want, terms = reference.grouped_matmul(x, offsets, w)
    slot = np.repeat(slots, np.diff(offsets))
    found = (slot >= 0) & (slot < 7)
    assert_close(y[found], want[found], "long dot", terms[found])
    assert (y[slot < 0] == 7).all()
    assert np.isnan(y[slot == 7]).all()
    np.testing.assert_array_equal(y[found], run_grouped(device, x, offsets, w, kind)[found])


def test_wrong_offsets_are_harmless(device, rng):
    """The kernel never leaves its buffers, whatever the table says."""
    w, x = stack_of(rng, 3, 6, 64, "bf16"), rng.standard_normal((40, 64), np.float32)
    for table in ([0, 5, 10, 2**31 - 1], [-7, 5, 20, 40], [30, 20, 10, 0], [0, 0, 0, 0]):
        run_grouped(device, x, np.array(table, np.int32), w, "bf16")
        slots = np.array([5, -1, 2**31 - 1], np.int32)
        run_grouped(device, x, np.array(table, np.int32), w, "bf16", slots)


def test_checked(checked, rng):
    """One launch of each kernel under the checker: bounds, barriers, unwritten memory and races."""
    for kind in WEIGHTS:
        x, w = operands(rng, 33, 35, 64, WEIGHTS[kind])
        run_product(checked, "dense_matvec", x[:2], w, kind)
        run_product(checked, "dense_matvec", x[:2, :33].copy(), w[:, :33].copy(), kind)
        run_product(checked, "dense_matmul", x, w, kind)
    for kind in SMALL:
        x, w = operands(rng, 33, 3 * 35, 64, WEIGHTS[kind])
        run_product(checked, "dense_few_matmul", x[:9], w, kind)
        offsets = np.array([0, 1, 20, 33], np.int32)
        run_grouped(checked, x, offsets, w.reshape(3, 35, 64), kind)
        run_grouped(checked, x, offsets, w.reshape(3, 35, 64), kind, np.array([-1, 6, 0], np.int32))


@pytest.mark.parametrize(
    ("x", "w", "message"),
    [
        (np.zeros((2, 3)), np.zeros((4, 3), np.float32), "matmul: x: expected float32, got float64"),
        (
            np.zeros((2, 3), np.float32),
            np.zeros((4, 3)),
            "matmul: w: expected float32, float16 or bfloat16",
        ),
        (np.zeros((2, 3), np.float32), np.zeros((4, 5), np.float32), "matmul: w: expected shape"),
        (np.zeros(3, np.float32), np.zeros((4, 3), np.float32), "matmul: x: expected shape"),
        (np.zeros((0, 3), np.float32), np.zeros((4, 3), np.float32), "matmul: x: expected an array with"),
        (np.zeros((2, 3), np.float32), np.zeros((0, 3), np.float32), "matmul: w: expected at least one"),
    ],
)
def test_refuses(x, w, message):
    with pytest.raises(errors.ArgumentError, match=message):
        ops.matmul(x, w)


def test_a_short_buffer_is_refused_at_launch(device, rng):
    x, w = operands(rng, 3, 4, 5, np.float32)
    with pytest.raises(errors.ArgumentError, match="dense_matvec_f32: y: expected at least 12 elements"):
        device.kernel("dense_matvec_f32")(x, w, np.zeros(11, np.float32), 3, 4, 5)


@pytest.mark.parametrize("w", [np.zeros((2, 3, 64), np.float32), np.zeros((2, 3, 65), np.float16)])
def test_buckets_need_units_of_16_bits(w):
    x = np.zeros((4, w.shape[-1]), np.float32)
    with pytest.raises(errors.ArgumentError, match="dense_grouped_matmul: w: expected 16-bit values in rows"):
        ops.dense_grouped_matmul(x, [0, 1, 4], w)
