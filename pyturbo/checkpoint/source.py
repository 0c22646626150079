"""Descriptions of where values lie in the files, which loading, conversion and `pyturbo info` share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyturbo._arrays import Array
from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.tensors import TensorInfo

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """`count` consecutive rows of a tensor seen as [rows, width], from row `first` on."""

    info: TensorInfo
    width: int
    first: int
    count: int

    @property
    def nbytes(self) -> int:
        return self.count * self._row_bytes

    def read(self, first: int, count: int) -> Array:
        """Return a copy of `count` of the rows from `first` on; no mapped page stays in memory."""
        data = self.info.file.bytes(self._offset(first), count * self._row_bytes)
        array: Array = np.frombuffer(data, self.info.array_dtype).reshape(count, self.width)
        return array

    def fill(self, out: Array) -> None:
        """Read all rows into a contiguous array."""
        self.info.file.fill(out, self._offset(0))

    @property
    def _row_bytes(self) -> int:
        return self.width * self.info.array_dtype.itemsize

    def _offset(self, row: int) -> int:
        return self.info.offset + (self.first + row) * self._row_bytes


@dataclass(frozen=True)
class HeldRows:
    """Rows in memory, read as `Rows` are."""

    array: Array  # [rows, width]

    def read(self, first: int, count: int) -> Array:
        return self.array[first : first + count]


@dataclass(frozen=True)
class Plane:
    """One array: a tensor, a stack of tensors of one shape, or part of a tensor [experts, ...].

    A part is `rows` of the second axis, or of the third if `transposed` exchanges these two; None is all.
    """

    tensors: tuple[TensorInfo, ...]
    shape: Shape
    rows: slice | None = None
    transposed: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.tensors[0].array_dtype

    @property
    def whole(self) -> bool:
        """Return whether the array is one tensor as it lies in the file."""
        return len(self.tensors) == 1 and self.rows is None and not self.transposed

    @property
    def in_rows(self) -> bool:
        """Return whether the array consists of consecutive rows of the tensors."""
        return (self.rows is None or self.rows.step is None) and not self.transposed

    @property
    def work(self) -> int:
        """Return the bytes that `fill` needs beside its result."""
        return 0 if self.in_rows else self.tensors[0].nbytes // max(1, self.tensors[0].shape[0])

    def runs(self) -> list[Rows]:
        """List the rows that the array consists of, in order. `in_rows` must hold."""
        if self.whole:
            width = self.shape[-1]
            return [Rows(self.tensors[0], width, 0, math.prod(self.shape[:-1]))]
        width, count = math.prod(self.shape[2:]), self.shape[1]
        if self.rows is None:
            return [Rows(info, width, 0, count) for info in self.tensors]
        (info,) = self.tensors
        firsts = (expert * info.shape[1] + self.rows.start for expert in range(self.shape[0]))
        return [Rows(info, width, first, count) for first in firsts]

    def fill(self, out: Array) -> None:
        """Read the array, which is not a whole tensor, expert by expert."""
        if self.in_rows:
            for run, target in zip(self.runs(), out):
                run.fill(target)
            return
        for expert, target in enumerate(out):
            target[...] = self._copied(expert)

    def matrix(self, number: int) -> Rows | HeldRows:
        """Return one matrix of a stack [experts, rows, ...], or the one row of a stack [experts, width].

        It is read into memory if it does not consist of consecutive rows of the file.
        """
        inner = self.shape[1:]
        count = inner[0] if len(inner) > 1 else 1
        width = math.prod(inner) // count
        if not self.in_rows:
            return HeldRows(np.ascontiguousarray(self._copied(number)).reshape(count, width))
        if len(self.tensors) > 1:
            return Rows(self.tensors[number], width, 0, count)
        (info,) = self.tensors
        if self.rows is None:
            return Rows(info, width, number * count, count)
        first = number * info.shape[1] + self.rows.start
        return Rows(info, width, first if len(inner) > 1 else first // width, count)

    def _copied(self, expert: int) -> Array:
        """Return one matrix of a tensor whose rows lie apart in the file."""
        (info,) = self.tensors
        values: Array = info[expert : expert + 1][0]
        values = values.T if self.transposed else values
        return values if self.rows is None else values[self.rows]


@dataclass(frozen=True)
class Source:
    """The place and format of a tensor, or of the weight of a linear layer or of a stack of them."""

    name: str  # name of the tensor, or path of the layer
    shape: Shape
    values: Plane  # floating-point values, or codes
    scales: Plane | None = None
    biases: Plane | None = None
    global_scale: Plane | None = None
    format: Format | None = None  # None: the type of the values says it
    #: Whether the file holds w and the network multiplies by 1 + w.
    offset: bool = False
    #: Whether this is the weight of a layer, not a single tensor.
    matrix: bool = False

    @property
    def planes(self) -> tuple[Plane, ...]:
        planes = (self.values, self.scales, self.biases, self.global_scale)
        return tuple(plane for plane in planes if plane is not None)

    @property
    def format_name(self) -> str:
        return self.values.tensors[0].dtype if self.format is None else str(self.format)
