"""Stacks of matrices, one for each expert, or for each slot that experts take turns in.

A stack [matrices, ...] may have any stride along its first axis: it can be a part of records that lie one
after another in a file or a slab of memory. Kernels are given all memory from its first value to its last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pyturbo._blank import Blank
from pyturbo._buffer import host_span
from pyturbo.errors import ArgumentError
from pyturbo.ops._run import Array, aligned, operand
from pyturbo.recording import Tensor


def stack_memory(stack: Array) -> Array:
    """Return the memory of a stack as kernels take it."""
    in_place = isinstance(stack, (Tensor, Blank)) or stack.flags.c_contiguous
    return stack if in_place else host_span(stack).numpy()


def stack_stride(stack: Array) -> int:
    """Return the elements from one matrix of a stack to the next."""
    if isinstance(stack, Tensor) or len(stack) == 1:
        return math.prod(stack.shape[1:])
    return int(stack.strides[0] // stack.itemsize)


def spaced_by(stack: Array, elements: int) -> Array:
    """Return a stack whose matrices are a multiple of `elements` apart: the given one or a copy."""
    return aligned(stack) if stack_stride(stack) % elements else stack


@dataclass(frozen=True)
class Experts:
    """The experts of an operation: expert e has matrix slots[e] of the stack, or without slots matrix e."""

    slots: Array | None
    count: int
    matrices: int

    @property
    def constants(self) -> dict[str, bool]:
        return {"by_slot": self.slots is not None}

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes that kernels take before the strides."""
        return self.count, self.matrices


def experts_of(op: str, slots: ArrayLike | None, matrices: int) -> Experts:
    """Check int32 slots [experts] of a stack. Kernels check their values, which change between replays."""
    if slots is None:
        return Experts(None, matrices, matrices)
    table = operand(op, "slots", slots, np.int32, (None,))
    count = table.shape[0]
    if count == 0:
        raise ArgumentError(f"{op}: slots: expected at least one, got shape [0]")
    return Experts(table, count, matrices)
