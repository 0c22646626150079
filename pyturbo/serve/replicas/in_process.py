"""One request to an application, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from starlette.types import ASGIApp, Message, Scope

_PASSED_ON = (
    *("type", "asgi", "http_version", "method", "scheme"),
    *("root_path", "path", "raw_path", "query_string"),
)


def passed_on(scope: Scope) -> dict[str, Any]:
    """Return what another process needs of the scope of a request, such as its path below a prefix."""
    kept = {name: scope[name] for name in _PASSED_ON if name in scope}
    return {**kept, "headers": [*scope["headers"]]}


async def messages_of(app: ASGIApp, scope: Scope, body: bytes) -> AsyncGenerator[Message, None]:
    """Yield the messages of a response. Closing the generator is a client that goes away."""
    sent: asyncio.Queue[Any] = asyncio.Queue()
    unread = [{"type": "http.request", "body": body, "more_body": False}]
    never = asyncio.Event()

    async def receive() -> Message:
        if not unread:
            await never.wait()
        return unread.pop()

    task, ended = asyncio.ensure_future(app(scope, receive, sent.put)), object()
    task.add_done_callback(lambda _: sent.put_nowait(ended))
    try:
        while (message := await sent.get()) is not ended:
            yield message
        task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})
