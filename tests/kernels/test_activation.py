"""swiglu, swiglu_clamped, geglu and sigmoid_gate against float64, on every device.

Does not catch: results so small that a device may flush them to zero (tolerances.FLUSHED).
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.harness import Out, assert_close, run_kernel
from pyturbo import errors, ops
from reference import activation as reference
from tolerances import FLUSHED

ALPHA, LIMIT = 1.702, 7.0  # gpt-oss

# Name, further arguments.
CASES = [("swiglu", ()), ("swiglu_clamped", (ALPHA, LIMIT)), ("geglu", ()), ("sigmoid_gate", ())]

# Where exponentials overflow and underflow, the clamp's edges, signed zeros, the largest numbers.
EDGES = np.array([0, 1e-30, 7, 7.0001, 20, 87, 88.8, 89, 104, 1e4, 3e38], np.float32)
EDGES = np.concatenate([EDGES, -EDGES])


def exponent(name, a, b):
    """t of the sigmoid(t) inside the activation."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    match name:
        case "swiglu":
            return a
        case "swiglu_clamped":
            return ALPHA * np.minimum(a, LIMIT)
        case "geglu":
            return 2 * np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)
        case _:
            return b


def check(y, name, a, b, extra):
    """A rounding of t counts |t| times in exp(t); a sigmoid too small for f32 may be flushed to zero."""
    want, t = getattr(reference, name)(a, b, *extra), exponent(name, a, b)
    rounded = name in ("swiglu_clamped", "geglu")  # in the others t is an input
    magnitude = np.abs(want) * (1 + np.minimum(np.abs(t), 100) if rounded else 1)
    flushed = reference.sigmoid(t) < FLUSHED
    assert_close(y[~flushed], want[~flushed], "elementwise", magnitude[~flushed])
    assert (np.abs(y[flushed]) <= np.abs(want[flushed]) * (1 + 1e-4) + FLUSHED).all()


@pytest.mark.parametrize(("name", "extra"), CASES)
@pytest.mark.parametrize("count", [1, 255, 256, 1031])
def test_matches_float64(device, rng, name, extra, count):
    a = rng.standard_normal(count, np.float32) * 10
    b = rng.standard_normal(count, np.float32) * 5
    (y,) = run_kernel(device, name, a, b, Out((count,)), count, *extra)
    check(y, name, a, b, extra)


@pytest.mark.parametrize(("name", "extra"), CASES)
def test_edges(device, name, extra):
    """Every edge against every edge whose product float32 can hold."""
    a, b = (grid.ravel() for grid in np.meshgrid(EDGES, EDGES))
    fits = np.abs(getattr(reference, name)(a, b, *extra)) < np.finfo(np.float32).max
    a, b = a[fits], b[fits]
    check(getattr(ops, name)(a, b, *extra, device=device), name, a, b, extra)


@pytest.mark.spread
@pytest.mark.parametrize(("name", "extra"), CASES)
@settings(max_examples=10, deadline=None)
@given(shape=st.lists(st.integers(1, 40), min_size=1, max_size=3), seed=st.integers(0, 99))
def test_any_shape(device, name, extra, shape, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, *shape), np.float32) * 4
    check(getattr(ops, name)(a, b, *extra, device=device), name, a, b, extra)


@pytest.mark.parametrize(("name", "extra"), CASES)
def test_nan_is_seen_in_its_place_only(device, rng, name, extra):
    a, b = rng.standard_normal((2, 300), np.float32)
    a[17] = np.nan
    b[299] = np.nan
    y = getattr(ops, name)(a, b, *extra, device=device)
    assert np.flatnonzero(np.isnan(y)).tolist() == [17, 299]


@pytest.mark.parametrize(("name", "extra"), CASES)
def test_inf_gives_what_the_formula_gives(device, name, extra):
    """An infinite value passes, or gives NaN, except where the formula clips it or saturates."""
    a, b = (
        grid.ravel().astype(np.float32) for grid in np.meshgrid([np.inf, -np.inf, 2], [np.inf, -np.inf, 3])
    )
    with np.errstate(invalid="ignore"):
        want = getattr(reference, name)(a, b, *extra)
    assert_close(getattr(ops, name)(a, b, *extra, device=device), want, "elementwise")


def test_refuses(device):
    x = np.ones((2, 3), np.float32)
    with pytest.raises(errors.ArgumentError, match=r"swiglu: up: expected shape \[2, 3\], got \[3, 2\]"):
        ops.swiglu(x, x.T, device=device)
    with pytest.raises(errors.ArgumentError, match="geglu: gate: expected float32, got int64"):
        ops.geglu(np.ones(3, np.int64), x, device=device)
    with pytest.raises(
        errors.ArgumentError, match="sigmoid_gate: x: expected an array with at least one value"
    ):
        ops.sigmoid_gate(x[:0], x[:0], device=device)
    with pytest.raises(errors.ArgumentError, match="limit >= 0"):
        ops.swiglu_clamped(x, x, ALPHA, -1.0, device=device)
