"""Element types: the order of ``pyturbo::DType``, as NumPy dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from pyturbo.errors import ArgumentError

bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)

#: NumPy dtype by code; the last one, of structs, is seen as bytes.
DTYPES: tuple[np.dtype[Any], ...] = (
    np.dtype(np.float32),
    np.dtype(np.float16),
    bfloat16,
    np.dtype(np.int8),
    np.dtype(np.uint8),
    np.dtype(np.int16),
    np.dtype(np.uint16),
    np.dtype(np.int32),
    np.dtype(np.uint32),
    np.dtype(np.int64),
    np.dtype(np.uint64),
    np.dtype(np.bool_),
    np.dtype(np.uint8),
)

NAMES = (*(dtype.name for dtype in DTYPES[:-1]), "raw")

#: How the storage types of weights are spelled in kernel names.
SUFFIXES: dict[np.dtype[Any], str] = dict(zip(DTYPES, ("f32", "f16", "bf16")))

_CODES: dict[np.dtype[Any], int] = {dtype: code for code, dtype in reversed(tuple(enumerate(DTYPES)))}


def code_of(dtype: Any) -> int:
    """Return the native code of ``"bfloat16"`` or of anything that ``np.dtype`` takes."""
    try:
        return _CODES[bfloat16 if isinstance(dtype, str) and dtype == "bfloat16" else np.dtype(dtype)]
    except (KeyError, TypeError, ValueError):
        raise ArgumentError(f"dtype: expected one of {', '.join(NAMES[:-1])}, got {dtype!r}") from None
