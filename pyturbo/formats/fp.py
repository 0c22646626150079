"""Weights in the MLX formats of small floats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyturbo import ops
from pyturbo._arrays import Array
from pyturbo.formats.linear import Buckets, Linear
from pyturbo.formats.rows import take_bias, take_rows


@dataclass(frozen=True, eq=False, repr=False)
class Fp(Linear):
    """A weight [..., out, in] with ``w = code * scale`` per group of its rows; see pyturbo.ops.fp."""

    packed: Array  # uint32 [..., out, in * bits / 32]
    scales: Array  # uint8 [..., out, in / group]
    mode: str  # "mxfp4", "mxfp8" or "nvfp4"
    global_scale: Array | None = None  # float32 [...]: values are times it over 2688

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.packed.shape[:-1], self.packed.shape[-1] * 32 // ops.FP_FORMATS[self.mode][0])

    @property
    def arrays(self) -> tuple[Array, ...]:
        more = () if self.global_scale is None else (self.global_scale,)
        return self.packed, self.scales, *more

    @property
    def name(self) -> str:
        return self.mode

    @property
    def weight(self) -> tuple[Array, Array, str, Array | None]:
        """The weight as operations take it."""
        return self.packed, self.scales, self.mode, self.global_scale

    @property
    def foldable(self) -> bool:
        return self.global_scale is None

    def apply_swiglu(self, up: Linear, x: Any) -> Any:
        if isinstance(up, Fp) and self._pairs(up):
            return ops.fp_swiglu(x, self.weight, up.weight)
        return super().apply_swiglu(up, x)

    def apply_experts_swiglu(self, up: Linear, x: Any, ids: Any, slots: Any = None) -> Any:
        if isinstance(up, Fp) and self._pairs(up):
            return ops.fp_experts_swiglu(x, ids, self.weight, up.weight, slots=slots)
        return super().apply_experts_swiglu(up, x, ids, slots)

    def apply_buckets_swiglu(self, up: Linear, x: Any, buckets: Buckets, slots: Any = None) -> Any:
        if isinstance(up, Fp) and self._pairs(up):
            return ops.fp_grouped_swiglu(x, buckets.offsets, self.weight, up.weight, slots=slots)
        return super().apply_buckets_swiglu(up, x, buckets, slots)

    def embed(self, ids: Any) -> Any:
        return ops.fp_embed(ids, *self.weight)

    def rows(self, index: Array) -> Fp:
        packed, scales = (take_rows(array, index) for array in (self.packed, self.scales))
        return replace(self, packed=packed, scales=scales, bias=take_bias(self.bias, index))

    def _pairs(self, up: Fp) -> bool:
        """Tell whether one kernel can read both weights: they have one format, equal strides and no bias."""
        formats = [(layer.mode, [array.strides for array in layer.arrays]) for layer in (self, up)]
        return formats[0] == formats[1] and self.bias is None and up.bias is None

    def _operand(self) -> Any:
        return self.weight

    def _multiply(self, x: Any) -> Any:
        return ops.fp_matmul(x, *self.weight)

    def _multiply_experts(self, x: Any, ids: Any, slots: Any) -> Any:
        return ops.fp_experts_matmul(x, ids, *self.weight, slots=slots)

    def _multiply_buckets(self, x: Any, offsets: Any, slots: Any) -> Any:
        return ops.fp_grouped_matmul(x, offsets, *self.weight, slots=slots)
