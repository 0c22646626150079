"""Formats of matrices, as the kernels that multiply one token with them take them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pyturbo.ops.fp_format import FP_FORMATS
from pyturbo.ops.gguf_format import GGUF_TYPES

GROUP_SIZE = 64  # of the affine format


class Plane(NamedTuple):
    """One array of a matrix."""

    shape: tuple[int, int]
    dtype: Any

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * int(np.dtype(self.dtype).itemsize)


@dataclass(frozen=True)
class MatrixFormat:
    """A format and its kernel.

    Attributes:
        name: What people call it.
        kernel: The name of the kernel.
        rows: For each array of a matrix, the bytes of a row by the values in it, and the type.
        constants: Of the kernel.
        absent: Arguments after the arrays.
        sizes: Arguments after those that all kernels have.
    """

    name: str
    kernel: str
    rows: tuple[tuple[float, Any], ...]
    constants: Mapping[str, bool] = field(default_factory=dict)
    absent: tuple[None, ...] = ()
    sizes: tuple[int, ...] = ()

    def planes(self, out: int, width: int) -> list[Plane]:
        """Return the arrays of a matrix [out, width]."""
        return [
            Plane((out, int(width * per_value) // np.dtype(dtype).itemsize), dtype)
            for per_value, dtype in self.rows
        ]


AFFINE = MatrixFormat(
    f"4 bits in groups of {GROUP_SIZE}",
    "affine_matvec_b4_f16",
    ((4 / 8, np.uint32), (2 / GROUP_SIZE, np.float16), (2 / GROUP_SIZE, np.float16)),
    sizes=(GROUP_SIZE,),
)


def _fp(mode: str) -> MatrixFormat:
    bits, group = FP_FORMATS[mode][:2]
    rows = ((bits / 8, np.uint32), (1 / group, np.uint8))
    return MatrixFormat(mode, f"fp_matvec_{mode}", rows, {"has_global_scale": False}, absent=(None,))


def _gguf(kind: str) -> MatrixFormat:
    block = GGUF_TYPES[kind]
    return MatrixFormat(kind, f"gguf_matvec_{kind.lower()}", ((block.bytes / block.values, np.uint8),))


#: All formats of 4 bits and more or less, the affine one first.
FORMATS = (AFFINE, *map(_fp, FP_FORMATS), *map(_gguf, GGUF_TYPES))
