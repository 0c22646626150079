"""Events on their way to a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

from pyturbo.serve.replies.sse import EventStream, event


def test_pieces_that_are_there_already_let_the_loop_find_that_the_client_is_gone() -> None:
    """A transport complains about the fifth piece after the one that it could not send."""
    loop_ran, sent = asyncio.Event(), []

    async def pieces() -> AsyncGenerator[bytes, None]:
        for number in range(100):
            yield event({"number": number})

    async def send(message: Any) -> None:
        if not sent:
            asyncio.get_running_loop().call_soon(loop_ran.set)
        if not loop_ran.is_set():
            sent.append(message)

    async def receive() -> Any:
        await asyncio.Event().wait()

    stream = EventStream(pieces(), AsyncExitStack(), lambda error: b"")
    asyncio.run(stream({"type": "http", "path": "/v1/completions"}, receive, send))
    assert 0 < len(sent) <= 4
