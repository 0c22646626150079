"""Float64 references of pyturbo.ops.fp, from the definitions of the formats."""

from typing import NamedTuple

import numpy as np

from reference import affine

GROUPS = {"mxfp4": 32, "mxfp8": 32, "nvfp4": 16}


class Weight(NamedTuple):
    """A quantised array [..., out, in], as the operations take it."""

    packed: np.ndarray
    scales: np.ndarray
    mode: str
    global_scale: np.ndarray | None = None


def small_float(codes, exponent_bits, mantissa_bits):
    """Sign, exponent with bias 2^(bits - 1) - 1 and mantissa; no infinities."""
    exponent = (codes >> mantissa_bits) & ((1 << exponent_bits) - 1)
    fraction = (codes & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    bias = (1 << (exponent_bits - 1)) - 1
    value = np.where(exponent > 0, 2.0 ** (exponent - bias) * (1 + fraction), 2.0 ** (1 - bias) * fraction)
    return np.where(codes >> (exponent_bits + mantissa_bits), -value, value)


def e2m1(codes):
    return small_float(codes, 2, 1)


def e4m3(codes):
    return np.where((codes & 0x7F) == 0x7F, np.nan, small_float(codes, 4, 3))


def e8m0(codes):
    return np.where(codes == 255, np.nan, 2.0 ** (codes - 127.0))


def codes(w):
    """The codes [..., out, in], the first of a byte in its low half."""
    stream = np.ascontiguousarray(w.packed, "<u4").view(np.uint8).astype(np.int64)
    if w.mode == "mxfp8":
        return stream
    return np.stack([stream & 15, stream >> 4], axis=-1).reshape(*stream.shape[:-1], -1)


def dequantize(w):
    numbers = e4m3(codes(w)) if w.mode == "mxfp8" else e2m1(codes(w))
    scales = w.scales.astype(np.int64)
    scales = e4m3(scales) if w.mode == "nvfp4" else e8m0(scales)
    values = numbers * np.repeat(scales, GROUPS[w.mode], -1)
    if w.global_scale is not None:
        values *= w.global_scale.astype(np.float64).reshape(*w.packed.shape[:-2], 1, 1) / (448 * 6)
    return values


def matmul(x, w):
    """x [tokens, in] @ w [out, in]^T, and the sum of the magnitudes that are added in it."""
    x, values = x.astype(np.float64), dequantize(w)
    return x @ values.T, np.abs(x) @ np.abs(values).T


def swiglu(x, gate, up):
    """silu(x gate^T) * (x up^T), and the magnitude that the errors of both products make in it."""
    return affine.gated(matmul(x, gate), matmul(x, up))


def expert(w, e):
    """A copy of matrix e of a stack."""
    one = None if w.global_scale is None else w.global_scale[e : e + 1].copy()
    return w._replace(packed=w.packed[e].copy(), scales=w.scales[e].copy(), global_scale=one)


def per_expert(product, x, ids, *stacks):
    """`product` of x [tokens, in] or [tokens, k, in] with the experts ids [tokens, k] of the stacks."""
    return affine.per_expert(product, x, ids, *stacks, expert=expert)


def grouped_matmul(x, offsets, w):
    return affine.per_bucket(matmul, x, offsets, w, expert=expert)


def grouped_swiglu(x, offsets, gate, up):
    return affine.per_bucket(swiglu, x, offsets, gate, up, expert=expert)
