"""What all requests of a server share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from pyturbo.serve.metrics import Metrics
from pyturbo.serve.preparation import Preparation
from pyturbo.serve.replies.replies import Replies, begin, unless_gone
from pyturbo.serve.replies.sse import EventStream
from pyturbo.serve.requests.asked import Asked
from pyturbo.serve.requests.request_error import RequestError
from pyturbo.serve.settings import Settings
from pyturbo.serve.shelf import Served, Shelf

#: The status of a response whose client has gone away; nobody sees it.
CLIENT_GONE = 499


class Writer(Protocol):
    """Writes replies as one of the APIs has them."""

    async def whole(self, served: Served, replies: Replies) -> Response:
        """Wait for all replies, and return them."""

    def pieces(self, served: Served, replies: Replies) -> AsyncGenerator[bytes, None]:
        """Yield pieces of the response as replies go on."""

    def failed(self, error: RequestError) -> bytes:
        """Return the last piece of a response that fails on its way."""


@dataclass(frozen=True)
class State:
    """Settings, models and counts."""

    settings: Settings
    shelf: Shelf
    metrics: Metrics
    preparation: Preparation = field(default_factory=Preparation)

    async def reply(
        self,
        request: Request,
        model: str | None,
        ask: Callable[[Served, State], Asked],
        writer: Writer,
        *,
        stream: bool,
    ) -> ASGIApp:
        """Have a model reply to a request. The model stays loaded until the end of the response."""
        async with AsyncExitStack() as held:
            served = await held.enter_async_context(self.shelf.use(model))
            replies = await begin(self.preparation, served, lambda: ask(served, self), self.settings)
            held.callback(self.metrics.note, served.name, replies.streams)
            held.callback(replies.close)
            if stream:
                return EventStream(writer.pieces(served, replies), held.pop_all(), writer.failed)
            whole = await unless_gone(request.receive, writer.whole(served, replies))
        return Response(status_code=CLIENT_GONE) if whole is None else whole


def state_of(request: Request) -> State:
    """Return what the requests of a server share."""
    state: State = request.app.state.shared
    return state
