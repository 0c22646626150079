"""Weights of a directory as mlx-lm or transformers writes it."""

from __future__ import annotations

import numpy as np

from pyturbo._arrays import Array
from pyturbo._blank import as_words
from pyturbo._messages import shown
from pyturbo.checkpoint.config import Quantization
from pyturbo.checkpoint.experts import find_bias, find_experts, is_copied
from pyturbo.checkpoint.file_layout import FileLayout
from pyturbo.checkpoint.names import is_convolution, is_draft, is_ignored, text_name
from pyturbo.checkpoint.quantized import find_blocks, find_quantized
from pyturbo.checkpoint.source import Plane, Shape, Source
from pyturbo.checkpoint.tensors import Tensors
from pyturbo.checkpoint.weights import FLOATS, Weights
from pyturbo.errors import FormatError
from pyturbo.formats import Affine, Dense, Fp, Gguf, Linear


class DirectoryWeights(Weights):
    def __init__(
        self,
        checkpoint: Tensors,
        layout: FileLayout,
        quantization: Quantization,
        label: str,
        values: bool = True,
    ) -> None:
        """Name the tensors. `label` is the format in the metadata of the files: "mlx" or anything else."""
        names: dict[str, str] = {}
        for raw in checkpoint:
            name = text_name(raw)
            if is_ignored(name) or is_draft(name, checkpoint.config):
                continue
            if name in names:
                raise FormatError(f"{checkpoint[raw]}: is the same tensor as {shown(names[name])}")
            names[name] = raw
        super().__init__(checkpoint, names, layout, values)
        self._quantization = quantization
        self._offset_norms = layout.offset_norms
        if layout.offset_norms is not None and self._is_mlx(label):
            self._offset_norms = None

    def _is_mlx(self, label: str) -> bool:
        """Decide by the layout of convolutions, [channels, taps, 1] in MLX; without any, by `label`."""
        layouts = set()
        for name, raw in self._names.items():
            if is_convolution(name):
                info = self.checkpoint[raw]
                if len(info.shape) != 3 or 1 not in info.shape[1:]:
                    raise FormatError(
                        f"{info}: shape: expected [channels, taps, 1] or [channels, 1, taps], "
                        f"got {list(info.shape)}"
                    )
                layouts.add(info.shape[2] == 1)
                if len(layouts) > 1:
                    raise FormatError(f"{info}: expected the layout of the convolutions before it")
        return layouts.pop() if layouts else label == "mlx"

    def _find_tensor(self, name: str) -> Source:
        info = self.typed(name, *FLOATS)
        shape = info.shape
        if is_convolution(name) and len(shape) == 3 and 1 in shape[1:]:
            shape = (shape[0], shape[1] * shape[2])
        offset = self._offset_norms is not None and self._offset_norms.fullmatch(name) is not None
        return Source(name, shape, Plane((info,), shape), offset=offset)

    def _values(self, source: Source) -> Array:
        array = super()._values(source)
        return array.astype(np.float32) + np.float32(1) if source.offset else array

    def _find_matrix(self, path: str, shape: Shape | None, axes: int) -> Source:
        name = f"{path}.weight"
        if f"{path}.scales" in self:
            return find_quantized(self, path, shape, axes, self._quantization.format(path))
        said = self._quantization.format(path)
        if said is not None and said.block is not None and name in self and self.info(name).dtype == "U8":
            return find_blocks(self, path, shape, axes, said)
        source = find_experts(self, path, shape) if axes == 3 and name not in self else None
        if source is None:
            info = self.typed(name, *FLOATS)
            source = Source(path, info.shape, Plane((info,), info.shape), matrix=True)
        if len(source.shape) != axes or 0 in source.shape:
            raise FormatError(f"{self.where(name)}: shape: expected {axes} axes, got {list(source.shape)}")
        self.check(name, "shape", shape, source.shape)
        return source

    def _find_expert_bias(self, path: str, shape: Shape) -> Source:
        if f"{path}.bias" in self:
            return super()._find_expert_bias(path, shape)
        return find_bias(self, path, shape)

    def _load(self, source: Source) -> Linear:
        values = self._array(source.values)
        if source.format is not None and source.format.block is not None:
            return Gguf(values, source.format.mode)
        if source.format is None or source.scales is None:
            return Dense(values)
        if values.dtype == np.uint8:
            values = as_words(values.reshape(*source.shape[:-1], -1))
        scales = self._array(source.scales)
        if source.biases is not None:
            return Affine(
                values, scales, self._array(source.biases), source.format.bits, source.format.group_size
            )
        factor = None if source.global_scale is None else self._array(source.global_scale)
        return Fp(values, scales, source.format.mode, factor)

    def _read_whole(self, name: str) -> bool:
        return not is_copied(self, name)
