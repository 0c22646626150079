"""Files of tensor data, mapped once or read into aligned memory."""

from __future__ import annotations

import copy
import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pyturbo._arrays import Array, aligned_empty
from pyturbo._buffer import Buffer, FileWatch, host_map
from pyturbo.errors import FileError, FormatError

#: Every tensor a kernel sees starts at a multiple of this many bytes.
ALIGNMENT = 16

_CHUNK = 8 << 20  # bytes per read


class TensorFile:
    """A regular file that stays open, with the size it had when it was opened.

    It must not be written to while arrays over its mapping are in use; `watch` detects that. Several threads
    may read at the same time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # A pipe or a device would block or never end; O_NONBLOCK keeps opening one from waiting.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise FileError(
                f"{path}: cannot be opened: {getattr(error, 'strerror', None) or error}"
            ) from None
        self._fd = fd
        self.close = weakref.finalize(self, os.close, fd)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise FileError(f"{path}: expected a regular file")
        self.size = status.st_size
        self._map: Buffer | None = None
        #: Watches the mapping, once there is one.
        self.watch: FileWatch | None = None

    def __repr__(self) -> str:
        return f"TensorFile({str(self.path)!r}, size={self.size})"

    def bytes(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from `offset` on; the range lies within the file."""
        parts = []
        while count:
            with self._reading():
                part = os.pread(self._fd, min(count, _CHUNK), offset)
            if not part:
                raise self._ended(offset)
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return b"".join(parts)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FileError(f"{self.path}: cannot be read: {error.strerror}") from error

    def _ended(self, offset: int) -> FormatError:
        return FormatError(f"{self.path}: ends at byte {offset}, it was {self.size} bytes long")

    def duplicate(self) -> TensorFile:
        """Return the same file, which stays open when this one is closed."""
        other = copy.copy(self)
        other._fd = os.dup(self._fd)
        other.close = weakref.finalize(other, os.close, other._fd)
        return other

    def will_need(self, offset: int, count: int) -> None:
        """Have the system read bytes into its cache in the background, if it can."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, offset, count, os.POSIX_FADV_WILLNEED)

    def view(self, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> Array:
        """Return the mapped, read-only array at `offset`, of any alignment; it lies within the file."""
        if 0 in shape:
            return np.empty(shape, dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        array: Array = np.ndarray(shape, dtype, self.mapping().numpy()[offset : offset + nbytes])
        return array

    def mapping(self) -> Buffer:
        """Return the whole file, mapped read-only."""
        if self._map is None:
            mapped = host_map(self._fd, self.path)
            if mapped.nbytes != self.size:
                raise FileError(f"{self.path}: has {mapped.nbytes} bytes, it was {self.size} bytes long")
            self._map, self.watch = mapped, FileWatch(mapped)
        return self._map

    def read(self, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> Array:
        """Return the array at `offset`: mapped if it is aligned there, otherwise a copy in aligned memory."""
        if offset % ALIGNMENT == 0:
            return self.view(dtype, shape, offset)
        out = aligned_empty(shape, dtype)
        self.fill(out, offset)
        return out

    def fill(self, out: Array, offset: int) -> None:
        """Read a contiguous array from `offset` on; the range lies within the file."""
        target, done = out.reshape(-1).view(np.uint8).data, 0
        while done < len(target):
            part = target[done : done + _CHUNK]
            if hasattr(os, "preadv"):
                with self._reading():
                    count = os.preadv(self._fd, [part], offset + done)
            else:
                count = len(part)
                part[:] = self.bytes(offset + done, count)
            if not count:
                raise self._ended(offset + done)
            done += count
