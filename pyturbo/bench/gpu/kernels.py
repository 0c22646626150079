"""Times of the kernels of a device, with the share of its bandwidth that they reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from pyturbo._device import Device
from pyturbo.bench.gpu.cases import QUICK, Case, Goal, Sizes
from pyturbo.bench.gpu.memory import Operands, Pool
from pyturbo.bench.gpu.mixers import mixers
from pyturbo.bench.gpu.products import products
from pyturbo.bench.gpu.reason import reason
from pyturbo.bench.gpu.small import small
from pyturbo.bench.gpu.timing import Call, Chain, Effort, Timed, timed
from pyturbo.bench.gpu.torch_peer import TorchPeer
from pyturbo.recording import active

Tell = Callable[[str], None]

READ = "plain read"

_POOL, _QUICK_POOL = 5 << 28, 1 << 21
_BLOCK = 1 << 16  # of read_words
_GOAL_DEVICE = "H200"  # absolute goals are for it


@dataclass(frozen=True)
class KernelRow:
    """The figures of a case.

    Attributes:
        case: Its name.
        us: Microseconds of a call; None if it failed.
        gigabytes: Bytes of its operands per second, by 1e9.
        teraflops: Operations per second, by 1e12; None where memory is the limit.
        read_share: Bytes per second as a share of those of a plain read.
        launches: Of one call.
        torch_us: Microseconds of torch; None where there is nothing to compare.
        torch_error: Why torch could not do the same.
        goal_us: What the case should reach.
        error: Why there are no figures.
    """

    case: str
    us: float | None = None
    gigabytes: float | None = None
    teraflops: float | None = None
    read_share: float | None = None
    launches: int = 0
    torch_us: float | None = None
    torch_error: str = ""
    goal_us: float | None = None
    error: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached."""
        return None if self.goal_us is None or self.us is None else self.us <= self.goal_us


def all_cases(sizes: Sizes) -> Iterator[Case]:
    """Yield what is measured after the plain read of all memory: first that of less memory."""
    for nbytes in sizes.reads:
        yield Case(f"{READ} of {nbytes >> 10} KiB", _reading(nbytes))
    yield from products(sizes)
    yield from mixers(sizes)
    yield from small(sizes)


def measure(device: Device, quick: bool, torch: TorchPeer | None, tell: Tell) -> list[KernelRow]:
    """Time all cases. One that fails has a row with the reason."""
    cases = list(all_cases(QUICK if quick else Sizes()))
    effort = Effort(1e-4, 2, 1) if quick else Effort()
    pool = Pool(device, _QUICK_POOL if quick else _pool_bytes(device))
    _compile(device, pool, cases)
    rows = {READ: _row(Case(READ, _reading(pool.nbytes)), device, pool, effort, {}, None)}
    for i, case in enumerate(cases):
        tell(f"kernel {i + 1} of {len(cases)}: {case.name}")
        rows[case.name] = _row(case, device, pool, effort, rows, torch)
    return list(rows.values())


def _pool_bytes(device: Device) -> int:
    """Return the size of a pool for the largest case, or what a small device has room for."""
    own = device.memory
    return _POOL if own is None else min(_POOL, own.free // 2)


def _compile(device: Device, pool: Pool, cases: Iterable[Case]) -> None:
    """Prepare a program with one call of each case, for which kernels are compiled side by side.

    What fails here fails again, and is reported, when the case is measured.
    """
    chain = Chain(device)
    with chain:
        for case in cases:
            operands = Operands(device, pool)
            operands.begin()
            with suppress(Exception):
                case.call(operands)
    with suppress(Exception):
        chain.program.prepare()


def _reading(nbytes: int) -> Call:
    """Return a call that reads memory in order."""
    blocks = nbytes // _BLOCK

    def call(operands: Operands) -> None:
        recorder = active()
        assert recorder is not None
        words = operands.take((blocks * _BLOCK // 4,), np.uint32)
        recorder.launch("read_words", (words, recorder.empty((blocks,), np.uint32), blocks), None)

    return call


def _row(
    case: Case,
    device: Device,
    pool: Pool,
    effort: Effort,
    rows: dict[str, KernelRow],
    torch: TorchPeer | None,
) -> KernelRow:
    try:
        found = timed(device, case.call, Operands(device, pool), effort)
    except Exception as error:  # whatever it is, other cases go on
        return KernelRow(case.name, error=reason(error))
    gigabytes = found.nbytes / found.seconds / 1e9 if found.nbytes else None
    read = rows[READ].gigabytes if READ in rows else gigabytes
    peer, peer_error = _peer_us(case, torch)
    return KernelRow(
        case.name,
        found.seconds * 1e6,
        gigabytes,
        case.flops / found.seconds / 1e12 if case.flops else None,
        gigabytes / read if gigabytes and read else None,
        found.launches,
        peer,
        peer_error,
        _goal_us(case.goal, found, device, rows, peer),
    )


def _peer_us(case: Case, torch: TorchPeer | None) -> tuple[float | None, str]:
    """Return the microseconds of torch, or why there are none."""
    if torch is None or case.peer is None:
        return None, ""
    try:
        return case.peer(torch) * 1e6, ""
    except Exception as error:  # a function that this torch lacks, or too little memory
        return None, reason(error)


def _goal_us(
    goal: Goal | None, found: Timed, device: Device, rows: dict[str, KernelRow], peer: float | None
) -> float | None:
    if goal is None:
        return None
    if goal.torch:
        return peer
    if goal.us is not None:
        return goal.us if _GOAL_DEVICE in device.properties.get("name", "") else None
    other = rows.get(READ if goal.like is None else goal.like)
    if other is None or other.gigabytes is None:
        return None
    return found.nbytes / ((goal.read or 0.8) * other.gigabytes) / 1e3
