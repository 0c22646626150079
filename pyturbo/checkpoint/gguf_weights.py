"""Weights of a GGUF file: blocks as affine groups, rows of queries and keys as half-split RoPE needs them."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import numpy as np

from pyturbo._arrays import Array
from pyturbo.checkpoint.file_layout import FileLayout
from pyturbo.checkpoint.gguf_blocks import BLOCK_TYPES, GROUP, affine_arrays, to_affine, work_bytes
from pyturbo.checkpoint.source import Plane, Shape, Source
from pyturbo.checkpoint.stream import BlockStream, Stream
from pyturbo.checkpoint.tensors import TensorInfo, Tensors
from pyturbo.checkpoint.weights import FLOATS, Weights
from pyturbo.errors import FormatError
from pyturbo.formats import Affine, Dense, Linear

_log = logging.getLogger("pyturbo.checkpoint")


class GgufWeights(Weights):
    def __init__(
        self,
        checkpoint: Tensors,
        names: dict[str, str],
        layout: FileLayout,
        permuted_heads: tuple[int, int] | None,
        values: bool = True,
    ) -> None:
        """Take the numbers of query and key heads as `permuted_heads` if their rows are in adjacent pairs."""
        super().__init__(checkpoint, names, layout, values)
        self._permuted_heads = permuted_heads

    def stream(self, source: Source, *, stacked: bool = False) -> Stream:
        path = source.name.removesuffix(".bias")
        order = self._row_order(path, source.shape[0]) if self._heads(path) else None
        return BlockStream(source, order, stacked=stacked)

    def _find_tensor(self, name: str) -> Source:
        info = self.typed(name, *FLOATS)
        return Source(name, info.shape, Plane((info,), info.shape))

    def _values(self, source: Source) -> Array:
        array = super()._values(source)
        path = source.name.removesuffix(".bias")
        if path == source.name or not self._heads(path):
            return array
        return array[self._row_order(path, len(array))]

    def _find_matrix(self, path: str, shape: Shape | None, axes: int) -> Source:
        name = f"{path}.weight"
        info = self.info(name)
        if shape == (1, *info.shape) and axes == 2 and info.dtype in FLOATS:
            # llama.cpp stores a matrix of one row as a vector.
            return Source(path, shape, Plane((info,), shape), matrix=True)
        if len(info.shape) != axes:
            what = "a matrix" if axes == 2 else "a stack of matrices"
            raise FormatError(f"{info}: shape: expected {what}, got {list(info.shape)}")
        self.check(name, "shape", shape, info.shape)
        return Source(path, info.shape, Plane((info,), info.shape), matrix=True)

    def _load(self, source: Source) -> Linear:
        path, (info,) = source.name, source.values.tensors
        places = np.argsort(self._row_order(path, info.shape[0])) if self._heads(path) else None
        if info.dtype not in FLOATS:
            return self._affine(info, places)
        if places is None:
            return Dense(self._array(source.values))

        def fill(result: Array) -> None:
            result[places] = info[:]

        return Dense(self._made(info.shape, info.array_dtype, fill, work=info.nbytes))

    def _affine(self, info: TensorInfo, places: Array | None) -> Affine:
        """Read blocks as groups. Row i goes to row `places[i]`."""
        *stack, rows, in_dim = info.shape
        flat = (math.prod(stack) * rows, in_dim)
        if self.ledger is not None:
            arrays: list[Array] = [self.ledger.array(*array) for array in affine_arrays(info.dtype, flat)]
            self.ledger.work(work_bytes(in_dim))
        else:
            every_row = replace(info, array_shape=(flat[0], info.array_shape[-1]))
            layer, error = to_affine(info.dtype, flat, every_row, places)
            arrays = list(layer.arrays)
            if info.dtype == "Q6_K":
                _log.info("%s: Q6_K as 8 bits in groups of 32, largest error %.3g", info, error)
        packed, scales, biases = (array.reshape(*stack, rows, -1) for array in arrays)
        return Affine(packed, scales, biases, BLOCK_TYPES[info.dtype].bits, GROUP)

    def _read_whole(self, name: str) -> bool:
        path = name.removesuffix(".weight")
        return self.checkpoint[self._names[name]].dtype in FLOATS and not (path != name and self._heads(path))

    def _heads(self, path: str) -> int:
        """Return the number of heads whose rows are permuted, 0 for none."""
        if self._permuted_heads is None:
            return 0
        queries, keys = self._permuted_heads
        return queries if path.endswith(".q_proj") else keys if path.endswith(".k_proj") else 0

    def _row_order(self, path: str, rows: int) -> Array:
        """Return the rows of each head, the first of all pairs and then the second of all."""
        heads = self._heads(path)
        if rows % (2 * heads):
            raise FormatError(f"{self.where(f'{path}.weight')}: expected rows of {heads} heads, got {rows}")
        order: Array = np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
        return order
