"""Weights in the MLX "affine" format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyturbo import ops
from pyturbo._arrays import Array
from pyturbo.formats.linear import Buckets, Linear
from pyturbo.formats.rows import take_bias, take_rows


@dataclass(frozen=True, eq=False, repr=False)
class Affine(Linear):
    """A weight [..., out, in] with ``w = q * scale + bias`` per group of its rows; see pyturbo.ops.affine."""

    packed: Array  # uint32 [..., out, in * bits / 32]
    scales: Array  # [..., out, in / group_size] in float32, float16 or bfloat16
    biases: Array  # like scales
    bits: int
    group_size: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.packed.shape[:-1], self.scales.shape[-1] * self.group_size)

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.packed, self.scales, self.biases

    @property
    def name(self) -> str:
        return f"{self.bits} bits in groups of {self.group_size}"

    @property
    def weight(self) -> tuple[Array, Array, Array, int, int]:
        """The weight as operations take it."""
        return self.packed, self.scales, self.biases, self.bits, self.group_size

    def apply_swiglu(self, up: Linear, x: Any) -> Any:
        if isinstance(up, Affine) and self._pairs(up):
            return ops.affine_swiglu(x, self.weight, up.weight)
        return super().apply_swiglu(up, x)

    def apply_experts_swiglu(self, up: Linear, x: Any, ids: Any, slots: Any = None) -> Any:
        if isinstance(up, Affine) and self._pairs(up):
            return ops.affine_experts_swiglu(x, ids, self.weight, up.weight, slots=slots)
        return super().apply_experts_swiglu(up, x, ids, slots)

    def apply_buckets_swiglu(self, up: Linear, x: Any, buckets: Buckets, slots: Any = None) -> Any:
        if isinstance(up, Affine) and self._pairs(up):
            return ops.affine_grouped_swiglu(x, buckets.offsets, self.weight, up.weight, slots=slots)
        return super().apply_buckets_swiglu(up, x, buckets, slots)

    def embed(self, ids: Any) -> Any:
        return ops.affine_embed(ids, *self.weight)

    def rows(self, index: Array) -> Affine:
        packed, scales, biases = (take_rows(array, index) for array in self.arrays)
        bias = take_bias(self.bias, index)
        return replace(self, packed=packed, scales=scales, biases=biases, bias=bias)

    def _pairs(self, up: Affine) -> bool:
        """Tell whether one kernel can read both weights: they have one format, equal strides and no bias."""
        formats = [
            (layer.bits, layer.group_size, layer.scales.dtype, [array.strides for array in layer.arrays])
            for layer in (self, up)
        ]
        return formats[0] == formats[1] and self.bias is None and up.bias is None

    def _operand(self) -> Any:
        return self.weight

    def _multiply(self, x: Any) -> Any:
        return ops.affine_matmul(x, *self.weight)

    def _multiply_experts(self, x: Any, ids: Any, slots: Any) -> Any:
        return ops.affine_experts_matmul(x, ids, *self.weight, slots=slots)

    def _multiply_buckets(self, x: Any, offsets: Any, slots: Any) -> Any:
        return ops.affine_grouped_matmul(x, offsets, *self.weight, slots=slots)
