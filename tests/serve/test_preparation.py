"""What comes before a reply, in threads of its own."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pyturbo.errors import ArgumentError, BusyError
from pyturbo.serve import preparation
from pyturbo.serve.preparation import Preparation


def served() -> Any:
    return SimpleNamespace(preparing=0)


def test_results_and_errors_are_those_of_the_work() -> None:
    async def main() -> None:
        model, threads = served(), Preparation()
        assert await threads.run(model, lambda: model.preparing) == 1
        with pytest.raises(ArgumentError, match="wrong"):
            await threads.run(model, wrong)
        assert model.preparing == 0

    def wrong() -> None:
        raise ArgumentError("wrong")

    asyncio.run(main())


def test_the_work_of_a_request_that_is_cancelled_counts_until_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preparation, "_AT_ONCE", 1)
    monkeypatch.setattr(preparation, "MOST_PREPARING", 2)
    goes_on, begun = threading.Event(), []

    def work() -> None:
        begun.append(1)
        goes_on.wait(30)

    async def main() -> None:
        model, threads = served(), Preparation()
        tasks = [asyncio.ensure_future(threads.run(model, work)) for _ in range(2)]
        while not begun:
            await asyncio.sleep(0.01)
        with pytest.raises(BusyError):
            await threads.run(model, work)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert (model.preparing, len(begun)) == (1, 1)
        goes_on.set()
        await threads.run(model, work)
        assert (model.preparing, len(begun)) == (0, 2)

    asyncio.run(main())


def test_the_loop_ends_before_the_work() -> None:
    goes_on, ended = threading.Event(), threading.Event()

    def work() -> None:
        goes_on.wait(30)
        ended.set()

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(Preparation().run(served(), work), 0.1)

    asyncio.run(main())
    assert not ended.is_set()
    goes_on.set()
    assert ended.wait(30)


def test_a_thread_that_cannot_begin_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "_AT_ONCE", 1)

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        model, threads = served(), Preparation()
        with monkeypatch.context() as patch:
            patch.setattr(preparation.threading.Thread, "start", start)
            for _ in range(3):
                with pytest.raises(BusyError):
                    await threads.run(model, lambda: 1)
        assert await threads.run(model, lambda: model.preparing) == 1
        assert model.preparing == 0

    asyncio.run(main())
