"""The MLX "affine" format on the host, bit for bit like ``mx.quantize`` and ``mx.dequantize`` on a CPU."""

from __future__ import annotations

import math
import sys

import numpy as np
from numpy.typing import ArrayLike

from pyturbo._dtypes import SUFFIXES
from pyturbo.errors import ArgumentError
from pyturbo.ops._run import Array, as_array

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)

_UNIT = 32  # values that fill `bits` whole words
_BLOCK = 1 << 16  # values processed at a time: their float32 and codes stay in a cache
_SMALLEST_SCALE = np.float32(1e-7)


def check_format(op: str, bits: int, group_size: int) -> tuple[int, int]:
    """Check both and return them as plain integers."""
    for name, value, known in (("bits", bits, BITS), ("group_size", group_size, GROUP_SIZES)):
        if not isinstance(value, (int, np.integer)) or value not in known:
            raise ArgumentError(f"{op}: {name}: expected one of {known}, got {value!r}")
    return int(bits), int(group_size)


def affine_quantize(w: ArrayLike, bits: int = 4, group_size: int = 64) -> tuple[Array, Array, Array]:
    """Quantise w [..., in] in float32, float16 or bfloat16 -> packed [..., in * bits / 32], scales, biases.

    Zero is representable, and the end of the range that is farther from zero is exact.
    """
    op = "affine_quantize"
    bits, group_size = check_format(op, bits, group_size)
    array = as_array(op, "w", w)
    if array.dtype not in SUFFIXES:
        raise ArgumentError(f"{op}: w: expected float32, float16 or bfloat16, got {array.dtype}")
    if array.ndim == 0 or array.shape[-1] == 0 or array.shape[-1] % group_size:
        raise ArgumentError(
            f"{op}: w: expected a last axis in whole groups of {group_size}, got shape {list(array.shape)}"
        )
    rows = array.reshape(math.prod(array.shape[:-1]), array.shape[-1])
    packed = np.empty((len(rows), array.shape[-1] // _UNIT * bits), np.uint32)
    scales = np.empty((len(rows), array.shape[-1] // group_size), array.dtype)
    biases = np.empty_like(scales)
    for part in blocks(rows.shape):
        groups = rows[part].astype(np.float32).reshape(-1, group_size)
        with np.errstate(all="ignore"):  # a group with NaN, inf or an overflowing range has such a scale
            codes, scale, bias = _quantize_groups(groups, (1 << bits) - 1)
            scales[part] = scale.reshape(scales[part].shape).astype(array.dtype)
            biases[part] = bias.reshape(biases[part].shape).astype(array.dtype)
        packed[part] = pack(codes, bits).reshape(packed[part].shape)
    lead = array.shape[:-1]
    shape = (*lead, scales.shape[1])
    return packed.reshape(*lead, packed.shape[1]), scales.reshape(shape), biases.reshape(shape)


def affine_dequantize(
    packed: ArrayLike, scales: ArrayLike, biases: ArrayLike, bits: int, group_size: int
) -> Array:
    """Return the values of a quantised array in the type of its scales; product and sum are rounded to it."""
    op = "affine_dequantize"
    bits, group_size = check_format(op, bits, group_size)
    words, scale, bias = (
        as_array(op, name, value)
        for name, value in (("packed", packed), ("scales", scales), ("biases", biases))
    )
    if words.dtype != np.uint32:
        raise ArgumentError(f"{op}: packed: expected uint32, got {words.dtype}")
    if scale.dtype not in SUFFIXES:
        raise ArgumentError(f"{op}: scales: expected float32, float16 or bfloat16, got {scale.dtype}")
    if bias.dtype != scale.dtype:
        raise ArgumentError(f"{op}: biases: expected {scale.dtype}, got {bias.dtype}")
    values = words.shape[-1] * 32 // bits if words.ndim else 0
    if values == 0 or words.shape[-1] % bits or values % group_size:
        raise ArgumentError(
            f"{op}: packed: expected rows of {bits}-bit values in whole groups of {group_size}, "
            f"got shape {list(words.shape)}"
        )
    groups = (*words.shape[:-1], values // group_size)
    for name, array in (("scales", scale), ("biases", bias)):
        if array.shape != groups:
            raise ArgumentError(f"{op}: {name}: expected shape {list(groups)}, got {list(array.shape)}")
    out = np.empty((*words.shape[:-1], values), scale.dtype)
    flat = out.reshape(math.prod(out.shape[:-1]), values)
    words, scale, bias = (a.reshape(len(flat), a.shape[-1]) for a in (words, scale, bias))
    for part in blocks(flat.shape):
        codes = unpack(words[part], bits).reshape(-1, group_size).astype(scale.dtype)
        with np.errstate(all="ignore"):
            product = codes * scale[part].reshape(-1, 1)
            flat[part] = (product + bias[part].reshape(-1, 1)).reshape(flat[part].shape)
    return out


def blocks(shape: tuple[int, ...]) -> list[slice]:
    """Cut rows into slices of at most _BLOCK values, or of one row."""
    step = max(1, _BLOCK // shape[1])
    return [slice(start, min(start + step, shape[0])) for start in range(0, shape[0], step)]


def _quantize_groups(w: Array, top: int) -> tuple[Array, Array, Array]:
    """Return codes 0..top, scale and bias of each row of w, in float32."""
    low, high = w.min(axis=1), w.max(axis=1)
    scale = np.maximum((high - low) / np.float32(top), _SMALLEST_SCALE)
    from_low = np.abs(low) > np.abs(high)
    scale = np.where(from_low, scale, -scale)
    edge = np.where(from_low, low, high)
    zero = np.rint(edge / scale)  # the code of 0
    exact = zero != 0
    scale = np.where(exact, edge / np.where(exact, zero, np.float32(1)), scale)
    bias = np.where(exact, edge, np.float32(0))
    codes = w - bias[:, None]
    codes /= scale[:, None]
    np.rint(codes, out=codes)
    np.fmax(codes, np.float32(0), out=codes)  # of NaN and 0 it is 0
    np.fmin(codes, np.float32(top), out=codes)
    return codes.astype(np.uint8), scale, bias


def pack(codes: Array, bits: int) -> Array:
    """Pack codes, in units of 32, into a little-endian stream of words [units, bits]."""
    if 8 % bits == 0 and sys.byteorder == "little":
        whole = codes.reshape(-1, 8 // bits)
        packed: Array = whole[:, 0].copy()
        for i in range(1, 8 // bits):
            packed |= whole[:, i] << np.uint8(i * bits)
        stream: Array = packed.view(np.uint32)
        return stream.reshape(-1, bits)
    units = codes.reshape(-1, _UNIT).astype(np.uint32)
    words = np.zeros((len(units), bits), np.uint32)
    for i in range(_UNIT):
        word, shift = divmod(i * bits, 32)
        words[:, word] |= units[:, i] << np.uint32(shift)
        if shift + bits > 32:
            words[:, word + 1] |= units[:, i] >> np.uint32(32 - shift)
    return words


def unpack(words: Array, bits: int) -> Array:
    """Return the codes [units, 32] of a stream of words."""
    units = words.reshape(-1, bits)
    codes = np.empty((len(units), _UNIT), np.uint32)
    for i in range(_UNIT):
        word, shift = divmod(i * bits, 32)
        codes[:, i] = units[:, word] >> np.uint32(shift)
        if shift + bits > 32:
            codes[:, i] |= units[:, word + 1] << np.uint32(32 - shift)
    codes &= np.uint32((1 << bits) - 1)
    return codes
