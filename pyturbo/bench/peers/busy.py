"""A core that something else has."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyturbo.bench.peers.contender import Contender

_SETTLING = 0.3  # seconds for a process to start and the scheduler to see what it does

Turn = Callable[[Contender], float | None]


@contextmanager
def busy_core() -> Iterator[None]:
    """While inside, another process uses all of one core."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(_SETTLING)
        yield
    finally:
        process.kill()
        process.wait()


def share_of_idle(turn: Turn) -> Turn:
    """A turn: the figure of `turn` while a core is busy, as a share of the one just before."""

    def shared(contender: Contender) -> float | None:
        idle = turn(contender)
        if idle is None:
            return None
        with busy_core():
            busy = turn(contender)
        return None if busy is None else busy / idle

    return shared
