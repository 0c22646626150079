"""Memory that kernels read while they are timed."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from pyturbo._buffer import Buffer
from pyturbo._device import Device
from pyturbo.errors import AllocationError
from pyturbo.recording import Tensor

_ALIGNMENT = 256
_PATTERN = 1 << 22  # random bytes, which are repeated
_STATES = 64  # that calls change in turn, together more than caches hold


class Pool:
    """Random bytes on a device, given out part by part, again from the beginning at the end.

    Bytes are such that numbers of every type are finite: 0x20 to 0x3b, of which float16 makes 0.008 to 0.9.
    A pool is much larger than the caches, so a part is no longer cached when it is given out again.
    """

    def __init__(self, device: Device, nbytes: int) -> None:
        self._memory = _filled(device, nbytes)
        self._offset = 0

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    def take(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        """Return the next part as a tensor."""
        nbytes = prod(shape) * int(np.dtype(dtype).itemsize)
        if nbytes > self.nbytes:
            raise AllocationError(f"pool: expected at most {self.nbytes} bytes, got {nbytes}")
        if self._offset + nbytes > self.nbytes:
            self._offset = 0
        part = self._memory.view(shape, dtype, offset=self._offset)
        self._offset += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return Tensor(part, shape, dtype)


def _filled(device: Device, nbytes: int) -> Buffer:
    memory = device.empty(nbytes, np.uint8)
    done = min(nbytes, _PATTERN)
    memory.view(done).write(np.random.default_rng(0).integers(0x20, 0x3C, done, np.uint8))
    while done < nbytes:  # copies within the device
        count = min(done, nbytes - done)
        memory.view(count, offset=done).write(memory.view(count))
        done += count
    return memory


class Operands:
    """Operands of one call of an operation after another. They are tensors, typed as operations take them.

    Attributes:
        nbytes: Bytes of the operands taken since `begin`.
        call: The number of the call.
    """

    def __init__(self, device: Device, pool: Pool) -> None:
        self.nbytes, self.call = 0, -1
        self._device, self._pool = device, pool
        self._kept: list[Tensor] = []
        self._states: list[Tensor] = []
        self._next = 0

    def begin(self) -> None:
        """Start the next call."""
        self.nbytes, self._next = 0, 0
        self.call += 1

    def take(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        """Return an operand in memory that no recent call has read."""
        self.nbytes += prod(shape) * int(np.dtype(dtype).itemsize)
        return self._pool.take(shape, dtype)

    def keep(self, shape: tuple[int, ...], dtype: Any = np.float32, share: float = 1.0) -> Any:
        """Return an operand that all calls have in common, of which a call reads a share."""
        if self._next == len(self._kept):
            self._kept.append(self._pool.take(shape, dtype))
        tensor = self._kept[self._next]
        self._next += 1
        self.nbytes += int(share * prod(shape) * tensor.dtype.itemsize)
        return tensor

    def state(self, shape: tuple[int, ...]) -> Any:
        """Return an operand that a call reads and changes, of which there is one for each of some calls."""
        self.nbytes += 2 * 4 * prod(shape)
        if len(self._states) <= self.call % _STATES:
            self._states.append(Tensor(self._device.empty(shape), shape, np.float32))
        return self._states[self.call % _STATES]
