"""A conversation on disk: the rows of its state in use, and what must match to use them again.

16 bytes   "pyturbo session\\0"
 4 bytes   version, little-endian
 4 bytes   length of the header
 header    JSON: model, model_type, context, chunk, position, pending, kv, codec, notes, state_bytes
32 bytes   SHA-256 of everything before
 state     the bytes that `Layout.used` gives
32 bytes   SHA-256 of everything before
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from pyturbo._arguments import path_of
from pyturbo._buffer import Buffer
from pyturbo._messages import shown
from pyturbo.checkpoint import json_file
from pyturbo.checkpoint.file import TensorFile
from pyturbo.engine.layout import Layout
from pyturbo.engine.runner import Runner
from pyturbo.errors import ArgumentError, FormatError
from pyturbo.files.replace import is_partial, new_file, target_of
from pyturbo.files.target import require_replaceable

MAGIC = b"pyturbo session\0"
VERSION = 2

_HEAD = struct.Struct("<16sII")
_DIGEST = 32
_LARGEST_HEADER = 1 << 24
_CHUNK = 8 << 20  # bytes read at once


@dataclass(frozen=True)
class Saved:
    """A conversation, apart from its state."""

    context: int
    chunk: int  # tokens that the device read at once
    position: int
    pending: list[int]
    notes: dict[str, Any]


def write(path: str | PathLike[str], runner: Runner, saved: Saved, layout: Layout, block: Buffer) -> None:
    """Write the state that lies in `block`. There is always a complete file under that name, or none.

    Only a session or an empty file is replaced. A symbolic link stays, and the file it leads to is written.
    """
    runner.require_open()
    header = identity(runner) | vars(saved) | {"state_bytes": layout.used_bytes(saved.position)}
    text = _header_text(header)
    digest = hashlib.sha256()
    with (
        new_file(target_of("save", path), _require_replaceable, mode=0o600) as descriptor,
        os.fdopen(descriptor, "wb", closefd=False) as file,
    ):
        for part in (_HEAD.pack(MAGIC, VERSION, len(text)), text):
            digest.update(part)
            file.write(part)
        first = digest.digest()
        digest.update(first)
        file.write(first)
        for stretch in layout.used(block, saved.position):
            data = stretch.numpy().data
            digest.update(data)
            file.write(data)
        file.write(digest.digest())


def identity(runner: Runner) -> dict[str, Any]:
    """Return the entries of a header that must match to use a state."""
    return {
        "model": runner.origin.fingerprint,
        "model_type": runner.origin.model_type,
        "kv": runner.kv.name,
        "codec": runner.kv.codec,
    }


def _header_text(header: dict[str, Any]) -> bytes:
    """Return the header as JSON that can be read again."""
    if not isinstance(header["notes"], dict):
        raise ArgumentError(f"save: notes: expected a dict, got {type(header['notes']).__name__}")
    try:
        text = json.dumps(header, sort_keys=True, allow_nan=False).encode()
        if len(text) <= _LARGEST_HEADER:
            json_file.parse_object(text, "header")
            return text
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"save: notes: expected what JSON can hold: {error}") from None
    raise ArgumentError(f"save: notes: expected a header of at most {_LARGEST_HEADER} bytes, got {len(text)}")


def _require_replaceable(path: Path) -> None:
    require_replaceable(path, lambda head: head.startswith(MAGIC), "a pyturbo session")


Opened = TypeVar("Opened", bound="File")


class File:
    """A session file, open for reading, whose header has been checked for damage.

    Attributes:
        path: Of the file.
        header: Its entries. Except for `state_bytes` they have not been checked.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = path_of("load_session", path)
        if is_partial(self.path):
            raise FormatError(f"{self.path}: expected a pyturbo session, got one that was not finished")
        self._file = TensorFile(self.path)
        with self._closed_on_error():
            self.header = self._read_header()

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._file.close()
            raise

    def _read_header(self) -> dict[str, Any]:
        size = self._file.size
        least = _HEAD.size + 2 * _DIGEST
        if size < least or self._file.bytes(0, len(MAGIC)) != MAGIC:
            raise FormatError(f"{self.path}: expected a pyturbo session, got something else")
        _, version, length = _HEAD.unpack(self._file.bytes(0, _HEAD.size))
        if version != VERSION:
            raise FormatError(
                f"{self.path}: expected version {VERSION} of session files, got {version}"
                + (": it was saved by an earlier pyturbo" if version < VERSION else "")
            )
        if length > (most := min(_LARGEST_HEADER, size - least)):
            raise FormatError(f"{self.path}: header: expected at most {most} bytes, got {length}")
        head = self._file.bytes(0, _HEAD.size + length)
        self._digest = hashlib.sha256(head)
        first = self._file.bytes(len(head), _DIGEST)
        if first != self._digest.digest():
            raise self._damaged()
        self._digest.update(first)
        self._offset = len(head) + _DIGEST
        header = json_file.parse_object(head[_HEAD.size :], str(self.path))
        state = header.get("state_bytes")
        if type(state) is not int or state != size - least - length:
            raise FormatError(
                f"{self.path}: state: expected {shown(state)} bytes, got {size - least - length}; "
                "the file is damaged"
            )
        return header

    def _wrong(self, name: str, expected: str) -> FormatError:
        return FormatError(f"{self.path}: {name}: expected {expected}, got {shown(self.header.get(name))}")

    def _damaged(self) -> FormatError:
        return FormatError(f"{self.path}: expected the checksum it was written with; the file is damaged")


class Reader(File):
    """A conversation with one model. The memory it needs does not depend on the size of the file.

    Attributes:
        saved: The conversation, apart from its state.
    """

    def __init__(self, path: str | PathLike[str], runner: Runner) -> None:
        super().__init__(path)
        self._runner = runner
        with self._closed_on_error():
            self._check_model()
            self.saved = self._read_saved()
            self._written = self._read_layout()

    def fill(self, layout: Layout, block: Buffer) -> None:
        """Read the state into a block of this layout; FormatError if it is not what was written."""
        position, vocab = self.saved.position, self._runner.network.vocab
        layout.fill(block, self._written, position, self._read)
        if self._file.bytes(self._offset, _DIGEST) != self._digest.digest():
            raise self._damaged()
        tokens = layout.piece(block, "tokens").view(position).numpy()
        if (wrong := tokens[(tokens < 0) | (tokens >= vocab)]).size:
            raise FormatError(f"{self.path}: tokens: expected 0 to {vocab - 1}, got {wrong[0]}")

    def _read(self, target: Buffer) -> None:
        """Fill a buffer with the next bytes of the state."""
        for start in range(0, target.nbytes, _CHUNK):
            part = target.view(min(_CHUNK, target.nbytes - start), offset=start)
            data = self._file.bytes(self._offset, part.nbytes)
            self._digest.update(data)
            part.write(np.frombuffer(data, np.uint8))
            self._offset += part.nbytes

    def _read_saved(self) -> Saved:
        """Check the entries of the header against the model."""
        network = self._runner.network
        names = ("context", "chunk", "position", "pending", "notes")
        context, chunk, position, pending, notes = (self.header.get(name) for name in names)
        if type(context) is not int or not 1 <= context <= network.context:
            raise self._wrong("context", f"1 to {network.context}")
        if type(position) is not int or not 0 <= position <= context:
            raise self._wrong("position", f"0 to {context}")
        if not isinstance(pending, list) or not (pending == [] or _is_token(pending, network.vocab)):
            raise self._wrong("pending", "one token or none")
        if type(chunk) is not int or not 1 <= chunk < 2**31:
            raise self._wrong("chunk", "a count")
        if not isinstance(notes, dict):
            raise self._wrong("notes", "an object")
        return Saved(context, chunk, position, pending, notes)

    def _read_layout(self) -> Layout:
        """Return where the state lies in the file, which must be as long as that."""
        saved, runner = self.saved, self._runner
        layout = Layout.of(runner.network, saved.context, saved.chunk, runner.kv)
        if self.header["state_bytes"] != (nbytes := layout.used_bytes(saved.position)):
            raise self._wrong("state_bytes", f"{nbytes}")
        return layout

    def _check_model(self) -> None:
        expected = identity(self._runner)
        kind, saved = expected["model_type"], self.header.get("model_type")
        if saved != kind:
            raise FormatError(f"{self.path}: expected a session of {shown(kind)}, got one of {shown(saved)}")
        if self.header.get("model") != expected["model"]:
            other = str(self.header.get("model"))[:8]
            raise FormatError(
                f"{self.path}: expected a session of this model, {expected['model'][:8]}, "
                f"got one of another {kind}, {shown(other)}"
            )
        if self.header.get("kv") != expected["kv"]:
            raise self._wrong("kv", repr(expected["kv"]))
        saved, codec = self.header.get("codec"), expected["codec"]
        if saved != codec:
            earlier = type(saved) is int and codec is not None and saved < codec
            reason = ": its keys and values were compressed by an earlier pyturbo" if earlier else ""
            raise FormatError(f"{self._wrong('codec', repr(codec))}{reason}")


def _is_token(value: list[Any], vocab: int) -> bool:
    """Whether it is a list of one token of the vocabulary."""
    return len(value) == 1 and type(value[0]) is int and 0 <= value[0] < vocab
