"""The weight of a linear layer, or of a stack of them: quantised or plain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyturbo._arrays import Array, aligned_empty
from pyturbo._blank import Blank
from pyturbo.ops.fp_format import FP_FORMATS


@dataclass(frozen=True, eq=False)
class Affine:
    """w [..., out, in] as ``w = q * scale + bias`` per group of the last axis; see pyturbo.ops.affine."""

    packed: Array  # uint32 [..., out, in * bits / 32]
    scales: Array  # [..., out, in / group_size] in float32, float16 or bfloat16
    biases: Array  # like scales
    bits: int
    group_size: int
    bias: Array | None = None  # [..., out], added to the product

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.packed.shape[:-1], self.scales.shape[-1] * self.group_size)

    @property
    def format(self) -> tuple[int, int, np.dtype[Any]]:
        """Bits, group size, and type of scales and biases."""
        return self.bits, self.group_size, self.scales.dtype

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.packed, self.scales, self.biases

    @property
    def weight(self) -> tuple[Array, Array, Array, int, int]:
        """As operations take it."""
        return self.packed, self.scales, self.biases, self.bits, self.group_size

    def __repr__(self) -> str:
        bias = "" if self.bias is None else ", bias"
        return f"Affine({list(self.shape)}, {self.bits} bits in groups of {self.group_size}{bias})"

    def rows(self, index: Array) -> Affine:
        """A copy of the rows `index` of the output axis, in that order."""
        packed, scales, biases = (_taken(a, index, -2) for a in (self.packed, self.scales, self.biases))
        return replace(self, packed=packed, scales=scales, biases=biases, bias=_bias(self.bias, index))


@dataclass(frozen=True, eq=False)
class Fp:
    """w [..., out, in] as ``w = code * scale`` per group of the last axis; see pyturbo.ops.fp."""

    packed: Array  # uint32 [..., out, in * bits / 32]
    scales: Array  # uint8 [..., out, in / group]
    mode: str  # "mxfp4", "mxfp8" or "nvfp4"
    global_scale: Array | None = None  # float32 [...]: values are times it over 2688
    bias: Array | None = None  # [..., out], added to the product

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.packed.shape[:-1], self.packed.shape[-1] * 32 // FP_FORMATS[self.mode][0])

    @property
    def arrays(self) -> tuple[Array, ...]:
        more = () if self.global_scale is None else (self.global_scale,)
        return self.packed, self.scales, *more

    @property
    def weight(self) -> tuple[Array, Array, str, Array | None]:
        """As operations take it."""
        return self.packed, self.scales, self.mode, self.global_scale

    def __repr__(self) -> str:
        return f"Fp({list(self.shape)}, {self.mode}{'' if self.bias is None else ', bias'})"

    def rows(self, index: Array) -> Fp:
        """A copy of the rows `index` of the output axis, in that order."""
        packed, scales = (_taken(a, index, -2) for a in (self.packed, self.scales))
        return replace(self, packed=packed, scales=scales, bias=_bias(self.bias, index))


@dataclass(frozen=True, eq=False)
class Dense:
    """w [..., out, in] in float32, float16 or bfloat16."""

    weight: Array
    bias: Array | None = None  # [..., out], added to the product

    @property
    def shape(self) -> tuple[int, ...]:
        return self.weight.shape

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (self.weight,)

    def __repr__(self) -> str:
        return f"Dense({list(self.shape)}, {self.weight.dtype}{'' if self.bias is None else ', bias'})"

    def rows(self, index: Array) -> Dense:
        """A copy of the rows `index` of the output axis, in that order."""
        return Dense(_taken(self.weight, index, -2), _bias(self.bias, index))


Linear = Affine | Fp | Dense


def _bias(bias: Array | None, index: Array) -> Array | None:
    return None if bias is None else _taken(bias, index, -1)


def _taken(array: Array, index: Array, axis: int) -> Array:
    """A copy of some entries of an axis, in memory that every device can use where it is."""
    shape = list(array.shape)
    shape[axis] = len(index)
    if isinstance(array, Blank):
        return array.copied(tuple(shape))
    taken = aligned_empty(tuple(shape), array.dtype)
    return np.take(array, index, axis, out=taken, mode="wrap")  # which needs no second copy, as "raise" does
