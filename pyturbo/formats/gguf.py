"""Weights in blocks of GGUF files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyturbo import ops
from pyturbo._arrays import Array
from pyturbo.formats.linear import Buckets, Linear
from pyturbo.formats.rows import take_bias, take_rows


@dataclass(frozen=True, eq=False, repr=False)
class Gguf(Linear):
    """A weight [..., out, in] whose rows are blocks of a type of GGML; see pyturbo.ops.gguf."""

    blocks: Array  # uint8 [..., out, bytes of a row]
    kind: str  # such as "Q4_K"

    @property
    def shape(self) -> tuple[int, ...]:
        block = ops.GGUF_TYPES[self.kind]
        return (*self.blocks.shape[:-1], self.blocks.shape[-1] // block.bytes * block.values)

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (self.blocks,)

    @property
    def name(self) -> str:
        return self.kind

    @property
    def weight(self) -> tuple[Array, str]:
        """The weight as operations take it."""
        return self.blocks, self.kind

    def apply_swiglu(self, up: Linear, x: Any) -> Any:
        if isinstance(up, Gguf) and self._pairs(up):
            return ops.gguf_swiglu(x, self.blocks, up.blocks, self.kind)
        return super().apply_swiglu(up, x)

    def apply_experts_swiglu(self, up: Linear, x: Any, ids: Any, slots: Any = None) -> Any:
        if isinstance(up, Gguf) and self._pairs(up):
            return ops.gguf_experts_swiglu(x, ids, self.blocks, up.blocks, self.kind, slots=slots)
        return super().apply_experts_swiglu(up, x, ids, slots)

    def apply_buckets_swiglu(self, up: Linear, x: Any, buckets: Buckets, slots: Any = None) -> Any:
        if isinstance(up, Gguf) and self._pairs(up):
            return ops.gguf_grouped_swiglu(x, buckets.offsets, self.blocks, up.blocks, self.kind, slots=slots)
        return super().apply_buckets_swiglu(up, x, buckets, slots)

    def embed(self, ids: Any) -> Any:
        return ops.gguf_embed(ids, *self.weight)

    def rows(self, index: Array) -> Gguf:
        return replace(self, blocks=take_rows(self.blocks, index), bias=take_bias(self.bias, index))

    def _pairs(self, up: Gguf) -> bool:
        """Tell whether one kernel can read both weights: they have one type, equal strides and no bias."""
        return (
            self.kind == up.kind
            and self.blocks.strides == up.blocks.strides
            and self.bias is None
            and up.bias is None
        )

    def _operand(self) -> Any:
        return self.weight

    def _multiply(self, x: Any) -> Any:
        return ops.gguf_matmul(x, *self.weight)

    def _multiply_experts(self, x: Any, ids: Any, slots: Any) -> Any:
        return ops.gguf_experts_matmul(x, ids, *self.weight, slots=slots)

    def _multiply_buckets(self, x: Any, offsets: Any, slots: Any) -> Any:
        return ops.gguf_grouped_matmul(x, offsets, *self.weight, slots=slots)
