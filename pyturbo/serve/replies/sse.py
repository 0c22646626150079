"""Responses that arrive piece by piece, as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from typing import Any

from starlette.types import Receive, Scope, Send

from pyturbo.serve.access import route_path
from pyturbo.serve.replies.replies import unless_gone
from pyturbo.serve.requests.body import given_fields
from pyturbo.serve.requests.request_error import RequestError, request_error_of

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy in between passes each event on at once
]

_AT_ONCE = 2  # pieces that are there already; then the loop may find that the client is gone


def event(data: Any, name: str | None = None) -> bytes:
    """Return an event with JSON in ASCII, since some clients take more than line feeds for ends of lines."""
    text = data if isinstance(data, str) else json.dumps(data, allow_nan=False, separators=(",", ":"))
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {text}\n\n".encode()


def comment(text: str) -> bytes:
    """Return a line that clients skip."""
    return f": {text}\n\n".encode()


class EventStream:
    """A response whose pieces are sent as soon as they are known. It ends when its client goes away."""

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        held: AsyncExitStack,
        failed: Callable[[RequestError], bytes],
    ) -> None:
        """Take what is closed at the end, and what makes the last piece of a stream that fails."""
        self._pieces, self._held, self._failed = pieces, held, failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await unless_gone(receive, self._send(scope, send))

    async def _send(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        try:
            number = 0
            async for piece in self._pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                number += 1
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        except Exception as error:
            piece = self._failed(request_error_of(error, route_path(scope), given_fields(scope)))
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            await self._pieces.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
