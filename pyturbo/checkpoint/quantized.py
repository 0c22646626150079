"""Quantised weights: codes in words with scales beside them, as MLX stores them, or blocks of GGUF."""

from __future__ import annotations

import math

from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.source import Plane, Shape, Source
from pyturbo.checkpoint.tensors import TensorInfo
from pyturbo.checkpoint.weights import FLOATS, Weights
from pyturbo.errors import FormatError
from pyturbo.ops.affine_format import BITS, GROUP_SIZES
from pyturbo.ops.fp_format import FP_FORMATS
from pyturbo.ops.gguf_format import GGUF_TYPES


def find_quantized(
    weights: Weights, path: str, shape: Shape | None, axes: int, said: Format | None
) -> Source:
    """Find the weight at `path`. Its format follows from its tensors if the caller knows its shape.

    Otherwise its format is `said`, which the configuration states; None if it states none.
    """
    weight, scales = weights.typed(f"{path}.weight", "U32"), weights.info(f"{path}.scales")
    if len(weight.shape) != axes or len(scales.shape) != axes or 0 in (*weight.shape, *scales.shape):
        raise FormatError(
            f"{weight}: shape: expected {axes} axes, and as many of the scales, "
            f"got {list(weight.shape)} and {list(scales.shape)}"
        )
    bits, group_size = _sizes(weight, scales, shape, said)
    form = Format(bits, group_size, _mode(weight, scales, bits, group_size))
    in_dim = scales.shape[-1] * group_size
    weights.check(f"{path}.weight", "shape", (*weight.shape[:-1], in_dim * bits // 32), weight.shape)
    weights.check(f"{path}.weight", "shape", shape, (*weight.shape[:-1], in_dim))
    weights.check(f"{path}.scales", "shape", (*weight.shape[:-1], scales.shape[-1]), scales.shape)
    biases = factor = None
    if form.mode == "affine":
        weights.typed(f"{path}.scales", *FLOATS)
        biases = weights.typed(f"{path}.biases", scales.dtype)
        weights.check(f"{path}.biases", "shape", scales.shape, biases.shape)
    else:
        factor = _global_scale(weights, path, weight, form.mode)
    return Source(
        path,
        (*weight.shape[:-1], in_dim),
        _plane(weight),
        _plane(scales),
        None if biases is None else _plane(biases),
        factor,
        form,
        matrix=True,
    )


def find_blocks(weights: Weights, path: str, shape: Shape | None, axes: int, form: Format) -> Source:
    """Find the weight at `path`, whose rows are blocks of GGUF, of the type that the configuration states."""
    weight, block = weights.typed(f"{path}.weight", "U8"), GGUF_TYPES[form.mode]
    if len(weight.shape) != axes or 0 in weight.shape or weight.shape[-1] % block.bytes:
        raise FormatError(
            f"{weight}: shape: expected {axes} axes, and rows of {form.mode} blocks of {block.bytes} bytes, "
            f"got {list(weight.shape)}"
        )
    size = (*weight.shape[:-1], form.width(weight.shape[-1]))
    weights.check(f"{path}.weight", "shape", shape, size)
    return Source(path, size, _plane(weight), format=form, matrix=True)


def _plane(info: TensorInfo) -> Plane:
    return Plane((info,), info.shape)


def _sizes(
    weight: TensorInfo, scales: TensorInfo, shape: Shape | None, said: Format | None
) -> tuple[int, int]:
    """Return bits and group size: from the input size if the caller knows it, otherwise from the config."""
    words, groups = weight.shape[-1], scales.shape[-1]
    if shape is not None:
        in_dim = shape[-1]
        if in_dim <= 0 or words * 32 % in_dim or in_dim % groups:
            raise FormatError(
                f"{weight}: expected {in_dim} values in each row, got {words} words in {groups} groups"
            )
        return words * 32 // in_dim, in_dim // groups
    if said is None or words * 32 != groups * said.group_size * said.bits:
        raise FormatError(
            f"{weight}: expected an entry of the config for {words} words in {groups} groups, "
            f"got {'none' if said is None else f'{said.bits} bits in groups of {said.group_size}'}"
        )
    return said.bits, said.group_size


def _mode(weight: TensorInfo, scales: TensorInfo, bits: int, group_size: int) -> str:
    """Return the mode. Scales in bytes belong to small floats; bits and group size tell which."""
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
            f"{weight}: expected {BITS} bits in groups of {GROUP_SIZES}, got {bits} in groups of {group_size}"
        )
    return "affine"


def _global_scale(weights: Weights, path: str, weight: TensorInfo, mode: str) -> Plane | None:
    """Find the one number of a matrix, or of each matrix of a stack; None if there is none."""
    name = f"{path}.global_scale"
    if name not in weights:
        return None
    info = weights.typed(name, "F32")
    if mode != "nvfp4":
        raise FormatError(f"{info}: expected no such tensor beside weights in {mode}")
    count = math.prod(weight.shape[:-2])
    if math.prod(info.shape) != count:
        raise FormatError(f"{info}: shape: expected {count} values, got {list(info.shape)}")
    return Plane((info,), weight.shape[:-2])
