"""The thread in which a process writes files of its prefix stores, in the order in which they were given."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

#: By process: a child of fork() has none of its parent's threads. A process that ends waits for its own.
_pools: dict[int, ThreadPoolExecutor] = {}


def later(work: Callable[..., None], *arguments: Any) -> None:
    """Have something done, after everything that was given before; not if the process is about to end."""
    if (pool := _pools.get(os.getpid())) is None:
        pool = _pools.setdefault(os.getpid(), ThreadPoolExecutor(1, "pyturbo-prefix"))
    with suppress(RuntimeError):  # it takes nothing more
        pool.submit(work, *arguments)


def wait() -> None:
    """Return when everything that was given is done."""
    if (pool := _pools.get(os.getpid())) is not None:
        with suppress(RuntimeError):
            pool.submit(int).result()
