"""Benchmarks with one core kept busy."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyturbo.bench.peers.contender import Contender
from pyturbo.bench.peers.rounds import Turn

_SETTLING = 0.3  # seconds for the process to start and the scheduler to adapt


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep one core busy with another process inside the `with` block."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(_SETTLING)
        yield
    finally:
        process.kill()
        process.wait()


def share_of_idle(turn: Turn) -> Turn:
    """Return a turn that measures `turn` with a busy core, as a share of its figure just before."""

    def shared(contender: Contender, number: int) -> float | None:
        idle = turn(contender, number)
        if idle is None:
            return None
        with busy_core():
            busy = turn(contender, number)
        return None if busy is None else busy / idle

    return shared
