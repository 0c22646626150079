"""Headers of safetensors files: eight bytes of length, a JSON object, then the data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from pyturbo._dtypes import bfloat16
from pyturbo._messages import shown
from pyturbo.checkpoint import json_file
from pyturbo.checkpoint.file import TensorFile
from pyturbo.checkpoint.tensors import TensorInfo, check_ranges
from pyturbo.errors import FormatError

DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": bfloat16,
    "F64": np.dtype(np.float64),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(np.uint8),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "BOOL": np.dtype(np.bool_),
}

_MOST_AXES = 8
_LARGEST = 2**62  # bounds sizes in bytes, and offsets


def read_header(path: Path) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    """Read the tensors of a file in the order of their data, and its metadata."""
    file = TensorFile(path)
    if file.size < 8:
        raise FormatError(f"{path}: expected 8 bytes of header length, got a file of {file.size} bytes")
    length = int.from_bytes(file.bytes(0, 8), "little")
    if length > json_file.LONGEST or length > file.size - 8:
        raise FormatError(
            f"{path}: header length: expected at most {min(json_file.LONGEST, file.size - 8)}, got {length}"
        )
    header = json_file.parse_object(file.bytes(8, length), f"{path}: header")
    metadata = _metadata(path, header.pop("__metadata__", {}))
    start = 8 + length
    found = [_tensor(file, name, entry, start) for name, entry in header.items()]
    found.sort(key=lambda info: (info.offset, info.nbytes))
    check_ranges(found)
    return {info.name: info for info in found}, metadata


def _metadata(path: Path, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise FormatError(f"{path}: __metadata__: expected an object of strings, got {shown(value)}")
    return value


def _tensor(file: TensorFile, name: str, entry: Any, start: int) -> TensorInfo:
    where = f"{file.path}: {shown(name)}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise FormatError(f"{where}: expected dtype, shape and data_offsets, got {shown(entry)}")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise FormatError(f"{where}: dtype: expected one of {', '.join(DTYPES)}, got {shown(kind)}")
    dtype = DTYPES[kind]
    if not _sizes(shape) or len(shape) > _MOST_AXES:
        raise FormatError(f"{where}: shape: expected up to {_MOST_AXES} sizes, got {shown(shape)}")
    if math.prod(size for size in shape if size) * dtype.itemsize > _LARGEST:
        raise FormatError(f"{where}: shape: expected fewer elements than {shown(shape)}")
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FormatError(f"{where}: data_offsets: expected begin and end, got {shown(offsets)}")
    begin, end = offsets
    if end > file.size - start:
        raise FormatError(
            f"{where}: data_offsets: expected at most {file.size - start}, got {shown(offsets)}"
        )
    if math.prod(shape) * dtype.itemsize != end - begin:
        raise FormatError(
            f"{where}: expected {math.prod(shape) * dtype.itemsize} bytes for {kind} {shown(shape)}, "
            f"got {end - begin}"
        )
    return TensorInfo(name, kind, tuple(shape), file, start + begin, end - begin, dtype, tuple(shape))


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= _LARGEST for n in value)
