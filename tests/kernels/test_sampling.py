"""argmax against NumPy's, which has the same rules, on every device."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.harness import Out, run_kernel
from pyturbo import errors, ops
from reference import sampling as reference


@pytest.mark.parametrize(("rows", "n"), [(1, 1), (3, 31), (2, 1024), (5, 1025), (2, 151937), (1, 262144)])
def test_argmax(device, rng, rows, n):
    x = rng.standard_normal((rows, n), np.float32)
    (y,) = run_kernel(device, "argmax", x, Out((rows,), np.int32), rows, n)
    np.testing.assert_array_equal(y, reference.argmax(x))


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 4),
    n=st.integers(1, 3000),
    levels=st.sampled_from([1, 2, 50]),
    seed=st.integers(0, 99),
)
def test_argmax_any_shape_with_ties(device, rows, n, levels, seed):
    x = np.random.default_rng(seed).integers(-levels, levels, (rows, n)).astype(np.float32)
    np.testing.assert_array_equal(ops.argmax(x, device=device), reference.argmax(x))


@pytest.mark.parametrize("at", [0, 1, 31, 32, 1023, 1024, 2999])
def test_argmax_finds_a_single_value_anywhere(device, at):
    x = np.full((2, 3000), -np.inf, np.float32)
    x[0, at] = -3e38
    x[1] = np.inf
    x[1, at] = np.nan
    np.testing.assert_array_equal(ops.argmax(x, device=device), [at, at])


def test_argmax_of_what_is_special(device):
    x = np.array(
        [
            [-np.inf, -np.inf, -np.inf, -np.inf],
            [-1, -0.0, 0.0, -0.0],
            [-1e-45, 0.0, 1e-45, 1e-45],
            [np.inf, np.nan, -np.nan, np.inf],
            [np.inf, -np.nan, np.nan, 1],
            [-3, -2, -1e-45, -1],
        ],
        np.float32,
    )
    np.testing.assert_array_equal(ops.argmax(x, device=device), [0, 1, 2, 1, 1, 2])


def test_refuses(device):
    with pytest.raises(errors.ArgumentError, match=r"argmax: x: expected shape \[any, any\], got \[3\]"):
        ops.argmax(np.zeros(3, np.float32), device=device)
    with pytest.raises(errors.ArgumentError, match="argmax: x: expected an array with at least one value"):
        ops.argmax(np.zeros((2, 0), np.float32), device=device)
