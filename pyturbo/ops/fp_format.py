"""The MLX formats of small floats on the host.

| mode | codes | group | scales |
|---|---|---|---|
| mxfp4 | E2M1, 4 bits | 32 | E8M0 |
| mxfp8 | E4M3, 8 bits | 32 | E8M0 |
| nvfp4 | E2M1, 4 bits | 16 | E4M3, and optionally a float32 for the whole array |
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike

from pyturbo._dtypes import SUFFIXES
from pyturbo._messages import shown
from pyturbo.errors import ArgumentError
from pyturbo.ops._run import Array, as_array, operand
from pyturbo.ops.affine_format import blocks, pack, unpack

#: Bits of a code and values of a group by mode.
FP_FORMATS = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}

#: The divisor of a global scale: the largest E4M3 times the largest E2M1.
GLOBAL_UNIT = np.float32(448 * 6)

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_MIDDLES = (_E2M1[:7] + _E2M1[1:8]) / 2  # between neighbouring values
_E4M3 = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
_E8M0 = np.append(np.ldexp(np.float32(1), np.arange(255) - 127), np.float32(np.nan))

_E4M3_NAN = np.uint8(0x7F)


def check_mode(op: str, mode: str) -> tuple[int, int]:
    """Return bits and group size."""
    if not isinstance(mode, str) or mode not in FP_FORMATS:
        raise ArgumentError(f"{op}: mode: expected one of {', '.join(FP_FORMATS)}, got {shown(mode)}")
    return FP_FORMATS[mode]


def check_global_scale(
    op: str, mode: str, value: ArrayLike | None, count: int, name: str = "global_scale"
) -> Array | None:
    """Return the global scales of `count` matrices as float32 [count]; messages call them `name`."""
    if value is None:
        return None
    if mode != "nvfp4":
        raise ArgumentError(f"{op}: {name}: expected None for {mode}, got a value")
    array = as_array(op, name, value, np.float32)
    if array.dtype != np.float32 or array.size != count:
        raise ArgumentError(
            f"{op}: {name}: expected {count} float32, got {array.dtype} of shape {list(array.shape)}"
        )
    return operand(op, name, array.reshape(count), np.float32, (count,), stack=True)


def fp_quantize(w: ArrayLike, mode: str = "mxfp4", global_scale: float | None = None) -> tuple[Array, Array]:
    """Quantise w [..., in] in float32, float16 or bfloat16 -> packed [..., in * bits / 32], uint8 scales.

    Let m be the largest magnitude of a group and t that of a code, 6 or 448. The scale of mxfp4 and mxfp8 is
    the smallest power of two that is at least m / t, or 1 for a group of zeros. That of nvfp4 is m / t, times
    2688 / global_scale if there is one, rounded to E4M3. Values divided by their scale are rounded to the
    nearest code: halfway values of E2M1 towards zero, of E4M3 to the even code. Larger values saturate.
    Everything is computed in float32.

    ``mx.quantize`` of MLX 0.32 on a CPU gives the same bits, except for groups whose m / t is out of the
    range of scales, and for those with NaN or infinity, whose scale is NaN here.
    """
    op = "fp_quantize"
    bits, group = check_mode(op, mode)
    array = as_array(op, "w", w)
    if array.dtype not in SUFFIXES:
        raise ArgumentError(f"{op}: w: expected float32, float16 or bfloat16, got {array.dtype}")
    if array.ndim == 0 or array.shape[-1] == 0 or array.shape[-1] % 32:
        raise ArgumentError(f"{op}: w: expected a last axis in units of 32, got shape {list(array.shape)}")
    whole = check_global_scale(op, mode, global_scale, 1)
    factor = np.float32(1) if whole is None else GLOBAL_UNIT / whole[0]
    rows = array.reshape(math.prod(array.shape[:-1]), array.shape[-1])
    packed = np.empty((len(rows), array.shape[-1] // 32 * bits), np.uint32)
    scales = np.empty((len(rows), array.shape[-1] // group), np.uint8)
    for part in blocks(rows.shape):
        groups = rows[part].astype(np.float32).reshape(-1, group)
        with np.errstate(all="ignore"):
            scale, values = _scaled(groups, mode, factor)
            codes = _e4m3_codes(values) if mode == "mxfp8" else _e2m1_codes(values)
        scales[part] = scale.reshape(scales[part].shape)
        packed[part] = pack(codes, bits).reshape(packed[part].shape)
    lead = array.shape[:-1]
    return packed.reshape(*lead, packed.shape[1]), scales.reshape(*lead, scales.shape[1])


def fp_dequantize(
    packed: ArrayLike, scales: ArrayLike, mode: str, global_scale: float | None = None
) -> Array:
    """Return the values of a quantised array as float32: code * scale, exact, times global_scale / 2688.

    Examples:
        >>> packed, scales = pyturbo.ops.fp_quantize(np.arange(32, dtype="float32"), "mxfp8")
        >>> pyturbo.ops.fp_dequantize(packed, scales, "mxfp8")[15:19]
        array([15., 16., 16., 18.], dtype=float32)
    """
    op = "fp_dequantize"
    bits, group = check_mode(op, mode)
    words, scale = as_array(op, "packed", packed), as_array(op, "scales", scales)
    for name, array, dtype in (("packed", words, np.uint32), ("scales", scale, np.uint8)):
        if array.dtype != dtype:
            raise ArgumentError(f"{op}: {name}: expected {np.dtype(dtype)}, got {array.dtype}")
    if words.ndim == 0 or words.shape[-1] == 0 or words.shape[-1] % bits:
        raise ArgumentError(
            f"{op}: packed: expected rows of {bits}-bit codes in units of 32, got shape {list(words.shape)}"
        )
    groups = (*words.shape[:-1], words.shape[-1] * 32 // bits // group)
    if scale.shape != groups:
        raise ArgumentError(f"{op}: scales: expected shape {list(groups)}, got {list(scale.shape)}")
    whole = check_global_scale(op, mode, global_scale, 1)
    numbers, scale_numbers = _E4M3 if bits == 8 else _E2M1, _E4M3 if mode == "nvfp4" else _E8M0
    out = np.empty((*words.shape[:-1], groups[-1] * group), np.float32)
    flat = out.reshape(math.prod(out.shape[:-1]), out.shape[-1])
    words, scale = (a.reshape(len(flat), a.shape[-1]) for a in (words, scale))
    for part in blocks(flat.shape):
        codes = unpack(words[part], bits).reshape(-1, group)
        with np.errstate(all="ignore"):
            values = numbers[codes] * scale_numbers[scale[part]].reshape(-1, 1)
        flat[part] = values.reshape(flat[part].shape)
    if whole is not None:
        out *= whole[0] / GLOBAL_UNIT
    return out


def _scaled(groups: Array, mode: str, factor: np.float32) -> tuple[Array, Array]:
    """Return the code of each group's scale, and the values of the group divided by that scale."""
    most = np.abs(groups).max(axis=1)
    raw = most / np.float32(448 if mode == "mxfp8" else 6)
    if mode == "nvfp4":
        scale = np.where(np.isfinite(most), _e4m3_codes(raw * factor), _E4M3_NAN)
        values = groups * factor / _E4M3[scale][:, None]
        return scale, np.where(scale[:, None] == 0, np.float32(0), values)
    fraction, exponent = np.frexp(raw)  # raw = fraction * 2^exponent with 1/2 <= fraction < 1
    exponent = np.where(raw == 0, 0, np.where(fraction == 0.5, exponent - 1, exponent))
    scale = np.where(np.isfinite(most), np.clip(exponent + 127, 0, 254), 255).astype(np.uint8)
    return scale, groups / _E8M0[scale][:, None]


def _e4m3_codes(values: Array) -> Array:
    """Return the nearest codes, the even one of halfway values; larger values saturate."""
    nearest = np.clip(values, np.float32(-448), np.float32(448)).astype(ml_dtypes.float8_e4m3fn)
    return nearest.view(np.uint8)


def _e2m1_codes(values: Array) -> Array:
    """Return the nearest codes, the one nearer to zero of halfway values; larger values saturate."""
    codes = np.searchsorted(_MIDDLES, np.abs(values), side="left")
    return np.where((values < 0) & (codes > 0), codes | 8, codes).astype(np.uint8)
