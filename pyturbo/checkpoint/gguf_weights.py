"""Weights of a GGUF file: blocks as affine groups, rows of queries and keys as half-split RoPE wants them."""

from __future__ import annotations

import logging

import numpy as np

from pyturbo._arrays import Array
from pyturbo.checkpoint.gguf_blocks import BLOCK_TYPES, GROUP, affine_arrays, to_affine, work_bytes
from pyturbo.checkpoint.tensors import TensorInfo, Tensors
from pyturbo.checkpoint.weights import FLOATS, Shape, Weights
from pyturbo.errors import FormatError
from pyturbo.formats import Affine, Dense, Linear

_log = logging.getLogger("pyturbo.checkpoint")


class GgufWeights(Weights):
    def __init__(
        self,
        checkpoint: Tensors,
        names: dict[str, str],
        permuted_heads: tuple[int, int] | None,
        values: bool = True,
    ) -> None:
        """`permuted_heads`: numbers of query and key heads, where their rows are in the order of pairs."""
        super().__init__(checkpoint, names, values)
        self._permuted_heads = permuted_heads

    def _float(self, name: str) -> Array:
        array = self._read(self._typed(name, *FLOATS))
        path = name.removesuffix(".bias")
        return array[self._row_order(path, len(array))] if path != name and self._heads(path) else array

    def _matrix(self, path: str, shape: Shape | None, axes: int) -> Linear:
        name = f"{path}.weight"
        info = self._info(name)
        if axes != 2 or len(info.shape) != 2:
            raise FormatError(f"{info}: shape: expected a matrix, no experts, got {list(info.shape)}")
        self._check(name, "shape", shape, info.shape)
        places = np.argsort(self._row_order(path, info.shape[0])) if self._heads(path) else None
        if info.dtype not in FLOATS:
            return self._affine(name, info, places)
        if places is None:
            return Dense(self._read(info))

        def fill(result: Array) -> None:
            result[places] = info[:]

        return Dense(self._made(info.shape, info.array_dtype, fill, work=info.nbytes))

    def _affine(self, name: str, info: TensorInfo, places: Array | None) -> Affine:
        """Blocks as groups. Row i goes to row `places[i]`."""
        if self.ledger is not None:
            arrays = affine_arrays(info.dtype, info.shape)
            packed, scales, biases = (self.ledger.array(*array) for array in arrays)
            self.ledger.work(work_bytes(info.shape[1]))
            return Affine(packed, scales, biases, BLOCK_TYPES[info.dtype].bits, GROUP)
        layer, error = to_affine(info.dtype, info.shape, info, places)
        if info.dtype == "Q6_K":
            self.requantized[name] = error
            _log.info("%s: Q6_K as 8 bits in groups of 32, largest error %.3g", info, error)
        return layer

    def _read_whole(self, name: str) -> bool:
        path = name.removesuffix(".weight")
        return self.checkpoint[self._names[name]].dtype in FLOATS and not (path != name and self._heads(path))

    def _heads(self, path: str) -> int:
        """The number of heads whose rows are permuted, 0 for none."""
        if self._permuted_heads is None:
            return 0
        queries, keys = self._permuted_heads
        return queries if path.endswith(".q_proj") else keys if path.endswith(".k_proj") else 0

    def _row_order(self, path: str, rows: int) -> Array:
        """Of each head, the first of all pairs and then the second of all."""
        heads = self._heads(path)
        if rows % (2 * heads):
            raise FormatError(f"{self._where(f'{path}.weight')}: expected rows of {heads} heads, got {rows}")
        order: Array = np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
        return order
