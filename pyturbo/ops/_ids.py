"""Checks of integer operands: ids of tokens and experts, offsets."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._run import Array, as_array, operand
from pyturbo.recording import Tensor


def integers(op: str, name: str, value: ArrayLike, shape: tuple[int | None, ...]) -> Array:
    """Return integers of any width as int32."""
    array = as_array(op, name, value)
    if isinstance(array, Tensor):
        return operand(op, name, array, np.int32, shape)
    if array.dtype.kind not in "iu":
        raise ArgumentError(f"{op}: {name}: expected integers, got {array.dtype}")
    limits = np.iinfo(np.int32)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise ArgumentError(f"{op}: {name}: expected 32-bit integers, got {sample(array)}")
    return operand(op, name, array.astype(np.int32), np.int32, shape)


def known_ids(op: str, value: ArrayLike, count: int, axes: int) -> Array:
    """Check ids 0 to count - 1, at least one. Kernels check those of a program."""
    ids = integers(op, "ids", value, (None,) * axes)
    if ids.size == 0:
        raise ArgumentError(f"{op}: ids: expected at least one, got shape {list(ids.shape)}")
    if isinstance(ids, Tensor):
        return ids
    wrong = ids[(ids < 0) | (ids >= count)]
    if wrong.size:
        raise ArgumentError(f"{op}: ids: expected 0 to {count - 1}, got {wrong[0]}")
    return ids


def sample(values: Array) -> str:
    """Show the first few values in a message."""
    return str(values.ravel()[:8].tolist())[:-1] + (", ...]" if values.size > 8 else "]")


def expert_operands(
    op: str, x: ArrayLike, ids: ArrayLike, experts: int, in_dim: int
) -> tuple[Array, Array, tuple[int, int, int, int]]:
    """Check x [tokens, in] or [tokens, k, in] and ids [tokens, k].

    Return both, and the sizes tokens, k, rows of x per token, in.
    """
    chosen = known_ids(op, ids, experts, axes=2)
    tokens, k = chosen.shape
    given = as_array(op, "x", x, np.float32)
    shared = given.ndim == 2
    rows = operand(op, "x", given, np.float32, (tokens, in_dim) if shared else (tokens, k, in_dim))
    return rows, chosen, (tokens, k, 1 if shared else k, in_dim)
