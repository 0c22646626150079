"""Running an operation on a device or recording it: operands, launches and results."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyturbo import recording
from pyturbo._blank import Blank
from pyturbo._buffer import Buffer
from pyturbo._device import Device, device_list
from pyturbo._messages import shown
from pyturbo._traits import Traits
from pyturbo.errors import ArgumentError
from pyturbo.recording import Recorder, Tensor

Array = NDArray[Any]
Target = Device | Recorder
DeviceLike = Target | str | None


_devices: dict[str, Device] = {}


def _named(name: str) -> Device:
    """Return the device of that name that all operations share. A child of fork() has its own."""
    device = _devices.get(name)
    if device is None or device.closed:
        device = _devices[name] = Device(name)
    return device


def resolve(device: DeviceLike) -> Target:
    """Return the active recorder, else the device: a name, a Device, or None for the best one here.

    Under a recorder a device that is given must be the recorder's own.
    """
    recorder = recording.active()
    if device is not None and not isinstance(device, (str, Device, Recorder)):
        raise ArgumentError(f"device: expected a name, a Device or None, got {shown(device)}")
    if recorder is not None:
        own = (recorder, recorder.device, recorder.device.name)
        if device is not None and device not in own:
            raise ArgumentError(
                f"device: expected {recorder.device!r} of the active Recorder or None, got {device!r}"
            )
        return recorder
    if isinstance(device, Recorder):
        raise ArgumentError("device: expected an active Recorder, got one that is not in a `with` statement")
    return device if isinstance(device, Device) else _named(device_list()[0] if device is None else device)


def traits_of(target: Target) -> Traits:
    """Return the traits of the device that launches run on."""
    return target.device.traits if isinstance(target, Recorder) else target.traits


def launch(target: Target, name: str, *args: Any, constants: dict[str, Any] | None = None) -> None:
    """Run or record a kernel with its arguments in the shader's order; its contract gives the geometry."""
    if isinstance(target, Recorder):
        target.launch(name, args, constants)
    else:
        target.kernel(name, constants)(*args)


def empty(target: Target, shape: tuple[int, ...], dtype: Any = np.float32) -> Buffer:
    """Return memory for a result: a Buffer, or a Tensor where the operation is recorded."""
    return cast(Buffer, target.empty(shape, dtype))


def result(memory: Any) -> Array:
    """Return a result as an array, or where the operation is recorded the Tensor itself."""
    if isinstance(memory, Tensor):
        return cast(Array, memory)
    return cast(Array, memory.numpy() if memory.on_host else memory.read())


class _Fetched(np.ndarray[Any, np.dtype[Any]]):
    """A copy of an operand in memory of a device, for an operation that changes it."""

    source: Buffer


def changeable(target: Target, op: str, name: str, value: Any) -> Array:
    """Return the operand that an operation changes in place: an array, or under a recorder a Tensor.

    The checks that follow may copy it to memory that kernels can use; :func:`write_back` copies it back.
    """
    if isinstance(target, Recorder):
        if isinstance(value, Buffer):
            return cast(Array, Tensor(value, value.shape, value.dtype))
        if isinstance(value, Tensor):
            return cast(Array, value)
        wanted = "a Tensor or a Buffer, which replays change in place"
    else:
        if isinstance(value, Buffer) and not value.on_host and not value.readonly:
            fetched = value.read().view(_Fetched)
            fetched.source = value
            return fetched
        array = value.numpy() if isinstance(value, Buffer) else value
        if isinstance(array, np.ndarray) and array.flags.writeable:
            return array
        wanted = "an array or a Buffer that can be changed in place"
    readonly = isinstance(value, np.ndarray) and not value.flags.writeable
    raise ArgumentError(
        f"{op}: {name}: expected {wanted}, got {'a read-only ' if readonly else ''}{type(value).__name__}"
    )


def write_back(given: Array, used: Array) -> Array:
    """Copy `used`, which a kernel changed, to the operand it is a copy of, if it is one; return that."""
    if isinstance(given, _Fetched):
        given.source.write(used)
        return used
    if used is not given:
        given[...] = used
    return given


def as_array(op: str, name: str, value: Any, dtype: Any = None) -> Array:
    """Return an array, a Buffer or a Tensor with its own dtype, anything else as an array of `dtype`."""
    if isinstance(value, Tensor):
        if recording.active() is None:
            raise ArgumentError(f"{op}: {name}: expected an array, got a Tensor outside of its Recorder")
        return cast(Array, value)
    if isinstance(value, Buffer):
        return value.numpy()
    try:
        return value if isinstance(value, np.ndarray) else np.asarray(value, dtype)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{op}: {name}: expected an array, got {type(value).__name__}: {error}") from None


def operand(
    op: str,
    name: str,
    value: ArrayLike,
    dtype: Any,
    shape: tuple[int | None, ...],
    strided: bool = False,
    stack: bool = False,
) -> Array:
    """Return `value` as a contiguous, aligned array of `dtype`; None in `shape` stands for any extent.

    Arrays of another dtype are refused rather than converted, except that Python numbers become `dtype`.
    `strided` allows recorded tensors whose rows are not adjacent; see :func:`row_stride`. `stack` allows
    arrays whose first axis has any stride; see ``pyturbo/ops/_stacks.py``.
    """
    array = as_array(op, name, value, dtype)
    if array.dtype != np.dtype(dtype):
        raise ArgumentError(f"{op}: {name}: expected {np.dtype(dtype)}, got {array.dtype}")
    if array.ndim != len(shape) or any(
        want is not None and want != got for want, got in zip(shape, array.shape)
    ):
        wanted = ", ".join("any" if extent is None else str(extent) for extent in shape)
        raise ArgumentError(f"{op}: {name}: expected shape [{wanted}], got {list(array.shape)}")
    if not strided and isinstance(array, Tensor) and array.stride is not None:
        raise ArgumentError(f"{op}: {name}: expected contiguous rows, got rows {array.stride} elements apart")
    return array if stack and is_spaced(array) else aligned(array)


def row_stride(array: Array) -> int:
    """Return the elements from the start of one row of an operand to that of the next."""
    if isinstance(array, Tensor) and array.stride is not None:
        return array.stride
    return math.prod(array.shape[1:])


def is_spaced(array: Array) -> bool:
    """Tell whether kernels can use a stack in place: its parts are contiguous, at equal distances."""
    return (
        isinstance(array, np.ndarray)
        and array.size > 0
        and array[:1].flags.c_contiguous
        and array.strides[0] >= 0
        and array.strides[0] % array.itemsize == 0
        and array.ctypes.data % 16 == 0
    )


def aligned(array: Array) -> Array:
    """Return `array` itself if a kernel can use it in place or it has no memory, else a copy."""
    if isinstance(array, (Tensor, Blank)) or (array.flags.c_contiguous and array.ctypes.data % 16 == 0):
        return array
    return np.array(array, order="C")
