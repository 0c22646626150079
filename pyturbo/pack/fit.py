"""Affine groups with a small squared error, for few bits.

The range of a group that covers all its values wastes codes on outliers: at 2 and 3 bits a narrower one is
better. From such a range on, codes and the line through them are fitted to each other in turn, as in Lloyd's
algorithm: values go to the nearest code, then scale and bias are the least-squares line for these codes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyturbo._arrays import Array
from pyturbo.ops.affine_format import pack

#: Share of the range of a group that the first codes cover. On Gaussian values in groups of 64, four rounds
#: from there come within 1 % of the error that more rounds reach.
_RANGE = {2: 0.7, 3: 0.85}
_ROUNDS = 4

_BLOCK = 1 << 16  # values processed at a time: they stay in a cache
_SMALLEST_SCALE = np.float32(1e-7)


def fit_affine(
    values: Array, bits: int, group_size: int, dtype: np.dtype[Any]
) -> tuple[Array, Array, Array, float]:
    """Quantise float32 [rows, in] -> packed, scales and biases in `dtype`, and the sum of squared errors."""
    groups = values.reshape(-1, group_size)
    packed = np.empty((len(groups), group_size * bits // 32), np.uint32)
    scales, biases = np.empty(len(groups), dtype), np.empty(len(groups), dtype)
    errors, step = 0.0, _BLOCK // group_size
    for first in range(0, len(groups), step):
        part = slice(first, first + step)
        with np.errstate(all="ignore"):  # a group with NaN or inf has such a scale
            codes, scales[part], biases[part], error = _fit(groups[part], bits, dtype)
        packed[part] = pack(codes, bits).reshape(len(codes), -1)
        errors += error
    shape = (len(values), -1)
    return packed.reshape(shape), scales.reshape(shape), biases.reshape(shape), errors


def _fit(w: Array, bits: int, dtype: np.dtype[Any]) -> tuple[Array, Array, Array, float]:
    """Return codes, scales and biases of groups [n, size], and the sum of the squares of all errors."""
    top = np.float32((1 << bits) - 1)
    low, high, mean = w.min(axis=1), w.max(axis=1), w.mean(axis=1)
    half = (high - low) * np.float32(_RANGE[bits] / 2)
    scale, bias = 2 * half / top, (low + high) / 2 - half
    for last in (*[False] * _ROUNDS, True):
        scale, bias = (rounded.astype(np.float32) for rounded in _rounded(scale, bias, dtype))
        q = w - bias[:, None]
        q /= scale[:, None]
        np.rint(q, out=q)
        np.fmax(q, np.float32(0), out=q)  # of NaN and 0 it is 0
        np.fmin(q, top, out=q)
        if not last:
            scale, bias = _line(q, w, mean, scale)
    errors = q * scale[:, None]
    errors += bias[:, None]
    errors -= w
    return q.astype(np.uint8), *_rounded(scale, bias, dtype), float(np.square(errors, dtype=np.float64).sum())


def _line(q: Array, w: Array, mean: Array, scale: Array) -> tuple[Array, Array]:
    """Return scale and bias of the least-squares line w = scale * q + bias of each group.

    If all values of a group have one code, its scale stays.
    """
    mean_q = q.mean(axis=1)
    variance = np.einsum("ij,ij->i", q, q) / np.float32(q.shape[1]) - mean_q * mean_q
    covariance = np.einsum("ij,ij->i", q, w) / np.float32(q.shape[1]) - mean_q * mean
    several = q.min(axis=1) != q.max(axis=1)
    scale = np.where(several, covariance / np.where(several, variance, np.float32(1)), scale)
    return scale, mean - scale * mean_q


def _rounded(scale: Array, bias: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    return np.maximum(scale, _SMALLEST_SCALE).astype(dtype), bias.astype(dtype)
