"""Measure how fast this machine reads memory, and the share of that which products of a decode step reach."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pyturbo._buffer import Buffer
from pyturbo._device import Device
from pyturbo._program import Program
from pyturbo.bench.matrix_formats import AFFINE, FORMATS, GROUP_SIZE, MatrixFormat

BYTES = 1 << 30  # read for each figure: more than any cache holds
BLOCK = 1 << 16  # of read_words
SHAPES = ((4096, 4096), (12288, 4096), (1024, 4096))  # [out, in]
EXPERTS, CHOSEN, EXPERT_SHAPE = 64, 8, (1024, 4096)


@dataclass(frozen=True)
class Speed:
    """The best of several runs; `share` is relative to the bandwidth of the same number of threads."""

    what: str
    threads: int
    precision: str
    gigabytes: float  # per second
    share: float | None = None
    goal: float | None = None


def bandwidth(repeats: int = 7, nbytes: int = BYTES) -> list[Speed]:
    """Read memory in order, with one thread and with all threads of the device."""
    return [
        Speed("read in order", threads, "", read_bandwidth(threads, repeats, nbytes) / 1e9)
        for threads in _thread_counts()
    ]


def read_bandwidth(threads: int | None = None, repeats: int = 7, nbytes: int = BYTES) -> float:
    """Return the bytes per second that `threads` read, by default one per core: the best of `repeats`."""
    with Device("cpu", threads=threads, check=False) as device:
        return nbytes / _best(_reading(device, _memory(device, nbytes)), repeats)


def matvec(
    repeats: int = 7, nbytes: int = BYTES, thread_counts: Iterable[int] = (), formats: bool = False
) -> list[Speed]:
    """Multiply one token with 4-bit matrices, each in enough copies to exceed all caches.

    With `formats`, all matrices have the first shape, and there is one for each format. Reading and
    multiplying take turns, so that other load on the machine slows both.
    """
    speeds = []
    for threads in thread_counts or _thread_counts():
        for precision, goal in (("default", 0.6), ("fast", 0.75)):
            with Device("cpu", threads=threads, precision=precision, check=False) as device:
                memory = _memory(device, nbytes)
                reading = _reading(device, memory)
                programs = _of_formats(device, memory) if formats else _of_shapes(device, memory)
                for what, (program, used) in programs.items():
                    times = [(_best(reading, 1), _best(program, 1)) for _ in range(repeats)]
                    read, multiply = (min(column) for column in zip(*times))
                    share = (used / multiply) / (nbytes / read)
                    speeds.append(Speed(what, threads, precision, used / multiply / 1e9, share, goal))
    return speeds


def _thread_counts() -> list[int]:
    with Device("cpu", check=False) as device:
        most = int(device.properties["threads"])
    return sorted({1, most})


def _memory(device: Device, nbytes: int) -> Buffer:
    memory = device.empty((nbytes,), np.uint8)
    memory.write(0x3C)  # touches every page; as scales of any type these are normal numbers
    return memory


def _best(program: Program, repeats: int) -> float:
    """Return the seconds of the fastest run."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        program.run()
        times.append(time.perf_counter() - begin)
    return min(times)


def _reading(device: Device, memory: Buffer) -> Program:
    blocks = memory.nbytes // BLOCK
    program = Program(device)
    words = memory.view((blocks * BLOCK // 4,), np.uint32)
    program.add(device.kernel("read_words"), words, device.empty((blocks,), np.uint32), blocks)
    return program


def _of_shapes(device: Device, memory: Buffer) -> dict[str, tuple[Program, int]]:
    programs = {f"{out} x {width}": _products(device, memory, AFFINE, out, width) for out, width in SHAPES}
    programs["{} experts of {} x {}".format(CHOSEN, *EXPERT_SHAPE)] = _experts(device, memory)
    return programs


def _of_formats(device: Device, memory: Buffer) -> dict[str, tuple[Program, int]]:
    return {form.name: _products(device, memory, form, *SHAPES[0]) for form in FORMATS}


def _products(
    device: Device, memory: Buffer, form: MatrixFormat, out: int, width: int
) -> tuple[Program, int]:
    """Record products with as many copies of a matrix as fit into memory, and count the bytes they read."""
    x, y = device.constant(np.ones((1, width), np.float32)), device.empty((1, out))
    kernel = device.kernel(form.kernel, dict(form.constants))
    planes = form.planes(out, width)
    program, offset = Program(device), 0
    while offset + sum(plane.nbytes for plane in planes) <= memory.nbytes:
        arrays = []
        for plane in planes:
            arrays.append(memory.view(plane.shape, plane.dtype, offset))
            offset += plane.nbytes
        program.add(kernel, x, *arrays, *form.absent, y, 1, width, out, *form.sizes)
    return program, offset


def _experts(device: Device, memory: Buffer) -> tuple[Program, int]:
    """Record products with experts of as many stacks as fit into memory, and count the bytes they read."""
    out, width = EXPERT_SHAPE
    strides = (out * width // 8, out * width // GROUP_SIZE, out * width // GROUP_SIZE)
    sizes = (EXPERTS * strides[0] * 4, EXPERTS * strides[1] * 2, EXPERTS * strides[2] * 2)
    x, y = device.constant(np.ones((1, width), np.float32)), device.empty((1, CHOSEN, out))
    kernel = device.kernel("affine_experts_matvec_b4_f16", {"by_slot": False})
    program, offset, read = Program(device), 0, 0
    while offset + sum(sizes) <= memory.nbytes:
        packed = memory.view((EXPERTS * strides[0],), np.uint32, offset)
        scales = memory.view((EXPERTS * strides[1],), np.float16, offset + sizes[0])
        biases = memory.view((EXPERTS * strides[2],), np.float16, offset + sizes[0] + sizes[1])
        for first in range(0, EXPERTS, CHOSEN):
            ids = device.constant(np.arange(first, first + CHOSEN, dtype=np.int32)[None])
            sizes_of_launch = (1, CHOSEN, 1, width, out, GROUP_SIZE, EXPERTS, EXPERTS, *strides)
            program.add(kernel, x, ids, packed, scales, biases, None, y, *sizes_of_launch)
            read += sum(sizes) * CHOSEN // EXPERTS
        offset += sum(sizes)
    return program, read
