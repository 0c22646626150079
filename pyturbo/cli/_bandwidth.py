"""How fast this machine reads memory."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

_BYTES = 256 << 20  # more than any cache
_REPEATS = 5


def read_bandwidth(threads: int | None = None) -> float:
    """Bytes a second, the best of several sums over a large array on all cores."""
    cores = threads or os.cpu_count() or 1
    values = np.ones(_BYTES // 8, np.uint64)
    parts = np.array_split(values, cores)
    best = float("inf")
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(_REPEATS):
            begin = time.perf_counter()
            list(pool.map(np.sum, parts))
            best = min(best, time.perf_counter() - begin)
    return values.nbytes / best
