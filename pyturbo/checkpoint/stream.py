"""Tensors and weights as loading makes them, read in blocks of rows: memory does not grow with them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyturbo._arrays import Array
from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.source import HeldRows, Plane, Rows, Shape, Source
from pyturbo.ops import affine_dequantize, fp_dequantize, gguf_embed

#: Values in a block, unless one row is longer.
BLOCK = 1 << 20

Block = dict[str, Array]  # consecutive rows of the arrays of a stream, by the names of the arrays


@dataclass(frozen=True)
class Spec:
    dtype: np.dtype[Any]
    shape: Shape


class Stream(ABC):
    """The arrays of a tensor, of a weight or of a stack of them.

    A tensor has the array "weight" only. Weights have "scales" and "biases" as their format requires.
    """

    def __init__(
        self, source: Source, arrays: Mapping[str, Spec], form: Format | None, *, stacked: bool
    ) -> None:
        self.source, self.arrays, self.format, self.stacked = source, arrays, form, stacked
        lead = source.shape[1:] if stacked else source.shape
        self.width = lead[-1] if lead else 1
        self.rows = math.prod(lead[:-1])
        #: The one number of each matrix that its values are times; see `pyturbo.ops.fp_dequantize`.
        self.global_scale: Stream | None = None
        if source.global_scale is not None:
            plane = source.global_scale
            self.global_scale = CopiedStream(Source(source.name, plane.shape, plane), stacked=stacked)

    @property
    def matrices(self) -> int:
        return self.source.shape[0] if self.stacked else 1

    @property
    def work(self) -> int:
        """Return the bytes that reading one matrix takes beside its blocks."""
        return sum(2 * plane.work for plane in self.source.planes)

    def blocks(self, matrix: int = 0) -> Iterator[Block]:
        """Read one matrix of the stack, or all there is if it is none, in consecutive rows."""
        read = self._reader(matrix)
        step = max(1, BLOCK // self.width)
        for first in range(0, self.rows, step):
            yield read(first, min(step, self.rows - first))

    def values(self, block: Block, matrix: int) -> Array:
        """Return the values of a block of a matrix in float32."""
        weight, form = block["weight"], self.format
        if form is None:
            return weight.astype(np.float32)
        if form.mode == "affine":
            scales, biases = (block[name].astype(np.float32) for name in ("scales", "biases"))
            return affine_dequantize(weight, scales, biases, form.bits, form.group_size)
        if form.block is not None:
            return gguf_embed(np.arange(len(weight)), weight, form.mode, device="cpu")
        factor = None
        if self.global_scale is not None:
            (one,) = self.global_scale.blocks(matrix)
            factor = one["weight"].item()
        return fp_dequantize(weight, block["scales"], form.mode, factor)

    @abstractmethod
    def _reader(self, matrix: int) -> Callable[[int, int], Block]:
        """Return a function that reads a number of rows of a matrix, from a first one on."""


class CopiedStream(Stream):
    """Arrays that lie in the files as they are, or as 1 less than the value."""

    def __init__(self, source: Source, *, stacked: bool) -> None:
        self._planes = {"weight": source.values, "scales": source.scales, "biases": source.biases}
        arrays = {}
        for name, plane in self._planes.items():
            if plane is not None:
                arrays[name] = Spec(plane.dtype, plane.shape)
        self._in_words = source.format is not None and source.format.block is None
        if source.format is not None and self._in_words:
            words = (*source.shape[:-1], source.shape[-1] * source.format.bits // 32)
            arrays["weight"] = Spec(np.dtype(np.uint32), words)
        elif source.offset:
            arrays["weight"] = Spec(np.dtype(np.float32), source.shape)
        super().__init__(source, arrays, source.format, stacked=stacked)

    def _reader(self, matrix: int) -> Callable[[int, int], Block]:
        rows = {name: self._rows(plane, matrix) for name, plane in self._planes.items() if plane is not None}

        def read(first: int, count: int) -> Block:
            block = {name: one.read(first, count) for name, one in rows.items()}
            if self.source.offset:
                block["weight"] = block["weight"].astype(np.float32) + np.float32(1)
            if self._in_words:
                block["weight"] = np.ascontiguousarray(block["weight"]).view(np.uint32)
            return block

        return read

    def _rows(self, plane: Plane, matrix: int) -> Rows | HeldRows:
        if self.stacked:
            return plane.matrix(matrix)
        (info,) = plane.tensors
        return Rows(info, math.prod(plane.shape) // self.rows, 0, self.rows)
