"""Work on many items in several threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_AHEAD = 2  # items queued for each thread, so that none is idle

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(
    work: Callable[[Item], Result], items: Iterable[Item], finish: Callable[[Result], None], threads: int
) -> None:
    """Call `work` with each item in some thread, and `finish` with each result in this one, in order.

    An error ends the work. No thread runs after the return.
    """
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            while len(waiting) > _AHEAD * threads:
                finish(waiting.popleft().result())
        while waiting:
            finish(waiting.popleft().result())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
