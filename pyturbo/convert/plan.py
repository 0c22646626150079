"""What a converted checkpoint holds: every tensor with its name, type and shape, and where it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyturbo import models
from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.directory import DirectoryCheckpoint
from pyturbo.checkpoint.directory_weights import TRANSPOSED_EXPERTS
from pyturbo.checkpoint.weights import Shape
from pyturbo.convert.sources import Rows, expert_rows, linear_rows, tensor_rows
from pyturbo.errors import FormatError

#: Routers and the gates of shared experts are small, and what they choose decides everything after.
_GATES = (".mlp.gate", ".mlp.shared_expert_gate")
_GATE_FORMAT = Format(bits=8, group_size=64, mode="affine")

_UNIT = 32  # values that fill whole words at any width

#: Models whose router mlx-lm cannot quantise, and whose choice is corrected by a bias that stays exact.
_EXACT_ROUTERS = ("deepseek_v3",)
_EXACT_BIAS = ".e_score_correction_bias"

#: Models whose decay keeps the type it has in the file, and whose names begin with `language_model.`
_VISION_LANGUAGE = ("qwen3_5", "qwen3_5_moe")


@dataclass(frozen=True)
class Output:
    """One tensor of a written file."""

    name: str
    dtype: np.dtype[Any]
    shape: Shape

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Job:
    """Values to convert: the rows of all `parts`, one after the other, in `dtype` or quantised."""

    parts: list[Rows]
    dtype: np.dtype[Any]
    outputs: tuple[Output, ...]  # the tensor; or packed values, scales and, in the affine mode, biases
    format: Format | None

    @property
    def parameters(self) -> int:
        return sum(part.count * part.width for part in self.parts)

    @property
    def source_bytes(self) -> int:
        return sum(part.count * part.width * part.info.array_dtype.itemsize for part in self.parts)


@dataclass(frozen=True)
class Plan:
    jobs: list[Job]
    overrides: dict[str, Format]  # by module path in the output: formats other than the common one


def make_plan(checkpoint: DirectoryCheckpoint, common: Format, dtype: np.dtype[Any] | None) -> Plan:
    """`dtype` is that of scales and of what is not quantised; None: of each tensor in the file.

    FormatError for a tensor that is missing, of another shape, or that the architecture has no use for.
    """
    if checkpoint.config["model_type"] in TRANSPOSED_EXPERTS:
        raise FormatError(
            f"{checkpoint.path}: model_type: expected a model whose experts are rows of matrices, "
            f"got {checkpoint.config['model_type']!r}: use it as published"
        )
    _, asked = models.outline(checkpoint)
    weights = checkpoint.weights()
    plain = _GATES[:1] if checkpoint.config["model_type"] in _EXACT_ROUTERS else ()
    nested = checkpoint.config["model_type"] in _VISION_LANGUAGE
    prefix = "language_model." if nested else ""
    jobs, overrides = [], {}
    for name, shape in asked.tensors.items():
        rows = tensor_rows(weights, name, shape)
        own = rows.info.array_dtype
        exact = name.endswith(_EXACT_BIAS) or (nested and name.endswith(".A_log"))
        kind = own if dtype is None or exact else dtype
        shape = (*shape, 1) if name.endswith(".conv1d.weight") else shape
        jobs.append(Job([rows], kind, (Output(prefix + name, kind, shape),), None))
    for path, shape in asked.matrices.items():
        find = expert_rows if path in asked.stacks else linear_rows
        parts = find(weights, path, shape)
        kind = parts[0].info.array_dtype if dtype is None else dtype
        form = None if path.endswith(plain) else _format(path, shape, common)
        if form is not None and form != common:
            overrides[prefix + path] = form
        jobs.append(Job(parts, kind, _outputs(prefix + path, kind, shape, form), form))
    return Plan(jobs, overrides)


def _format(path: str, shape: Shape, common: Format) -> Format | None:
    """None: the matrix stays as it is, because its rows are not whole groups, or not whole words."""
    if shape[-1] % max(common.group_size, _UNIT):
        return None
    form = _GATE_FORMAT if path.endswith(_GATES) else common
    return None if shape[-1] % form.group_size else form


def _outputs(path: str, dtype: np.dtype[Any], shape: Shape, form: Format | None) -> tuple[Output, ...]:
    if form is None:
        return (Output(f"{path}.weight", dtype, shape),)
    words = (*shape[:-1], shape[-1] * form.bits // 32)
    groups = (*shape[:-1], shape[-1] // form.group_size)
    packed = Output(f"{path}.weight", np.dtype(np.uint32), words)
    if form.mode != "affine":
        return packed, Output(f"{path}.scales", np.dtype(np.uint8), groups)
    return packed, Output(f"{path}.scales", dtype, groups), Output(f"{path}.biases", dtype, groups)
