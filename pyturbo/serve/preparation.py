"""Threads for what comes before a reply: templates, grammars and tokens take time."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from pyturbo.errors import BusyError
from pyturbo.serve.shelf import MOST_PREPARING, Served

Result = TypeVar("Result")

_AT_ONCE = min(32, (os.cpu_count() or 1) + 4)  # threads at work; further requests wait


class Preparation:
    """Does work for requests in threads that neither other work nor the end of the process waits for.

    All methods are for one event loop.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def run(self, served: Served, work: Callable[[], Result]) -> Result:
        """Return what the work for a model returns; BusyError if there is too much of it.

        If the request is cancelled, work that has begun goes on, and counts as such until its end.
        """
        if served.preparing >= MOST_PREPARING:
            raise BusyError("too many requests wait already")
        served.preparing += 1
        try:
            await self._places.acquire()
        except BaseException:
            served.preparing -= 1
            raise
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Result] = loop.create_future()

        def ended(found: Any, error: BaseException | None) -> None:
            served.preparing -= 1
            self._places.release()
            if result.cancelled():
                return
            if error is None:
                result.set_result(found)
            else:
                result.set_exception(error)

        def run() -> None:
            found, error = None, None
            try:
                found = work()
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(ended, found, error)

        try:
            threading.Thread(target=run, name="pyturbo-prepare", daemon=True).start()
        except RuntimeError:  # there can be no further thread
            ended(None, BusyError("too many requests wait already"))
        return await result
