"""Stacks of experts as transformers stores them; the layout of the architecture says how."""

from __future__ import annotations

import re

from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.file_layout import Stored
from pyturbo.checkpoint.source import Plane, Shape, Source
from pyturbo.checkpoint.weights import FLOATS, Weights
from pyturbo.errors import FormatError

_MXFP4 = Format(bits=4, group_size=32, mode="mxfp4")
_BLOCK_BYTES = 16  # size of a group in mxfp4


def find_experts(weights: Weights, path: str, shape: Shape | None) -> Source | None:
    """Find the stack [experts, out, in] at `path`; None if no tensor that the layout knows is there.

    Tensors have names such as mlp.experts.gate_up_proj and mlp.experts.0.gate_proj.weight.
    """
    name, stored = _locate(weights, path)
    if stored is None:
        return None
    if f"{name}_blocks" in weights:
        return _blocks(weights, path, name, stored)
    plane = _each(weights, name, shape) if "{}" in name else _part(weights, name, stored)
    return Source(path, plane.shape, plane, matrix=True)


def find_bias(weights: Weights, path: str, shape: Shape) -> Source:
    """Find the biases [experts, out] of the stack at `path`, such as mlp.experts.gate_up_proj_bias."""
    name, stored = _locate(weights, path)
    info = weights.typed(f"{path}.bias" if stored is None else f"{name}_bias", *FLOATS)
    got, rows = info.shape, None
    if stored is not None and len(got) == 2:
        rows = stored.rows(got[1])
        got = (got[0], got[1] // stored.parts)
    if got != shape:
        raise FormatError(
            f"{info}: shape of {path.rpartition('.')[2]}: expected {list(shape)}, got {list(got)}"
        )
    return Source(f"{path}.bias", shape, Plane((info,), shape, rows))


def is_copied(weights: Weights, name: str) -> bool:
    """Return whether a tensor holds experts as transformers stores them, which are copied into a stack."""
    _, found, below = name.rpartition(".experts.")
    projection, stacked, _ = below.partition(".")
    return bool(found) and not (stacked and projection in weights.layout.experts)


def _locate(weights: Weights, path: str) -> tuple[str, Stored | None]:
    """Find the tensor of the stack at `path`. Its name lacks a suffix, and "{}" stands for an expert."""
    base, _, projection = path.rpartition(".")
    experts = re.sub(r"\.(switch_mlp|experts)$", ".experts", base)
    choices = weights.layout.experts.get(projection, ())
    for stored in choices:
        name = f"{experts}.{stored.tensor}"
        if any(_of_expert(name, 0) + suffix in weights for suffix in ("", ".weight", "_blocks", "_bias")):
            return name, stored
    if len(choices) == 1:  # so that an error names this tensor
        return f"{experts}.{choices[0].tensor}", choices[0]
    return path, None


def _of_expert(name: str, expert: int) -> str:
    return name.replace("{}", str(expert))


def _part(weights: Weights, name: str, stored: Stored) -> Plane:
    """Describe a tensor [experts, out, in], or the part of it that is one projection."""
    if name not in weights and f"{name}.weight" in weights:
        name += ".weight"
    info = weights.typed(name, *FLOATS)
    if len(info.shape) != 3:
        raise FormatError(f"{info}: shape: expected 3 axes, got {list(info.shape)}")
    count, rows, in_dim = info.shape
    if stored.transposed:
        rows, in_dim = in_dim, rows
    if rows % stored.parts:
        raise FormatError(
            f"{info}: shape: expected [experts, {stored.parts} * out, in], got {list(info.shape)}"
        )
    shape = (count, rows // stored.parts, in_dim)
    return Plane((info,), shape, stored.rows(rows), stored.transposed)


def _each(weights: Weights, name: str, shape: Shape | None) -> Plane:
    """Describe one tensor for each expert: at least as many as the caller expects, and all there are."""
    name, count = f"{name}.weight", 0
    while _of_expert(name, count) in weights:
        count += 1
    count = max(1, count, shape[0] if shape is not None else 0)
    first = weights.typed(_of_expert(name, 0), *FLOATS)
    infos = []
    for expert in range(count):
        one = _of_expert(name, expert)
        infos.append(weights.typed(one, first.dtype))
        weights.check(one, "shape", first.shape, infos[-1].shape)
    return Plane(tuple(infos), (count, *first.shape))


def _blocks(weights: Weights, path: str, name: str, stored: Stored) -> Source:
    """Describe a stack in mxfp4 as transformers stores it: blocks [experts, out, groups, 16 bytes]."""
    blocks, scales = (weights.typed(f"{name}_{part}", "U8") for part in ("blocks", "scales"))
    if len(blocks.shape) != 4 or blocks.shape[3] != _BLOCK_BYTES or scales.shape != blocks.shape[:3]:
        raise FormatError(
            f"{blocks}: shape: expected [experts, out, groups, {_BLOCK_BYTES}], and the same of the scales "
            f"but for the last axis, got {list(blocks.shape)} and {list(scales.shape)}"
        )
    count, out_dim, groups, _ = blocks.shape
    if out_dim % stored.parts:
        raise FormatError(
            f"{blocks}: shape: expected [experts, {stored.parts} * out, groups, ...], "
            f"got {list(blocks.shape)}"
        )
    rows = stored.rows(out_dim)
    out_dim //= stored.parts
    values = Plane((blocks,), (count, out_dim, groups, _BLOCK_BYTES), rows)
    factors = Plane((scales,), (count, out_dim, groups), rows)
    shape = (count, out_dim, groups * _MXFP4.group_size)
    return Source(path, shape, values, factors, format=_MXFP4, matrix=True)
