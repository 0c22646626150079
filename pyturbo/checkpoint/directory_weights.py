"""Weights of a directory as mlx-lm or transformers writes it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from pyturbo._arrays import Array
from pyturbo._blank import as_words
from pyturbo._messages import shown
from pyturbo.checkpoint.config import Quantization
from pyturbo.checkpoint.names import is_ignored, text_name
from pyturbo.checkpoint.tensors import TensorInfo, Tensors
from pyturbo.checkpoint.weights import FLOATS, Shape, Weights
from pyturbo.errors import FormatError
from pyturbo.formats import Affine, Dense, Fp, Linear
from pyturbo.ops.affine_format import BITS, GROUP_SIZES
from pyturbo.ops.fp_format import FP_FORMATS

_CONV = ".conv1d.weight"
_HALVES = {"gate_proj": 0, "up_proj": 1}

#: Models whose experts transformers stores as [experts, in, out], gate and up taking turns in one tensor.
TRANSPOSED_EXPERTS = ("gpt_oss",)

#: Models whose norms multiply by 1 + weight. transformers stores the weight, mlx-lm the sum.
_OFFSET_NORM_MODELS = ("qwen3_5", "qwen3_5_moe", "qwen3_next")
_OFFSET_NORMS = re.compile(
    r"model\.norm\.weight"
    r"|model\.layers\.\d+\.(input_layernorm|post_attention_layernorm|self_attn\.[qk]_norm)\.weight"
)


_STACK = re.compile(r"\.experts\.(gate|up|down)_proj\.")  # as MLX names those of gpt-oss
_LAYER = re.compile(r"model\.layers\.(\d{1,9})\.")


def _is_draft(name: str, config: dict[str, Any]) -> bool:
    """Whether a tensor belongs to the layers behind the last, which predict further tokens."""
    layers, drafts = config.get("num_hidden_layers"), config.get("num_nextn_predict_layers")
    if type(layers) is not int or type(drafts) is not int or (match := _LAYER.match(name)) is None:
        return False
    return layers <= int(match[1]) < layers + drafts


def _published(path: str) -> tuple[str, str]:
    """Where transformers keeps the experts of a stack, and the name of its projection."""
    base, _, projection = path.rpartition(".")
    return re.sub(r"\.(switch_mlp|experts)$", ".experts", base), projection


def _columns(projection: str) -> tuple[str, slice]:
    """The tensor with a projection of transposed experts, and the places in its last axis."""
    if projection in _HALVES:
        return "gate_up_proj", slice(_HALVES[projection], None, 2)
    return projection, slice(None)


class DirectoryWeights(Weights):
    def __init__(
        self, checkpoint: Tensors, quantization: Quantization, label: str, values: bool = True
    ) -> None:
        """`label`: what the files' metadata call their format, "mlx" or anything else."""
        names: dict[str, str] = {}
        for raw in checkpoint:
            name = text_name(raw)
            if is_ignored(name) or _is_draft(name, checkpoint.config):
                continue
            if name in names:
                raise FormatError(f"{checkpoint[raw]}: is the same tensor as {shown(names[name])}")
            names[name] = raw
        super().__init__(checkpoint, names, values)
        self._quantization = quantization
        offset_model = checkpoint.config["model_type"] in _OFFSET_NORM_MODELS
        self._offset_norms = offset_model and not self._is_mlx(label)

    def _is_mlx(self, label: str) -> bool:
        """By the layout of the convolutions, [channels, taps, 1] in MLX; by `label` where there are none."""
        layouts = set()
        for name, raw in self._names.items():
            if name.endswith(_CONV):
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

    def is_offset_norm(self, name: str) -> bool:
        """Whether the file holds the weight of a norm that multiplies by 1 + weight."""
        return self._offset_norms and _OFFSET_NORMS.fullmatch(name) is not None

    def _float(self, name: str) -> Array:
        array: Array = self._read(self._typed(name, *FLOATS))
        if name.endswith(_CONV) and array.ndim == 3 and 1 in array.shape[1:]:
            return array.reshape(len(array), array.shape[1] * array.shape[2])
        if self.is_offset_norm(name):
            array = array.astype(np.float32) + np.float32(1)
        return array

    def _matrix(self, path: str, shape: Shape | None, axes: int) -> Linear:
        if f"{path}.scales" in self:
            return self._quantized(path, shape, axes)
        if axes == 3 and (experts := self._blocks(path)):
            self._check(f"{path}.weight", "shape", shape, experts.shape)
            return experts
        layer = Dense(self._expert_stack(path, shape) if axes == 3 else self._float(f"{path}.weight"))
        name = f"{path}.weight"
        if len(layer.shape) != axes or 0 in layer.shape:
            raise FormatError(f"{self._where(name)}: shape: expected {axes} axes, got {list(layer.shape)}")
        self._check(name, "shape", shape, layer.shape)
        return layer

    def _quantized(self, path: str, shape: Shape | None, axes: int) -> Affine | Fp:
        weight, scales = self._typed(f"{path}.weight", "U32"), self._info(f"{path}.scales")
        if len(weight.shape) != axes or len(scales.shape) != axes or 0 in (*weight.shape, *scales.shape):
            raise FormatError(
                f"{weight}: shape: expected {axes} axes, and as many of the scales, "
                f"got {list(weight.shape)} and {list(scales.shape)}"
            )
        bits, group_size = self._format(path, weight, scales, shape)
        mode = self._mode(weight, scales, bits, group_size)
        in_dim = scales.shape[-1] * group_size
        self._check(f"{path}.weight", "shape", (*weight.shape[:-1], in_dim * bits // 32), weight.shape)
        self._check(f"{path}.weight", "shape", shape, (*weight.shape[:-1], in_dim))
        self._check(f"{path}.scales", "shape", (*weight.shape[:-1], scales.shape[-1]), scales.shape)
        if mode != "affine":
            return Fp(self._read(weight), self._read(scales), mode, self._global_scale(path, weight, mode))
        scales = self._typed(f"{path}.scales", *FLOATS)
        biases = self._typed(f"{path}.biases", scales.dtype)
        self._check(f"{path}.biases", "shape", scales.shape, biases.shape)
        return Affine(self._read(weight), self._read(scales), self._read(biases), bits, group_size)

    def _mode(self, weight: TensorInfo, scales: TensorInfo, bits: int, group_size: int) -> str:
        """Scales of bytes are those of small floats, whose mode follows from bits and group size."""
        if scales.dtype == "U8":
            for mode, form in FP_FORMATS.items():
                if form == (bits, group_size):
                    return mode
            known = ", ".join(f"{b} bits in groups of {g}" for b, g in FP_FORMATS.values())
            raise FormatError(
                f"{weight}: expected {known} with scales of U8, got {bits} in groups of {group_size}"
            )
        if bits not in BITS or group_size not in GROUP_SIZES:
            raise FormatError(
                f"{weight}: expected {BITS} bits in groups of {GROUP_SIZES}, "
                f"got {bits} in groups of {group_size}"
            )
        return "affine"

    def _global_scale(self, path: str, weight: TensorInfo, mode: str) -> Array | None:
        """One number for a matrix, or for each of a stack."""
        name = f"{path}.global_scale"
        if name not in self:
            return None
        info = self._typed(name, "F32")
        if mode != "nvfp4":
            raise FormatError(f"{info}: expected no such tensor beside weights in {mode}")
        count = math.prod(weight.shape[:-2])
        if math.prod(info.shape) != count:
            raise FormatError(f"{info}: shape: expected {count} values, got {list(info.shape)}")
        return self._read(info).reshape(weight.shape[:-2])

    def _format(
        self, path: str, weight: TensorInfo, scales: TensorInfo, shape: Shape | None
    ) -> tuple[int, int]:
        """Bits and group size: from the input size where the caller knows it, else from the config."""
        words, groups = weight.shape[-1], scales.shape[-1]
        if shape is not None:
            in_dim = shape[-1]
            if in_dim <= 0 or words * 32 % in_dim or in_dim % groups:
                raise FormatError(
                    f"{weight}: expected {in_dim} values in each row, got {words} words in {groups} groups"
                )
            return words * 32 // in_dim, in_dim // groups
        said = self._quantization.format(path)
        if said is None or words * 32 != groups * said.group_size * said.bits:
            raise FormatError(
                f"{weight}: expected an entry of the config for {words} words in {groups} groups, "
                f"got {'none' if said is None else f'{said.bits} bits in groups of {said.group_size}'}"
            )
        return said.bits, said.group_size

    def _read_whole(self, name: str) -> bool:
        return ".experts." not in name or _STACK.search(name) is not None

    def _expert_stack(self, path: str, shape: Shape | None) -> Array:
        """A stack as such, or half of mlp.experts.gate_up_proj, or mlp.experts.0.gate_proj and so on."""
        experts, projection = _published(path)
        if f"{path}.weight" not in self and self.checkpoint.config["model_type"] in TRANSPOSED_EXPERTS:
            return self._transposed(experts, projection)
        for name in (f"{path}.weight", f"{experts}.{projection}", f"{experts}.{projection}.weight"):
            if name in self:
                return self._float(name)
        for name in (f"{experts}.gate_up_proj", f"{experts}.gate_up_proj.weight"):
            if name in self and projection in _HALVES:
                return self._half(name, _HALVES[projection])
        if f"{experts}.0.{projection}.weight" in self:
            return self._stacked(f"{experts}.{{}}.{projection}.weight", shape)
        return self._float(f"{path}.weight")

    def _transposed(self, experts: str, projection: str) -> Array:
        """The stack [experts, out, in] of a tensor [experts, in, out], or of every other of [.., 2 * out]."""
        name, columns = _columns(projection)
        info = self._typed(f"{experts}.{name}", *FLOATS)
        if len(info.shape) != 3:
            raise FormatError(f"{info}: shape: expected 3 axes, got {list(info.shape)}")
        count, in_dim, out_dim = info.shape
        out_dim = len(range(out_dim)[columns])
        return self._each(info, (count, out_dim, in_dim), lambda expert: expert[:, columns].T)

    def _blocks(self, path: str) -> Fp | None:
        """A stack in mxfp4 as gpt-oss is published, None where there is none.

        Blocks are [experts, out, groups, 16 bytes], rows of gate and up in turns.
        """
        experts, projection = _published(path)
        name, rows = _columns(projection)
        if f"{experts}.{name}_blocks" not in self:
            return None
        blocks = self._typed(f"{experts}.{name}_blocks", "U8")
        scales = self._typed(f"{experts}.{name}_scales", "U8")
        if len(blocks.shape) != 4 or blocks.shape[3] != 16 or scales.shape != blocks.shape[:3]:
            raise FormatError(
                f"{blocks}: shape: expected [experts, out, groups, 16], and the same of the scales but for "
                f"the last axis, got {list(blocks.shape)} and {list(scales.shape)}"
            )
        packed, factors = (self._rows(info, rows) for info in (blocks, scales))
        return Fp(as_words(packed.reshape(*packed.shape[:2], -1)), factors, "mxfp4")

    def _rows(self, info: TensorInfo, rows: slice) -> Array:
        """Rows of the second axis: the mapped file where they are all, else a copy."""
        if rows == slice(None):
            return self._read(info)
        shape = (info.shape[0], len(range(info.shape[1])[rows]), *info.shape[2:])
        return self._each(info, shape, lambda expert: expert[rows])

    def _expert_bias(self, path: str, shape: Shape) -> Array:
        if f"{path}.bias" in self:
            return self.tensor(f"{path}.bias", shape)
        experts, projection = _published(path)
        name, columns = _columns(projection)
        array = self.tensor(f"{experts}.{name}_bias")
        array = array if columns == slice(None) else array[..., columns].copy()
        self._check(f"{experts}.{name}_bias", f"shape of {projection}", shape, array.shape)
        return array

    def _half(self, name: str, half: int) -> Array:
        """Rows of gate (0) or of up (1) from [experts, gate rows and then up rows, in]."""
        info = self._typed(name, *FLOATS)
        if len(info.shape) != 3 or info.shape[1] % 2:
            raise FormatError(f"{info}: shape: expected [experts, 2 * out, in], got {list(info.shape)}")
        out_dim = info.shape[1] // 2

        def fill(result: Array) -> None:
            for expert, rows in enumerate(result):
                info.file.fill(rows, info.offset + (2 * expert + half) * rows.nbytes)

        return self._made((info.shape[0], out_dim, info.shape[2]), info.array_dtype, fill)

    def _each(self, info: TensorInfo, shape: Shape, change: Callable[[Array], Array]) -> Array:
        """A stack of what `change` makes of each expert, one at a time."""

        def fill(result: Array) -> None:
            for expert in range(len(result)):
                result[expert] = change(info[expert : expert + 1][0])

        return self._made(shape, info.array_dtype, fill, work=info.nbytes // max(1, info.shape[0]))

    def _stacked(self, pattern: str, shape: Shape | None) -> Array:
        """The matrices of all experts: as many as the caller expects, and as there are names in a row."""
        count = 0
        while pattern.format(count) in self:
            count += 1
        count = max(count, shape[0] if shape is not None else 0)
        first = self._typed(pattern.format(0), *FLOATS)
        infos = []
        for expert in range(count):
            name = pattern.format(expert)
            infos.append(self._typed(name, first.dtype))
            self._check(name, "shape", first.shape, infos[-1].shape)

        def fill(result: Array) -> None:
            for expert, info in enumerate(infos):
                info.file.fill(result[expert], info.offset)

        return self._made((count, *first.shape), first.array_dtype, fill)
