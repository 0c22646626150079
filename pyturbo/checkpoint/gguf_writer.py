"""Write GGUF files of version 3: metadata, and tensors of any type, in one file or in several."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyturbo._arrays import Array
from pyturbo.checkpoint.gguf_names import part_path
from pyturbo.checkpoint.gguf_types import ARRAY, BOOL, MAGIC, NUMBERS, STRING, TYPES
from pyturbo.errors import ArgumentError

_VERSION = 3
_CODES = {dtype: code for code, dtype in NUMBERS.items() if code != BOOL}


@dataclass(frozen=True)
class GgufTensor:
    """A tensor to write. `data` are its bytes in parts, which may be made while they are written."""

    name: str
    type: str  # one of `gguf_types.TYPES`
    shape: tuple[int, ...]  # slowest axis first
    data: Iterable[Any]  # arrays or bytes

    @property
    def nbytes(self) -> int:
        kind = TYPES[self.type]
        return math.prod(self.shape) // kind.values * kind.nbytes

    @staticmethod
    def of(name: str, array: Any, kind: str = "F32", shape: tuple[int, ...] | None = None) -> GgufTensor:
        """Return a tensor with the bytes of an array; `shape` is that of its values if they are in blocks."""
        return GgufTensor(name, kind, array.shape if shape is None else shape, [np.ascontiguousarray(array)])


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Sequence[GgufTensor],
    alignment: int = 32,
    parts: Sequence[int] = (),
) -> list[Path]:
    """Write a file, or with `parts`, the numbers of tensors of each, several; return their paths.

    Python's integers in `metadata` are written as u32, floats as f32; NumPy's numbers and arrays as they are.
    Of several files, the first has the metadata.
    """
    if not parts:
        _write(path, metadata, tensors, alignment)
        return [path]
    if sum(parts) != len(tensors):
        raise ArgumentError(f"write_gguf: parts: expected {len(tensors)} tensors, got {sum(parts)}")
    paths, first = [], 0
    for number, count in enumerate(parts):
        own = {
            "split.no": np.uint16(number),
            "split.count": np.uint16(len(parts)),
            "split.tensors.count": np.int32(len(tensors)),
        }
        paths.append(part_path(path, number, len(parts)))
        some = tensors[first : first + count]
        _write(paths[-1], {**metadata, **own} if number == 0 else own, some, alignment)
        first += count
    return paths


def _write(path: Path, metadata: Mapping[str, Any], tensors: Sequence[GgufTensor], alignment: int) -> None:
    if alignment != 32:
        metadata = {**metadata, "general.alignment": alignment}
    head = [MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(metadata))]
    head += [_string(key) + _value(value) for key, value in metadata.items()]
    offset = 0
    for tensor in tensors:
        sizes, code = tensor.shape[::-1], TYPES[tensor.type].code
        head.append(_string(tensor.name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes))
        head.append(struct.pack("<IQ", code, offset))
        offset += _padded(tensor.nbytes, alignment)
    start = b"".join(head)
    with path.open("wb") as file:
        file.write(start.ljust(_padded(len(start), alignment), b"\0"))
        for tensor in tensors:
            written = sum(file.write(_bytes(part)) for part in tensor.data)
            if written != tensor.nbytes:
                raise ArgumentError(f"{tensor.name}: expected {tensor.nbytes} bytes, got {written}")
            file.write(bytes(_padded(written, alignment) - written))


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _bytes(part: Any) -> Any:
    return part.reshape(-1).view(np.uint8) if isinstance(part, np.ndarray) else part


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, list) and value and isinstance(value[0], str):
        return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(_string, value))
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    numbers: Array = _numbers(value)
    code = BOOL if numbers.dtype == np.bool_ else _CODES[numbers.dtype.newbyteorder("<")]
    kind = struct.pack("<IIQ", ARRAY, code, numbers.size) if numbers.ndim else struct.pack("<I", code)
    return kind + numbers.tobytes()


def _numbers(value: Any) -> Array:
    """Return numbers as an array of the type they are written in."""
    given = np.asarray(value)
    if isinstance(value, (np.generic, np.ndarray)) or given.dtype == np.bool_:
        return given
    return given.astype({"i": np.int32 if given.ndim else np.uint32, "f": np.float32}[given.dtype.kind])
