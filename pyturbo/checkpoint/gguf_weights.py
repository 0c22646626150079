"""Weights of a GGUF file, as they lie in it."""

from __future__ import annotations

import re

from pyturbo._arrays import Array
from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.file_layout import FileLayout
from pyturbo.checkpoint.gguf_names import file_name
from pyturbo.checkpoint.source import Plane, Shape, Source
from pyturbo.checkpoint.tensors import TensorInfo, Tensors
from pyturbo.checkpoint.weights import FLOATS, Weights
from pyturbo.errors import FormatError
from pyturbo.formats import Dense, Gguf, Linear

_HALVES = ("gate_proj", "up_proj")
_QKV = re.compile(r"(?P<layer>model\.layers\.\d+)\.self_attn\.(?P<part>[qkv])_proj\.(?P<suffix>weight|bias)")
_FUSED = re.compile(r"blk\.(\d+)\.attn_qkv\.(weight|bias)")


class GgufWeights(Weights):
    """Weights of a GGUF file, or of one in several parts."""

    def __init__(
        self, checkpoint: Tensors, names: dict[str, str], layout: FileLayout, values: bool = True
    ) -> None:
        super().__init__(checkpoint, names, layout, values)
        self._other_half: dict[str, Array] = {}  # tensors of which one half has been asked for

    def info(self, name: str) -> TensorInfo:
        """Return the tensor of that name; queries, keys and values may be rows of one, in this order."""
        whole, match = super().info(name), _QKV.fullmatch(name)
        if match is None or self._stored(name) == name:
            return whole
        config = self.checkpoint.config
        keys = config["num_key_value_heads"] * config["head_dim"]
        queries = whole.shape[0] - 2 * keys
        if queries < 1:
            raise FormatError(f"{whole}: shape: expected more than {2 * keys} rows, got {whole.shape[0]}")
        if match["part"] == "q":
            return whole.rows(0, queries)
        return whole.rows(queries + (keys if match["part"] == "v" else 0), keys)

    def _stored(self, name: str) -> str:
        """Return the name of the tensor with queries, keys and values where there is none for each.

        Latent attention, whose heads have no common size, has no such tensor.
        """
        match = None if name in self._names else _QKV.fullmatch(name)
        if match is None or "head_dim" not in self.checkpoint.config:
            return name
        more = {} if self.layout.gguf is None else self.layout.gguf.names
        # In networks with delta nets the tensor has their name for it, whatever the layer is.
        fused = f"{match['layer']}.{more.get('attn_qkv', 'self_attn.qkv_proj')}.{match['suffix']}"
        return fused if fused in self._names else name

    def _read_whole(self, name: str) -> bool:
        match = _FUSED.fullmatch(self._names[name])
        return match is None or f"model.layers.{match[1]}.self_attn.o_proj.weight" not in self

    def _missing_name(self, name: str) -> str:
        return file_name(name, {} if self.layout.gguf is None else self.layout.gguf.names)

    def _find_tensor(self, name: str) -> Source:
        info = self.typed(name, *FLOATS)
        return Source(name, info.shape, Plane((info,), info.shape))

    def _find_matrix(self, path: str, shape: Shape | None, axes: int) -> Source:
        name = f"{path}.weight"
        if axes == 3 and name not in self and (source := self._find_half(path, shape)):
            return source
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

    def _find_half(self, path: str, shape: Shape | None) -> Source | None:
        """Find the gate or up of experts that have both in one tensor [experts, 2 * out, in]."""
        base, _, projection = path.rpartition(".")
        name = f"{base}.gate_up_proj.weight"
        if name not in self or projection not in _HALVES:
            return None
        info = self.info(name)
        if shape is not None:
            self.check(name, "shape", (shape[0], 2 * shape[1], shape[2]), info.shape)
        if len(info.shape) != 3 or info.shape[1] % 2:
            raise FormatError(f"{info}: shape: expected [experts, 2 * out, in], got {list(info.shape)}")
        count, rows, width = info.array_shape
        half = _HALVES.index(projection) * rows // 2
        plane = Plane((info,), (count, rows // 2, width), slice(half, half + rows // 2))
        form = None if info.dtype in FLOATS else Format.blocks(info.dtype)
        return Source(path, (count, rows // 2, info.shape[2]), plane, format=form, matrix=True)

    def _array(self, plane: Plane) -> Array:
        """Return the mapped file, also where an array is rows of each matrix of a stack.

        A tensor that cannot be mapped is read with its first half, and kept for the other one.
        """
        if plane.rows is None:
            return super()._array(plane)
        (info,) = plane.tensors
        whole = self._other_half.pop(info.name, None)
        if whole is None:
            whole = self._read(info)
            if not info.mapped:
                self._other_half[info.name] = whole
        return whole[:, plane.rows]

    def _load(self, source: Source) -> Linear:
        values = self._array(source.values)
        return Dense(values) if source.format is None else Gguf(values, source.format.mode)
