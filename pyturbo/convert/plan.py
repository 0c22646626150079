"""The plan of a conversion: every tensor to write with its name, type and shape, and its source."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyturbo import models
from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.directory import DirectoryCheckpoint
from pyturbo.checkpoint.file_layout import FileLayout
from pyturbo.checkpoint.names import is_convolution
from pyturbo.checkpoint.source import Rows, Shape, Source
from pyturbo.errors import FormatError

_UNIT = 32  # values that fill whole words at any number of bits


@dataclass(frozen=True)
class Output:
    """One tensor to write."""

    name: str
    dtype: np.dtype[Any]
    shape: Shape

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Job:
    """Values to convert: the rows of all `parts`, one after another, in `dtype` or quantised."""

    parts: list[Rows]
    dtype: np.dtype[Any]
    outputs: tuple[Output, ...]  # the tensor; or packed codes, scales and, in the affine mode, biases
    format: Format | None
    offset: bool = False  # whether 1 is added to the values

    @property
    def parameters(self) -> int:
        return sum(part.count * part.width for part in self.parts)

    @property
    def source_bytes(self) -> int:
        return sum(part.nbytes for part in self.parts)


@dataclass(frozen=True)
class Plan:
    jobs: list[Job]
    overrides: dict[str, Format]  # formats other than the common one, by module path in the output


def make_plan(checkpoint: DirectoryCheckpoint, common: Format, dtype: np.dtype[Any] | None) -> Plan:
    """List what to convert, with matrices in the format `common` unless the architecture has another one.

    `dtype` is the type of scales and of tensors that are not quantised; None keeps the type of each tensor.
    A tensor that is missing, has another shape or is not used by the architecture is a FormatError.
    """
    _, weights = models.outline(checkpoint)
    layout = weights.layout
    jobs, overrides = [], {}
    # Tensors come first, then matrices, then stacks of them, each in the order in which the network asks.
    for source in sorted(weights.sources.values(), key=lambda source: source.matrix * len(source.shape)):
        own = source.values.dtype
        if source.matrix:
            form = _format(source, common, layout)
            kind = dtype or own
            if form is not None and form != common:
                overrides[layout.prefix + source.name] = form
            outputs = _outputs(layout.prefix + source.name, kind, source.shape, form)
            jobs.append(Job(_rows(checkpoint, source), kind, outputs, form))
        else:
            kind = own if dtype is None or source.name.endswith(layout.exact) else dtype
            shape = (*source.shape, 1) if is_convolution(source.name) else source.shape
            output = Output(layout.prefix + source.name, kind, shape)
            jobs.append(Job(_rows(checkpoint, source), kind, (output,), None, source.offset))
    return Plan(jobs, overrides)


def _rows(checkpoint: DirectoryCheckpoint, source: Source) -> list[Rows]:
    if source.format is not None or not source.values.in_rows:
        raise FormatError(
            f"{checkpoint.path}: {source.name}: expected rows of matrices in floating point, "
            f"got another layout: use {checkpoint.model_type} as published"
        )
    return source.values.runs()


def _format(source: Source, common: Format, layout: FileLayout) -> Format | None:
    """Return the format of a matrix; None if it stays as it is, because its rows are not whole groups."""
    in_dim = source.shape[-1]
    if in_dim % max(common.group_size, _UNIT):
        return None
    form = next((own for end, own in layout.formats.items() if source.name.endswith(end)), common)
    return None if form is None or in_dim % form.group_size else form


def _outputs(path: str, dtype: np.dtype[Any], shape: Shape, form: Format | None) -> tuple[Output, ...]:
    if form is None:
        return (Output(f"{path}.weight", dtype, shape),)
    words = (*shape[:-1], shape[-1] * form.bits // 32)
    groups = (*shape[:-1], shape[-1] // form.group_size)
    packed = Output(f"{path}.weight", np.dtype(np.uint32), words)
    if form.mode != "affine":
        return packed, Output(f"{path}.scales", np.dtype(np.uint8), groups)
    return packed, Output(f"{path}.scales", dtype, groups), Output(f"{path}.biases", dtype, groups)
