"""matmul against float64, on every device.

Does not catch: speed; a summation order that differs between devices (only the error is bounded).
"""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.harness import Out, assert_close, in_slots, run_kernel
from pyturbo import errors, ops
from reference import linear as reference

WEIGHTS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def operands(rng, tokens, outputs, inputs, dtype):
    x = rng.standard_normal((tokens, inputs), np.float32)
    w = rng.standard_normal((outputs, inputs), np.float32).astype(dtype)
    return x, w


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize(
    ("tokens", "outputs", "inputs"),
    [(1, 13, 33), (2, 8, 31), (3, 5, 64), (4, 17, 1), (5, 1, 100), (7, 19, 257), (1, 9, 7168), (6, 3, 4096)],
)
def test_matches_float64(device, rng, kind, tokens, outputs, inputs):
    x, w = operands(rng, tokens, outputs, inputs, WEIGHTS[kind])
    x[0] *= 1e6
    w[-1] *= w.dtype.type(1 / 1024)
    (y,) = run_kernel(device, f"matmul_{kind}", x, w, Out((tokens, outputs)), tokens, outputs, inputs)
    assert_close(y, reference.matmul(x, w), "dot", reference.matmul_magnitude(x, w))


@settings(max_examples=20, deadline=None)
@given(
    tokens=st.integers(1, 9), outputs=st.integers(1, 40), inputs=st.integers(1, 300), seed=st.integers(0, 99)
)
def test_any_shape(device, tokens, outputs, inputs, seed):
    x, w = operands(np.random.default_rng(seed), tokens, outputs, inputs, np.float32)
    assert_close(
        ops.matmul(x, w, device=device), reference.matmul(x, w), "dot", reference.matmul_magnitude(x, w)
    )


@pytest.mark.parametrize("kind", WEIGHTS)
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


@pytest.mark.parametrize("shared", [True, False], ids=["row per token", "row per choice"])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_experts(device, rng, kind, shared):
    ids = np.array([[4, 0, 2], [3, 3, 1]], np.int32)
    x, w = operands(rng, 6, 5 * 11, 67, WEIGHTS[kind])
    w = w.reshape(5, 11, 67)
    x = x[:2] if shared else x.reshape(2, 3, 67)
    rows = np.broadcast_to(x[:, None], (2, 3, 67)) if shared else x
    want, terms = (
        np.stack([[f(rows[t, j], w[ids[t, j]]) for j in range(3)] for t in range(2)])
        for f in (reference.matmul, reference.matmul_magnitude)
    )
    sizes = 2, 3, 1 if shared else 3, 67, 11, 5, 5, 11 * 67
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


@pytest.mark.parametrize("kind", WEIGHTS)
def test_experts_by_slot(device, rng, kind):
    """Many tokens, one after another. Expert 2 has no slot, expert 4 one that does not exist."""
    tokens, k = 19, 4
    x, w = operands(rng, tokens, 5 * 11, 67, WEIGHTS[kind])
    w = w.reshape(5, 11, 67)
    slots = np.array([6, 2, -1, 0, 7], np.int32)
    ids = rng.integers(-1, 6, (tokens, k), np.int32)
    memory, stride = in_slots(w, slots, 7, 9)
    args = x, ids, memory, slots, Out((tokens, k, 11), initial=7), tokens, k, 1, 67, 11, 5, 7, stride
    (y,) = run_kernel(device, f"dense_experts_matvec_{kind}", *args, constants={"by_slot": True})
    assert set(ids.ravel()) == {-1, 0, 1, 2, 3, 4, 5}
    for t, j in np.ndindex(ids.shape):
        if ids[t, j] in (0, 1, 3):
            own = w[ids[t, j]]
            assert_close(y[t, j], reference.matmul(x[t], own), "dot", reference.matmul_magnitude(x[t], own))
    assert (y[ids == 2] == 7).all()
    assert np.isnan(y[~np.isin(ids, [0, 1, 2, 3])]).all()


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
    with pytest.raises(errors.ArgumentError, match="matmul_f32: y: expected at least 12 elements"):
        device.kernel("matmul_f32")(x, w, np.zeros(11, np.float32), 3, 4, 5)
