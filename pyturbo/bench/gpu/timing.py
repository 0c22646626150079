"""The time of an operation on a device, as a step of a model sees it.

One program has many calls of the operation, each with other operands but the same results: a call waits for
the one before it, as most launches of a model do. Replays of the program are handed over without waiting, so
that the device never waits for the host. The time of a call is that of all replays divided by their calls; it
contains the start of a launch that waits for another, about a microsecond on a GPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyturbo._device import Device
from pyturbo._program import Program
from pyturbo.bench.gpu.memory import Operands
from pyturbo.recording import Extent, Recorder, Tensor

#: Records one call of an operation, with operands that it takes.
Call = Callable[[Operands], object]


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        seconds: The least time of a measurement.
        calls: The most calls of one program.
        rounds: How often to measure; the best round counts, which other work disturbs least.
    """

    seconds: float = 0.03
    calls: int = 256
    rounds: int = 3


@dataclass(frozen=True)
class Timed:
    """One call: its time, the bytes of its operands, and its launches."""

    seconds: float
    nbytes: int
    launches: int


class Chain(Recorder):
    """Records calls that write their results to the same memory, so that each waits for the one before."""

    def __init__(self, device: Device) -> None:
        super().__init__(device, {})
        self._results: list[Tensor] = []
        self._next = 0

    def begin(self) -> None:
        """Start the next call."""
        self._next = 0

    def empty(self, shape: Sequence[Extent], dtype: Any = "float32") -> Tensor:
        if self._next == len(self._results):
            self._results.append(super().empty(shape, dtype))
        self._next += 1
        return self._results[self._next - 1]


def recorded(device: Device, call: Call, operands: Operands, count: int) -> Program:
    """Record `count` calls."""
    chain = Chain(device)
    with chain:
        for _ in range(count):
            chain.begin()
            operands.begin()
            call(operands)
    return chain.program


def timed(device: Device, call: Call, operands: Operands, effort: Effort) -> Timed:
    """Measure a call."""
    first = recorded(device, call, operands, 1)
    _seconds(device, first, 1)  # compiles kernels
    once = _seconds(device, first, 1)
    count = max(2, min(effort.calls, math.ceil(effort.seconds / once)))
    program = recorded(device, call, operands, count)
    once = _seconds(device, program, 1)
    replays = max(1, min(100, math.ceil(effort.seconds / once)))
    best = min(_seconds(device, program, replays) for _ in range(effort.rounds))
    return Timed(best / (replays * count), operands.nbytes, len(program) // count)


def _seconds(device: Device, program: Program, replays: int) -> float:
    """Return the time of several replays."""
    device.synchronize()
    begin = time.perf_counter()
    for _ in range(replays):
        program.run(wait=False)
    device.synchronize()
    return max(time.perf_counter() - begin, 1e-9)
