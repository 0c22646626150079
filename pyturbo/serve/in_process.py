"""One request to an application, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.types import ASGIApp, Message, Scope


async def messages_of(app: ASGIApp, scope: Scope, body: bytes) -> AsyncGenerator[Message, None]:
    """Yield the messages of a response. Closing the generator is a client that goes away."""
    sent: asyncio.Queue[Message] = asyncio.Queue()
    unread = [{"type": "http.request", "body": body, "more_body": False}]
    never = asyncio.Event()

    async def receive() -> Message:
        if not unread:
            await never.wait()
        return unread.pop()

    task = asyncio.ensure_future(app(scope, receive, sent.put))
    try:
        while not (task.done() and sent.empty()):
            waiting = asyncio.ensure_future(sent.get())
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                yield waiting.result()
            else:
                waiting.cancel()
        task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})
