"""Launches a kernel the way a hostile test wants it.

    y, = run_kernel(device, "swiglu", gate, up, Out((3, 5)), 15)

runs the kernel twice on fresh outputs that lie between guard bytes, and fails if a guard byte or an input
changed or if the two runs differ in one bit. Small launches of the reference device run a third time, under
the checker, with the same demand. `Out(shape, initial=x)` is for kernels that work in place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import cuda_in_tests
import pyturbo
from tolerances import BODIES, FLUSHED, TOLERANCES

CHECKED_BYTES = 1 << 16  # of all arrays of a launch that the checker repeats: it is some twenty times slower
GUARD_BYTES = 256
GUARD = 0xA5
UNWRITTEN = 0xFF  # NaN in every floating type


@cache
def checked_device() -> pyturbo.Device:
    return pyturbo.Device("cpu:reference", check=True)


@cache
def _reference_device() -> pyturbo.Device:
    return pyturbo.Device("cpu:reference", check=False)


def of_shaders(device: pyturbo.Device) -> pyturbo.Device:
    """Return the device itself, or for a CPU, whose bodies round differently, the one that runs shaders."""
    return _reference_device() if device.name.startswith("cpu") else device


@dataclass
class Out:
    """An argument that the kernel writes; without `initial` it starts as NaN."""

    shape: tuple[int, ...]
    dtype: Any = np.float32
    initial: Any = None


class Guarded:
    """A device buffer with guard bytes in front of it and behind it."""

    def __init__(self, device, out: Out):
        self.nbytes = int(np.prod(out.shape)) * np.dtype(out.dtype).itemsize
        self.memory = device.empty((GUARD_BYTES + self.nbytes + GUARD_BYTES,), np.uint8)
        self.memory.write(GUARD)
        self.memory.view((self.nbytes,), offset=GUARD_BYTES).write(UNWRITTEN)
        self.buffer = self.memory.view(out.shape, out.dtype, offset=GUARD_BYTES)
        if out.initial is not None:
            self.buffer.write(out.initial)

    def array(self):
        """A copy of the contents, after a look at the guard bytes."""
        memory = self.memory.numpy()
        assert (memory[:GUARD_BYTES] == GUARD).all(), "written in front of the output"
        assert (memory[GUARD_BYTES + self.nbytes :] == GUARD).all(), "written behind the output"
        return self.buffer.numpy().copy()


def run_kernel(device, name: str, *args: Any, constants: dict[str, Any] | None = None) -> list[np.ndarray]:
    """The outputs of a kernel in the order of its arguments. Arrays are copied in, `Out`s allocated here."""
    devices = [device, device]
    nbytes = sum(math.prod(arg.shape) * np.dtype(arg.dtype).itemsize for arg in args if hasattr(arg, "shape"))
    if device.name == "cpu:reference" and nbytes <= CHECKED_BYTES:
        devices.append(checked_device())
    inputs = [Guarded(device, Out(arg.shape, arg.dtype, arg)) for arg in args if isinstance(arg, np.ndarray)]
    before = [guarded.array().tobytes() for guarded in inputs]
    runs = []
    for each in devices:
        kernel = each.kernel(name, constants or {})
        outputs = [Guarded(device, arg) for arg in args if isinstance(arg, Out)]
        buffers = {np.ndarray: iter(inputs), Out: iter(outputs)}
        kernel(*(next(buffers[type(arg)]).buffer if type(arg) in buffers else arg for arg in args))
        runs.append([guarded.array() for guarded in outputs])
    assert [guarded.array().tobytes() for guarded in inputs] == before, "an input was changed"
    for first, *others in zip(*runs):
        assert all(other.tobytes() == first.tobytes() for other in others), "two runs differ"
    return runs[0]


def in_slots(stack: np.ndarray, slots: Any, matrices: int, gap: int) -> tuple[np.ndarray, int]:
    """Return memory for `matrices` matrices with `gap` elements between them, and their stride.

    The matrices of the stack are in their slots, those without one nowhere; all other bytes are 0xff.
    """
    size = stack[0].size
    stride = size + gap
    memory = np.full(((matrices - 1) * stride + size) * stack.itemsize, UNWRITTEN, np.uint8).view(stack.dtype)
    for matrix, slot in zip(stack, slots):
        if 0 <= slot < matrices:
            memory[slot * stride : slot * stride + size] = matrix.ravel()
    return memory, stride


def assert_close(got, want, kind: str, magnitude=None, dtype: str = "f32") -> None:
    """`got` is within TOLERANCES[dtype][kind] of the float64 `want`, with NaN and inf in the same places."""
    assert got.shape == want.shape
    visible = ~np.isfinite(want)
    np.testing.assert_array_equal(got[visible], want[visible].astype(got.dtype))
    error = np.abs(got[~visible].astype(np.float64) - want[~visible])
    scale = np.abs(want) if magnitude is None else np.broadcast_to(magnitude, want.shape)
    bound = TOLERANCES[dtype][kind] * scale[~visible] + (FLUSHED if kind != "exact" else 0.0)
    worst = np.max(error / np.maximum(bound, np.finfo(np.float64).tiny), initial=0.0)
    assert (error <= bound).all(), f"{kind}: error is {worst:.3g} times the tolerance"


def chosen(device: pyturbo.Device, tokens: int, one: str, few: str, many: str) -> str:
    """Return the kernel that an operation uses for a number of tokens."""
    if 1 < tokens <= device.traits.few_tokens:
        return few
    return many if tokens >= 8 else one


def assert_bucket(device: pyturbo.Device, rows: np.ndarray, alone: np.ndarray) -> None:
    """Rows of a bucket have the bits of the plain product; on a GPU the two may add in other orders."""
    if device.name.startswith("cuda") and not cuda_in_tests.IN_USE:
        np.testing.assert_allclose(rows, alone, rtol=0, atol=BODIES * np.abs(alone).max())
    else:
        np.testing.assert_array_equal(rows, alone)


def plain_product(device: pyturbo.Device, family: str, rows: int, gated: bool = False) -> str:
    """Return the kernel whose bits a bucket has: on the CPU that of single rows if it has few."""
    one, many = ("swiglu", "swiglu_matmul") if gated else ("matvec", "matmul")
    return f"{family}_{one}" if device.name == "cpu" and rows < 8 else f"{family}_{many}"
