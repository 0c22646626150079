"""Headers of GGUF files, versions 2 and 3, little-endian: metadata, then tensors, then their data."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyturbo._arrays import Array
from pyturbo._dtypes import bfloat16
from pyturbo._messages import shown
from pyturbo.checkpoint.file import TensorFile
from pyturbo.checkpoint.gguf_types import ARRAY, BOOL, MAGIC, NUMBERS, OTHER_TYPES, STRING, TYPES
from pyturbo.checkpoint.tensors import TensorInfo, check_ranges
from pyturbo.errors import FormatError

_VERSIONS = (2, 3)
_MOST_AXES = 4
_MOST_STRINGS = 1 << 22  # of one array; the largest vocabularies have 2^18
_LONGEST = 1 << 28  # bytes of metadata and descriptions of tensors; a file with holes could claim any number

_NAMES = {kind.code: name for name, kind in TYPES.items()}

_FLOATS: dict[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": bfloat16,
}


@dataclass(frozen=True)
class Header:
    path: Path  # of the file with the metadata
    #: Numbers, booleans and text; arrays as lists of text or as arrays of numbers.
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    metadata_end: int  # where the metadata ends in the file


def read_header(path: Path) -> Header:
    """Read the metadata and the tensors, in the order of the file."""
    file = TensorFile(path)
    if not file.size:
        raise FormatError(f"{path}: expected a GGUF file, it is empty")
    reader = _Reader(file)
    if reader.bytes(4, "magic") != MAGIC:
        raise FormatError(f"{path}: expected a GGUF file")
    version = reader.integer("<I", "version")
    if version not in _VERSIONS:
        raise FormatError(f"{path}: version: expected 2 or 3, little-endian, got {version:#x}")
    tensor_count = reader.count("number of tensors", smallest=32)
    metadata_count = reader.count("number of metadata entries", smallest=13)
    metadata: dict[str, Any] = {}
    for _ in range(metadata_count):
        key = reader.string("a metadata key")
        if key in metadata:
            raise FormatError(f"{path}: {shown(key)}: occurs twice")
        metadata[key] = _value(reader, key)
    metadata_end = reader.position
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise FormatError(f"{path}: general.alignment: expected a power of two, got {shown(alignment)}")
    described = [_Described.read(reader) for _ in range(tensor_count)]
    start = -(-reader.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for one in described:
        if one.name in tensors:
            raise FormatError(f"{path}: {shown(one.name)}: occurs twice")
        tensors[one.name] = one.located(file, start, alignment)
    check_ranges(tensors.values())
    return Header(path, metadata, tensors, metadata_end)


def without_tensors(header: Header) -> bytes:
    """Return the content of a GGUF file with the metadata of a header, and no tensors."""
    file = TensorFile(header.path)
    try:
        data = file.bytes(0, header.metadata_end)
    finally:
        file.close()
    count = struct.calcsize("<4sI"), struct.calcsize("<4sIQ")  # the place of the number of tensors
    return data[: count[0]] + bytes(count[1] - count[0]) + data[count[1] :]


@dataclass(frozen=True)
class _Described:
    """A tensor as the file describes it, unchecked."""

    name: str
    shape: tuple[int, ...]  # slowest axis first
    type: int
    offset: int  # from the start of the data

    @staticmethod
    def read(reader: _Reader) -> _Described:
        name = reader.string("a tensor's name")
        axes = reader.integer("<I", name)
        if not 1 <= axes <= _MOST_AXES:
            raise FormatError(f"{reader.path}: {shown(name)}: expected 1 to {_MOST_AXES} axes, got {axes}")
        sizes = tuple(reader.integer("<Q", name) for _ in range(axes))
        return _Described(name, sizes[::-1], reader.integer("<I", name), reader.integer("<Q", name))

    def located(self, file: TensorFile, start: int, alignment: int) -> TensorInfo:
        where = f"{file.path}: {shown(self.name)}"
        kind = _NAMES.get(self.type) or OTHER_TYPES.get(self.type, f"number {self.type}")
        if kind not in TYPES:
            raise FormatError(f"{where}: type {kind} is not supported: expected one of {', '.join(TYPES)}")
        _, block, size = TYPES[kind]
        if 0 in self.shape:
            raise FormatError(f"{where}: shape: expected no empty axis, got {shown(self.shape)}")
        if self.shape[-1] % block:
            raise FormatError(f"{where}: expected rows in {kind} blocks of {block}, got {shown(self.shape)}")
        nbytes = math.prod(self.shape) // block * size
        if self.offset % alignment:
            raise FormatError(f"{where}: offset: expected a multiple of {alignment}, got {self.offset}")
        if start + self.offset + nbytes > file.size:
            raise FormatError(
                f"{where}: expected {nbytes} bytes at {start + self.offset}, the file ends at {file.size}"
            )
        dtype = _FLOATS.get(kind, np.dtype(np.uint8))
        shape = self.shape if kind in _FLOATS else (*self.shape[:-1], self.shape[-1] // block * size)
        return TensorInfo(self.name, kind, self.shape, file, start + self.offset, nbytes, dtype, shape)


class _Reader:
    """Reads one item after another from a file; each is checked against the bytes that are left."""

    def __init__(self, file: TensorFile) -> None:
        self.path = file.path
        self.position = 0
        self._data = file.view(np.dtype(np.uint8), (min(file.size, _LONGEST),), 0).data
        self._whole = file.size <= _LONGEST

    def bytes(self, count: int, what: str) -> bytes:
        return bytes(self._take(count, what))

    def integer(self, layout: str, what: str) -> int:
        return int(struct.unpack(layout, self._take(struct.calcsize(layout), what))[0])

    def count(self, what: str, smallest: int) -> int:
        """Read a number of items that take at least `smallest` bytes each."""
        value = self.integer("<Q", what)
        left = len(self._data) - self.position
        if value * smallest > left:
            ends = f": the file ends {left} bytes after that number" if self._whole else ""
            raise FormatError(
                f"{self.path}: {shown(what)}: expected at most {left // smallest}, got {value}{ends}"
            )
        return value

    def string(self, what: str) -> str:
        try:
            return str(self._take(self.count(what, smallest=1), what), "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{self.path}: {shown(what)}: expected UTF-8: {error.reason}") from None

    def strings(self, what: str, count: int) -> list[str]:
        """Read several strings; a vocabulary has hundreds of thousands."""
        data, position, end = self._data, self.position, len(self._data)
        length = struct.Struct("<Q").unpack_from
        texts: list[str] = []
        try:
            while len(texts) < count and position + 8 <= end:
                begin = position + 8
                position = begin + length(data, position)[0]
                if position <= end:
                    texts.append(str(data[begin:position], "utf-8"))
        except UnicodeDecodeError as error:
            raise FormatError(f"{self.path}: {shown(what)}: expected UTF-8: {error.reason}") from None
        if len(texts) < count:
            raise FormatError(f"{self.path}: {shown(what)}: expected {count} texts, {self._end}")
        self.position = position
        return texts

    def numbers(self, dtype: np.dtype[Any], count: int, what: str) -> Array:
        return np.frombuffer(self.bytes(count * dtype.itemsize, what), dtype)

    @property
    def _end(self) -> str:
        """Say where the items end, for messages."""
        end = len(self._data)
        return f"the file ends at {end}: it is cut" if self._whole else f"a header ends before {end}"

    def _take(self, count: int, what: str) -> memoryview:
        end = self.position + count
        if end > len(self._data):
            raise FormatError(
                f"{self.path}: {shown(what)}: expected {count} bytes at {self.position}, {self._end}"
            )
        part = self._data[self.position : end]
        self.position = end
        return part


def _value(reader: _Reader, key: str) -> Any:
    kind = reader.integer("<I", key)
    if kind == STRING:
        return reader.string(key)
    if kind == ARRAY:
        return _array(reader, key)
    if kind not in NUMBERS:
        raise FormatError(f"{reader.path}: {shown(key)}: expected a kind of value up to 12, got {kind}")
    value = reader.numbers(NUMBERS[kind], 1, key)[0].item()
    if kind == BOOL:
        return _booleans(reader, key, value, value)
    return value


def _array(reader: _Reader, key: str) -> Any:
    kind = reader.integer("<I", key)
    if kind == STRING:
        count = reader.count(key, smallest=8)
        if count > _MOST_STRINGS:
            raise FormatError(
                f"{reader.path}: {shown(key)}: expected at most {_MOST_STRINGS} texts, got {count}"
            )
        return reader.strings(key, count)
    if kind not in NUMBERS:
        raise FormatError(
            f"{reader.path}: {shown(key)}: expected an array of numbers or text, got kind {kind}"
        )
    dtype = NUMBERS[kind]
    values = reader.numbers(dtype, reader.count(key, dtype.itemsize), key)
    if kind == BOOL:
        return _booleans(reader, key, values, values.max(initial=0))
    return values


def _booleans(reader: _Reader, key: str, values: Any, largest: int) -> Any:
    if largest > 1:
        raise FormatError(f"{reader.path}: {shown(key)}: expected 0 or 1, got {largest}")
    return values.astype(np.bool_) if isinstance(values, np.ndarray) else bool(values)
