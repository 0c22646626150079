"""Weights of a GGUF file, as they lie in it."""

from __future__ import annotations

from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.source import Plane, Shape, Source
from pyturbo.checkpoint.weights import FLOATS, Weights
from pyturbo.errors import FormatError
from pyturbo.formats import Dense, Gguf, Linear


class GgufWeights(Weights):
    def _find_tensor(self, name: str) -> Source:
        info = self.typed(name, *FLOATS)
        return Source(name, info.shape, Plane((info,), info.shape))

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
        form = None if info.dtype in FLOATS else Format.blocks(info.dtype)
        return Source(path, info.shape, Plane((info,), info.array_shape), format=form, matrix=True)

    def _load(self, source: Source) -> Linear:
        values = self._array(source.values)
        return Dense(values) if source.format is None else Gguf(values, source.format.mode)
