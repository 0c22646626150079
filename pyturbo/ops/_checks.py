"""Checks of the operands that most operations share. Errors read "op: name: expected X, got Y"."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pyturbo import _arguments
from pyturbo._dtypes import SUFFIXES
from pyturbo._messages import shown
from pyturbo.errors import ArgumentError
from pyturbo.ops._run import Array, as_array, operand, row_stride
from pyturbo.symbols import Linear

_LARGEST = 2**32 - 1  # of the integers that kernels take


def integer(op: str, name: str, value: Any, least: int = 0, most: int = _LARGEST) -> int:
    """Return an integer from `least` to `most`; a `Linear` is returned as it is, for replays to check."""
    if isinstance(value, Linear):
        return value  # type: ignore[return-value]
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        wanted = f"an integer from {least} on" if most == _LARGEST else f"{least} to {most}"
        raise ArgumentError(f"{op}: {name}: expected {wanted}, got {shown(value)}")
    return number


def flag(op: str, name: str, value: Any) -> bool:
    """Return True or False; other values, such as texts, are refused."""
    return _arguments.flag(f"{op}: {name}", value)


def pair(op: str, name: str, value: Any, parts: str) -> tuple[Any, Any]:
    """Return a tuple or list of two operands, which a message calls `parts`."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        got = f"{len(value)} items" if isinstance(value, (tuple, list)) else type(value).__name__
        raise ArgumentError(f"{op}: {name}: expected a pair of {parts}, got {got}")
    return value[0], value[1]


def values(op: str, name: str, value: ArrayLike, axes: int | None = None, strided: bool = False) -> Array:
    """Check a float32 array that is not empty and has `axes` axes, or at least one where that is None."""
    array = as_array(op, name, value, np.float32)
    if array.size == 0 or array.ndim == 0:
        raise ArgumentError(
            f"{op}: {name}: expected an array with at least one value, got shape {list(array.shape)}"
        )
    shape = array.shape if axes is None else (None,) * axes
    return operand(op, name, array, np.float32, shape, strided)


def matching(op: str, name: str, value: ArrayLike, like: Array, strided: bool = False) -> Array:
    """Check a float32 array of the shape of `like`; where both may be strided, of its row stride too."""
    array = operand(op, name, value, np.float32, like.shape, strided)
    if strided and row_stride(array) != row_stride(like):
        raise ArgumentError(
            f"{op}: {name}: expected rows {row_stride(like)} elements apart, got {row_stride(array)}"
        )
    return array


def stored_weight(
    op: str, value: ArrayLike, shape: tuple[int | None, ...], name: str = "weight", stack: bool = False
) -> tuple[Array, str]:
    """Check a weight in any storage type; return it and the name of the type in kernel names."""
    array = as_array(op, name, value, np.float32)
    if array.dtype not in SUFFIXES:
        raise ArgumentError(f"{op}: {name}: expected float32, float16 or bfloat16, got {array.dtype}")
    array = operand(op, name, array, array.dtype, shape, stack=stack)
    if array.size == 0:
        raise ArgumentError(f"{op}: {name}: expected at least one value, got shape {list(array.shape)}")
    return array, SUFFIXES[array.dtype]
