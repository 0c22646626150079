"""Fitted affine groups: the error that is stated, and less of it than plain rounding has."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pyturbo import ops
from pyturbo.pack.fit import fit_affine

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def values_of(
    packed: np.ndarray, scales: np.ndarray, biases: np.ndarray, bits: int, group: int
) -> np.ndarray:
    return ops.affine_dequantize(packed, scales.astype(np.float32), biases.astype(np.float32), bits, group)


def squared(difference: np.ndarray) -> float:
    return float(np.square(difference, dtype=np.float64).sum())


@pytest.mark.parametrize("dtype", [BFLOAT16, np.dtype(np.float16)], ids=str)
@pytest.mark.parametrize("group", [32, 64])
@pytest.mark.parametrize(("bits", "gain"), [(2, 0.75), (3, 0.9)])
@pytest.mark.parametrize("shape", ["standard_normal", "standard_t", "uniform"])
def test_the_error_is_small_and_as_stated(
    shape: str, bits: int, gain: float, group: int, dtype: np.dtype
) -> None:
    rng = np.random.default_rng(4)
    draw = {
        "standard_normal": rng.standard_normal,
        "standard_t": lambda size: rng.standard_t(4, size),
        "uniform": lambda size: rng.uniform(-1, 1, size),
    }[shape]
    w = (0.02 * draw((37, 5 * 64))).astype(np.float32)
    packed, scales, biases, error = fit_affine(w, bits, group, dtype)
    assert (scales.dtype, scales.shape) == (dtype, (37, 5 * 64 // group))
    got = values_of(packed, scales, biases, bits, group)
    assert error == pytest.approx(squared(got - w), rel=1e-9)
    plain = values_of(*ops.affine_quantize(w.astype(dtype), bits, group), bits, group)
    assert error < squared(plain - w) * (1.0 if shape == "uniform" else gain)


def test_groups_that_a_line_cannot_be_fitted_to() -> None:
    """One value only, a single outlier, two values, zeros, and values too small for a scale.

    Thirds of the ranges are exact in bfloat16.
    """
    w = np.zeros((6, 64), np.float32)
    w[0] = 0.5
    w[1, 3] = 3.0
    w[2, ::2], w[2, 1::2] = -1.0, 0.5
    w[4] = np.linspace(-1e-9, 1e-9, 64)
    w[5] = -3.0
    packed, scales, biases, error = fit_affine(w, 2, 64, BFLOAT16)
    got = values_of(packed, scales, biases, 2, 64)
    np.testing.assert_allclose(got, w, atol=3e-7)
    assert error < 1e-11


def test_damaged_values_stay_in_their_group() -> None:
    w = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    w[1, 5], w[2, 5] = np.nan, np.inf
    packed, scales, biases, _ = fit_affine(w, 3, 64, BFLOAT16)
    got = values_of(packed, scales, biases, 3, 64)
    assert np.isfinite(got[0]).all()
    assert np.isnan(got[1]).all()
    assert not np.isfinite(got[2]).any()


def test_blocks_do_not_matter() -> None:
    w = np.random.default_rng(2).standard_normal((2048, 64)).astype(np.float32)
    whole = fit_affine(w, 2, 64, BFLOAT16)
    parts = [fit_affine(w[first : first + 500], 2, 64, BFLOAT16) for first in range(0, 2048, 500)]
    for i in range(3):
        assert np.concatenate([part[i] for part in parts]).tobytes() == whole[i].tobytes()
