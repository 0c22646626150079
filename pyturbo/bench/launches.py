"""Measure the cost of a launch and of a replay on this machine."""

from __future__ import annotations

import time
import timeit
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyturbo._device import Device
from pyturbo._kernel import Kernel
from pyturbo._program import Program
from pyturbo.symbols import symbol

REPEATS = 7
_RUNS = 50  # replays that are timed


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


@dataclass(frozen=True)
class Replay:
    """A program of small launches: microseconds of a launch, and of the host until it has handed over all."""

    what: str
    launches: int
    us: float
    host_us: float


def replays(device: Device, launches: int) -> list[Replay]:
    """Time programs of an empty kernel of 32 threads: in a chain, side by side, and with a symbol."""
    buffers = [device.empty(32) for _ in range(3)]
    results = [device.empty(32) for _ in range(launches)]
    kinds = (
        ("dependent", results[:1] * launches, False),
        ("independent", results, False),
        ("dependent, each with a value that changes", results[:1] * launches, True),
    )
    found = []
    for what, written, changing in kinds:
        program = Program(device, symbols=("count",) if changing else ())
        kernel = device.kernel("empty_counted" if changing else "empty")
        for result in written:
            program.add(kernel, *buffers, result, *((symbol("count"),) if changing else ()))
        us, host_us = _replay_us(device, program, changing)
        found.append(Replay(what, launches, us / launches, host_us))
    return found


def _replay_us(device: Device, program: Program, changing: bool) -> tuple[float, float]:
    """Return the best times of a replay: until it is over, and until it is handed over."""
    whole, host = [], []
    for i in range(_RUNS):
        values: dict[str, Any] = {"count": 32 - i % 2} if changing else {}
        device.synchronize()
        begin = time.perf_counter()
        program.run(wait=False, **values)
        handed = time.perf_counter()
        device.synchronize()
        whole.append(time.perf_counter() - begin)
        host.append(handed - begin)
    return min(whole) * 1e6, min(host) * 1e6


def replay(name: str | None = None) -> list[Timing]:
    """Time a recorded launch of an empty kernel; by default on one OS thread of `cpu:reference`.

    The time includes running its 32 GPU threads.
    """
    with Device(name or "cpu:reference", threads=1, check=False) as device:
        return [
            Timing(
                f"replay of an empty kernel, 32 threads, 4 buffers, {row.what}",
                row.us * 1e3,
                goal=500 if name is None else None,
            )
            for row in replays(device, 1000)
        ]


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
