"""Named tensors in files, and a config."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pyturbo._arrays import Array
from pyturbo._messages import shown
from pyturbo.checkpoint.file import ALIGNMENT, TensorFile
from pyturbo.errors import FormatError


class Watch(Protocol):
    """Something that tells whether files have changed."""

    def check(self) -> None:
        """Raise a FileError if a file was written to, or became shorter, since it was opened."""


#: Called with the bytes read so far and the bytes in total.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class TensorInfo:
    """The place of a tensor. Its range has been checked: it lies within the file and overlaps no other."""

    name: str
    dtype: str  # as the file spells it: "BF16", "U32", "Q4_K"
    shape: tuple[int, ...]
    file: TensorFile
    offset: int
    nbytes: int
    array_dtype: np.dtype[Any]  # of the array that is read; blocks are bytes
    array_shape: tuple[int, ...]

    @property
    def mapped(self) -> bool:
        """Return whether reading the tensor gives the mapped file itself."""
        return self.offset % ALIGNMENT == 0

    def rows(self, first: int, count: int) -> TensorInfo:
        """Return the place of some rows of the first axis."""
        row = self.nbytes // self.shape[0]
        return replace(
            self,
            shape=(count, *self.shape[1:]),
            offset=self.offset + first * row,
            nbytes=count * row,
            array_shape=(count, *self.array_shape[1:]),
        )

    def __getitem__(self, part: slice) -> Array:
        """Return a copy of some rows of the first axis, read so that no mapped page stays in memory."""
        first, stop, _ = part.indices(self.array_shape[0])
        row = self.nbytes // self.array_shape[0]
        data = self.file.bytes(self.offset + first * row, (stop - first) * row)
        array: Array = np.frombuffer(data, self.array_dtype).reshape(stop - first, *self.array_shape[1:])
        return array

    def __str__(self) -> str:
        return f"{self.file.path}: {shown(self.name)}"


class Tensors(Mapping[str, TensorInfo]):
    """Tensors by their names in the files, in the order of the files."""

    path: Path
    config: dict[str, Any]

    def __init__(self, path: Path, tensors: dict[str, TensorInfo]) -> None:
        self.path = path
        self._tensors = tensors

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, tensors={len(self)})"

    def __getitem__(self, name: str) -> TensorInfo:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def info(self, name: str) -> TensorInfo:
        """Return where a tensor is, which must exist."""
        try:
            return self._tensors[name]
        except KeyError:
            raise FormatError(f"{self.path}: expected a tensor {shown(name)}, found none") from None

    def read(self, name: str) -> Array:
        """Return a tensor, 16-byte aligned: the mapped file (read-only) if aligned, otherwise a copy.

        A tensor of blocks is uint8, and a row is as long as its bytes.
        """
        info = self.info(name)
        return info.file.read(info.array_dtype, info.array_shape, info.offset)

    def view(self, name: str) -> Array:
        """Return a tensor in the mapped file, of any alignment; for reading parts of it."""
        info = self.info(name)
        return info.file.view(info.array_dtype, info.array_shape, info.offset)

    def read_all(
        self, names: Iterable[str] | None = None, progress: Progress | None = None
    ) -> dict[str, Array]:
        """Read several tensors, or all, in the order in which they lie in the files."""
        infos = [self.info(name) for name in (self if names is None else names)]
        infos.sort(key=lambda info: (str(info.file.path), info.offset))
        total, done = sum(info.nbytes for info in infos), 0
        arrays = {}
        for info in infos:
            arrays[info.name] = self.read(info.name)
            done += info.nbytes
            if progress is not None:
                progress(done, total)
        return arrays

    def stated_fingerprint(self) -> str | None:
        """Return the fingerprint that the files state; None if it has to be computed from the tensors."""
        return None

    def watches(self) -> list[Watch]:
        """Return the watches of the files mapped so far, which tell whether a file has changed since."""
        return [file.watch for file in self._files() if file.watch is not None]

    def close(self) -> None:
        """Close the files; arrays that were read stay valid."""
        for file in self._files():
            file.close()

    def all_tensors(self) -> list[TensorInfo]:
        """List everything that tells this checkpoint from others, and whose files it holds open."""
        return list(self._tensors.values())

    def _files(self) -> list[TensorFile]:
        return list({id(info.file): info.file for info in self.all_tensors()}.values())


def check_ranges(tensors: Iterable[TensorInfo]) -> None:
    """Refuse tensors of one file that share bytes."""
    filled = sorted((info for info in tensors if info.nbytes), key=lambda info: info.offset)
    for before, after in pairwise(filled):
        end = before.offset + before.nbytes
        if after.offset < end:
            raise FormatError(
                f"{after}: expected data from byte {end} on, after {shown(before.name)}, got {after.offset}"
            )
