"""A run of tokens on disk, with their rows and perhaps the rest of the state after them.

16 bytes   "pyturbo prefix\\0\\0"
 4 bytes   version, little-endian
 4 bytes   length of the header
 header    JSON: model, model_type, kv, codec, layout, parent, start, count, rows_bytes, rows_sha256,
           rest_bytes, rest_sha256
 tokens    int32, little-endian, `count` of them
32 bytes   SHA-256 of everything before, which names the file
 rows      of these tokens, piece by piece
 rest      of the state after them; it may be empty
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyturbo._messages import shown
from pyturbo.checkpoint import json_file
from pyturbo.checkpoint.file import TensorFile
from pyturbo.engine.prefix_parts import Bytes, StateParts
from pyturbo.errors import FormatError
from pyturbo.files.replace import new_file
from pyturbo.files.target import require_replaceable

MAGIC = b"pyturbo prefix\0\0"
VERSION = 1
SUFFIX = ".prefix"

_HEAD = struct.Struct("<16sII")
_DIGEST = 32
_LARGEST_HEADER = 1 << 16
_BLOCK = 1 << 20  # bytes that are compared at once


@dataclass(frozen=True)
class Stored:
    """A file that was found or written.

    Attributes:
        path: Where it is.
        name: The hash that names it, in hexadecimal.
        parent: The name of the file that has the token before its first one; None at the beginning.
        start: Tokens before its first one.
        tokens: The run; it may be empty, if the file has a rest only.
    """

    path: Path
    name: str
    parent: str | None
    start: int
    tokens: NDArray[np.int32]
    offset: int  # of the rows
    rows_bytes: int
    rows_sha256: str
    rest_bytes: int
    rest_sha256: str

    def rows(self) -> Bytes:
        """Read the rows; FormatError if they are not what was written, FileError if the file is gone."""
        return self._section(self.offset, self.rows_bytes, self.rows_sha256, "rows")

    def rest(self) -> Bytes:
        """Read the rest, in the same way."""
        return self._section(self.offset + self.rows_bytes, self.rest_bytes, self.rest_sha256, "rest")

    def _section(self, offset: int, nbytes: int, sha256: str, what: str) -> Bytes:
        file = TensorFile(self.path)
        try:
            if file.size < offset + nbytes:
                raise FormatError(f"{self.path}: expected {offset + nbytes} bytes, got {file.size}")
            data = file.bytes(offset, nbytes)
        finally:
            file.close()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise FormatError(f"{self.path}: {what}: expected the checksum it was written with")
        return np.frombuffer(data, np.uint8)


def write(
    folder: Path,
    identity: dict[str, Any],
    parent: str | None,
    start: int,
    tokens: NDArray[np.int32],
    rows: Bytes,
    rest: Bytes,
) -> Stored:
    """Write a file into `folder`, completely or not at all. One that is there, and whole, stays."""
    sizes = {
        "rows_bytes": rows.nbytes,
        "rows_sha256": hashlib.sha256(rows.data).hexdigest(),
        "rest_bytes": rest.nbytes,
        "rest_sha256": hashlib.sha256(rest.data).hexdigest(),
    }
    header = identity | {"parent": parent, "start": start, "count": len(tokens)} | sizes
    text = json.dumps(header, sort_keys=True).encode()
    head = _HEAD.pack(MAGIC, VERSION, len(text)) + text + tokens.astype("<i4").tobytes()
    digest = hashlib.sha256(head).digest()
    name = digest.hex()
    path = folder / f"{name[:32]}{SUFFIX}"
    parts = (head, digest, rows.data, rest.data)
    if not _holds(path, parts):
        with (
            new_file(path, _require_replaceable, mode=0o600) as descriptor,
            os.fdopen(descriptor, "wb", closefd=False) as file,
        ):
            for part in parts:
                file.write(part)
    return Stored(path, name, parent, start, tokens, len(head) + _DIGEST, **sizes)  # type: ignore[arg-type]


def _holds(path: Path, parts: Sequence[Any]) -> bool:
    """Return whether a file can be read and has these bytes, one part after the other."""
    try:
        if path.stat().st_size != sum(len(part) for part in parts):
            return False
        with path.open("rb") as file:
            for part in parts:
                whole = np.frombuffer(part, np.uint8)
                for begin in range(0, len(whole), _BLOCK):
                    wanted = whole[begin : begin + _BLOCK]
                    if not np.array_equal(np.frombuffer(file.read(len(wanted)), np.uint8), wanted):
                        return False
    except OSError:
        return False
    return True


def _require_replaceable(path: Path) -> None:
    require_replaceable(path, lambda head: True, "a file of a prefix store")  # so says its name


def read(path: Path, identity: dict[str, Any], parts: StateParts) -> Stored:
    """Read everything but rows and rest; FormatError for a file that this model cannot use."""
    file = TensorFile(path)
    try:
        if file.size < _HEAD.size + _DIGEST or file.bytes(0, len(MAGIC)) != MAGIC:
            raise FormatError(f"{path}: expected a file of a prefix store, got something else")
        _, version, length = _HEAD.unpack(file.bytes(0, _HEAD.size))
        if version != VERSION:
            raise FormatError(f"{path}: expected version {VERSION}, got {version}")
        begin, most = _HEAD.size + length, min(_LARGEST_HEADER, file.size - _HEAD.size - _DIGEST)
        if length > most:
            raise FormatError(f"{path}: header: expected at most {most} bytes, got {length}")
        header = json_file.parse_object(file.bytes(_HEAD.size, length), str(path))
        _check(path, header, identity, parts)
        offset = begin + 4 * header["count"] + _DIGEST
        if file.size != (size := offset + header["rows_bytes"] + header["rest_bytes"]):
            raise FormatError(f"{path}: expected {size} bytes, got {file.size}")
        head = file.bytes(0, offset)
    finally:
        file.close()
    digest = hashlib.sha256(head[:-_DIGEST]).digest()
    if digest != head[-_DIGEST:]:
        raise FormatError(f"{path}: expected the checksum it was written with")
    tokens = np.frombuffer(head[begin:-_DIGEST], "<i4").astype(np.int32)
    if (wrong := tokens[(tokens < 0) | (tokens >= parts.vocab)]).size:
        raise FormatError(f"{path}: tokens: expected 0 to {parts.vocab - 1}, got {wrong[0]}")
    sizes = {name: header[name] for name in ("rows_bytes", "rows_sha256", "rest_bytes", "rest_sha256")}
    return Stored(path, digest.hex(), header["parent"], header["start"], tokens, offset, **sizes)


def _check(path: Path, header: dict[str, Any], identity: dict[str, Any], parts: StateParts) -> None:
    """Refuse a header of another model, or one that cannot be true."""
    for name, expected in identity.items():
        if header.get(name) != expected:
            raise FormatError(f"{path}: {name}: expected {shown(expected)}, got {shown(header.get(name))}")
    start, count, parent = header.get("start"), header.get("count"), header.get("parent")
    if type(start) is not int or type(count) is not int or min(start, count, start + count - 1) < 0:
        raise FormatError(f"{path}: expected counts of tokens, got {shown(start)} and {shown(count)}")
    if start + count > parts.context:
        raise FormatError(f"{path}: expected at most {parts.context} tokens, got {start + count}")
    if not (parent is None if start == 0 else isinstance(parent, str)):
        raise FormatError(f"{path}: parent: expected the name of a file, or none at the beginning")
    rests = (0, parts.rest_bytes(start + count)) if count else (parts.rest_bytes(start),)
    if type(header.get("rest_bytes")) is not int or header["rest_bytes"] not in rests:
        raise FormatError(f"{path}: rest_bytes: expected {rests[-1]}, got {shown(header.get('rest_bytes'))}")
    if header.get("rows_bytes") != count * parts.row_bytes:
        raise FormatError(f"{path}: rows_bytes: expected {count * parts.row_bytes}")
    for name in ("rows_sha256", "rest_sha256"):
        if not isinstance(header.get(name), str):
            raise FormatError(f"{path}: {name}: expected a checksum, got {shown(header.get(name))}")
