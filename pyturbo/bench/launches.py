"""Measure the cost of a launch and of a replay on this machine."""

from __future__ import annotations

import timeit
from dataclasses import dataclass

import numpy as np

from pyturbo._native import Device, Kernel
from pyturbo._program import Program
from pyturbo.symbols import symbol

REPEATS = 7


@dataclass(frozen=True)
class Timing:
    """The best of several runs, which other load on the machine affects least."""

    what: str
    nanoseconds: float
    goal: float | None = None


def _best(kernel: Kernel, args: tuple[object, ...], calls: int) -> float:
    """Return the nanoseconds of one call."""
    timer = timeit.Timer("kernel(*args)", globals={"kernel": kernel, "args": args})
    return min(timer.repeat(REPEATS, calls)) / calls * 1e9


def replay() -> list[Timing]:
    """Time a recorded launch of an empty kernel, without and with a symbol, on one OS thread.

    The time includes running its 32 GPU threads.
    """
    count, runs = 1000, 20
    timings = []
    with Device("cpu:reference", threads=1, check=False) as device:
        buffers = tuple(device.buffer(np.zeros(32, np.float32)) for _ in range(4))
        for name, extra in (("empty", ()), ("empty_counted", (symbol("count"),))):
            program = Program(device, symbols=("count",))
            for _ in range(count):
                program.add(device.kernel(name), *buffers, *extra)
            timer = timeit.Timer("program.run(count=32)", globals={"program": program})
            seconds = min(timer.repeat(REPEATS, runs)) / runs / count
            what = f"replay of an empty kernel, 32 threads, 4 buffers, {len(extra)} symbols"
            timings.append(Timing(what, seconds * 1e9, goal=500))
    return timings


def launch() -> list[Timing]:
    """Time the launch of an empty kernel, and a switch between its GPU threads, on one OS thread."""
    waits = 1000
    with Device("cpu:reference", threads=1, check=False) as device:
        buffers = tuple(device.buffer(np.zeros(32, np.float32)) for _ in range(4))
        call = _best(device.kernel("empty"), buffers, calls=20_000)
        spin = _best(device.kernel("simdgroup_waits"), (waits,), calls=10)
    return [
        Timing("launch of an empty kernel, 32 threads, 4 buffers", call, goal=3000),
        Timing("switch from one GPU thread to the next", (spin - call) / (waits * 32), goal=60),
    ]
