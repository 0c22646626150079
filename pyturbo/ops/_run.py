"""How an operation reaches a device: arrays in, one launch, an array out."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyturbo._native import Buffer, Device, device_list
from pyturbo.errors import ArgumentError

Array = NDArray[Any]
DeviceLike = Device | str | None


@cache
def _named(name: str) -> Device:
    return Device(name)


def resolve(device: DeviceLike) -> Device:
    """The device meant by a name, a Device, or None for the best one here."""
    if isinstance(device, Device):
        return device
    return _named(device_list()[0] if device is None else device)


def launch(device: Device, name: str, *args: Any, constants: dict[str, Any] | None = None) -> None:
    """Runs a kernel on its arguments in the shader's order; its contract gives the geometry."""
    device.kernel(name, constants)(*args)


def empty(device: Device, shape: tuple[int, ...], dtype: Any = np.float32) -> Buffer:
    return device.empty(shape, dtype)


def as_array(op: str, name: str, value: Any, dtype: Any = None) -> Array:
    """An array or a Buffer with its own dtype, anything else as `dtype`."""
    if isinstance(value, Buffer):
        return value.numpy()
    try:
        return value if isinstance(value, np.ndarray) else np.asarray(value, dtype)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{op}: {name}: expected an array, got {type(value).__name__}: {error}") from None


def operand(op: str, name: str, value: ArrayLike, dtype: Any, shape: tuple[int | None, ...]) -> Array:
    """`value` as a contiguous, aligned array of `dtype`; None in `shape` stands for any extent.

    Arrays of another dtype are refused rather than converted, except that Python numbers become `dtype`.
    """
    array = as_array(op, name, value, dtype)
    if array.dtype != np.dtype(dtype):
        raise ArgumentError(f"{op}: {name}: expected {np.dtype(dtype)}, got {array.dtype}")
    if array.ndim != len(shape) or any(
        want is not None and want != got for want, got in zip(shape, array.shape)
    ):
        wanted = ", ".join("any" if extent is None else str(extent) for extent in shape)
        raise ArgumentError(f"{op}: {name}: expected shape [{wanted}], got {list(array.shape)}")
    return aligned(array)


def aligned(array: Array) -> Array:
    """`array` itself where a kernel can use it in place, else a contiguous copy."""
    if array.flags.c_contiguous and array.ctypes.data % 16 == 0:
        return array
    return np.array(array, order="C")
