"""A conversation on disk: its state as it lies in memory, with all that must match to use it again.

16 bytes   "pyturbo session\\0"
 4 bytes   version, little-endian
 4 bytes   length of the header
 header    JSON: model, context, chunk, position, pending, kv, codec, notes, state_bytes
 state     the block
32 bytes   SHA-256 of everything before
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyturbo.checkpoint import json_file
from pyturbo.errors import ArgumentError, FileError, FormatError

MAGIC = b"pyturbo session\0"
VERSION = 1

_HEAD = struct.Struct("<16sII")
_DIGEST = 32
_LARGEST_HEADER = 1 << 24


def write(path: Path, header: dict[str, Any], state: NDArray[np.uint8]) -> None:
    """Writes beside `path` and renames, so that there is always a whole file under that name, or none."""
    text = json.dumps(header | {"state_bytes": state.nbytes}, sort_keys=True).encode()
    if len(text) > _LARGEST_HEADER:
        raise ArgumentError(
            f"{path}: notes: expected a header of at most {_LARGEST_HEADER} bytes, got {len(text)}"
        )
    parts = (_HEAD.pack(MAGIC, VERSION, len(text)), text, state.data)
    digest = hashlib.sha256()
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for part in parts:
                    digest.update(part)
                    file.write(part)
                file.write(digest.digest())
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be written: {_reason(error)}") from error


def read(path: Path, expected: dict[str, Any]) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """Header and state of a file whose header agrees with `expected` in every entry of that."""
    try:
        data = memoryview(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be read: {_reason(error)}") from error
    if len(data) < _HEAD.size + _DIGEST or data[: len(MAGIC)] != MAGIC:
        raise FormatError(f"{path}: expected a pyturbo session, got something else")
    _, version, length = _HEAD.unpack_from(data)
    if version != VERSION:
        raise FormatError(f"{path}: expected version {VERSION}, got {version}")
    if hashlib.sha256(data[:-_DIGEST]).digest() != data[-_DIGEST:]:
        raise FormatError(f"{path}: expected the checksum it was written with; the file is damaged")
    if length > min(_LARGEST_HEADER, len(data) - _HEAD.size - _DIGEST):
        raise FormatError(f"{path}: expected a header of at most {_LARGEST_HEADER} bytes, got {length}")
    header = json_file.parse_object(bytes(data[_HEAD.size : _HEAD.size + length]), str(path))
    for name, value in expected.items():
        if header.get(name) != value:
            raise FormatError(f"{path}: {name}: expected {value!r}, got {header.get(name)!r}")
    state = np.frombuffer(data, np.uint8)[_HEAD.size + length : -_DIGEST]
    if state.nbytes != header.get("state_bytes"):
        raise FormatError(
            f"{path}: state: expected {header.get('state_bytes')} bytes, got {state.nbytes} in the file"
        )
    return header, state


def _reason(error: OSError | ValueError) -> str:
    """In the system's words; a path with a zero byte is a ValueError."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
