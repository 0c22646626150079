"""Weights that are not quantised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyturbo import ops
from pyturbo._arrays import Array
from pyturbo.formats.linear import Linear
from pyturbo.formats.rows import take_bias, take_rows


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Linear):
    """A weight [..., out, in] in float32, float16 or bfloat16."""

    weight: Array

    @property
    def grouped(self) -> bool:
        return self.weight.dtype.itemsize == 2 and self.shape[-1] % 32 == 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.weight.shape

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (self.weight,)

    @property
    def name(self) -> str:
        return str(self.weight.dtype)

    def embed(self, ids: Any) -> Any:
        return ops.gather_rows(self.weight, ids)

    def rows(self, index: Array) -> Dense:
        return Dense(take_rows(self.weight, index), bias=take_bias(self.bias, index))

    def _operand(self) -> Any:
        return self.weight

    def _multiply(self, x: Any) -> Any:
        return ops.matmul(x, self.weight)

    def _multiply_experts(self, x: Any, ids: Any, slots: Any) -> Any:
        return ops.dense_experts_matmul(x, ids, self.weight, slots=slots)

    def _multiply_buckets(self, x: Any, offsets: Any, slots: Any) -> Any:
        return ops.dense_grouped_matmul(x, offsets, self.weight, slots=slots)
