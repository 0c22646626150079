"""Where the values of an output tensor lie: rows of tensors in the files of the source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pyturbo._arrays import Array
from pyturbo.checkpoint.directory_weights import DirectoryWeights
from pyturbo.checkpoint.tensors import TensorInfo
from pyturbo.checkpoint.weights import FLOATS, Shape
from pyturbo.errors import FormatError


@dataclass(frozen=True)
class Rows:
    """`count` rows of a tensor seen as [rows, width], from row `first` on."""

    info: TensorInfo
    width: int
    first: int
    count: int
    change: Callable[[Array], Array] | None = None

    def read(self, first: int, count: int) -> Array:
        """A copy of some of them, which is all that is held in memory."""
        size = self.width * self.info.array_dtype.itemsize
        data = self.info.file.bytes(self.info.offset + (self.first + first) * size, count * size)
        array: Array = np.frombuffer(data, self.info.array_dtype).reshape(count, self.width)
        return array if self.change is None else self.change(array)


def tensor_rows(weights: DirectoryWeights, name: str, shape: Shape) -> Rows:
    """A tensor that is not a matrix: a norm, a bias, the taps of a convolution."""
    info = _float(weights, name)
    flat = tuple(size for size in info.shape if size != 1) if name.endswith(".conv1d.weight") else info.shape
    if flat != shape:
        raise FormatError(f"{info}: shape: expected {list(shape)}, got {list(info.shape)}")
    change = _plus_one if weights.is_offset_norm(name) else None
    return Rows(info, int(np.prod(shape)), 0, 1, change)


def linear_rows(weights: DirectoryWeights, path: str, shape: Shape) -> list[Rows]:
    return [_whole(_float(weights, f"{path}.weight"), shape)]


def expert_rows(weights: DirectoryWeights, path: str, shape: Shape) -> list[Rows]:
    """A stack as such, or half of mlp.experts.gate_up_proj, or mlp.experts.0.gate_proj and so on."""
    base, _, projection = path.rpartition(".")
    experts = base.removesuffix(".switch_mlp") + ".experts"
    for name in (f"{path}.weight", f"{experts}.{projection}", f"{experts}.{projection}.weight"):
        if name in weights:
            return [_whole(_float(weights, name), shape)]
    halves = {"gate_proj": 0, "up_proj": 1}
    for name in (f"{experts}.gate_up_proj", f"{experts}.gate_up_proj.weight"):
        if name in weights and projection in halves:
            count, out_dim, in_dim = shape
            info = _whole(_float(weights, name), (count, 2 * out_dim, in_dim)).info
            firsts = [(2 * expert + halves[projection]) * out_dim for expert in range(count)]
            return [Rows(info, in_dim, first, out_dim) for first in firsts]
    names = [f"{experts}.{expert}.{projection}.weight" for expert in range(shape[0])]
    return [_whole(_float(weights, name), shape[1:]) for name in names]


def _whole(info: TensorInfo, shape: Shape) -> Rows:
    if info.shape != shape:
        raise FormatError(f"{info}: shape: expected {list(shape)}, got {list(info.shape)}")
    return Rows(info, shape[-1], 0, int(np.prod(shape[:-1])))


def _float(weights: DirectoryWeights, name: str) -> TensorInfo:
    info = weights.find(name)
    if info is None:
        raise FormatError(f"{weights.checkpoint.path}: expected a tensor {name}, found none")
    if info.dtype not in FLOATS:
        raise FormatError(f"{info}: dtype: expected {' or '.join(FLOATS)}, got {info.dtype}")
    return info


def _plus_one(array: Array) -> Array:
    """In the type of the file, as MLX adds it."""
    out: Array = array + array.dtype.type(1)
    return out
