"""Running the application: connections and signals."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from pyturbo.serve.connection import Connection
from pyturbo.serve.door import Door
from pyturbo.serve.server_state import State

_CONNECTIONS = 1024  # more are told at once to come back later
_BACKLOG = 1024  # connections that wait to be accepted; a further one would try again after a second
_LATE_SECONDS = 0.2  # in which connections that were accepted just before the end become known
_TELL_SECONDS = 2.0  # for the last events of replies that were ended
_END_SECONDS = 5.0  # for requests that are in the middle of something else, such as loading a model


def run(
    app: Starlette,
    sockets: Sequence[socket.socket],
    *,
    drain_seconds: int,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal. What runs by then has `drain_seconds` to end; nothing new is accepted.

    Replies that are not at their end after this time end with an error that says so. A second Ctrl-C ends all
    at once, as KeyboardInterrupt. `ready` is called when clients can connect.
    """
    server = Server(app, drain_seconds, ready)
    server.run([*sockets])
    if server.force_exit:
        raise KeyboardInterrupt


class Server(uvicorn.Server):
    """Ends replies before their tasks: clients are told why, and nothing is cancelled at a random place."""

    def __init__(self, app: Starlette, drain_seconds: float, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(Connection, door=Door(app)),  # type: ignore[arg-type]
                loop="asyncio",
                ws="none",
                timeout_graceful_shutdown=int(drain_seconds + _TELL_SECONDS + _END_SECONDS),
                limit_concurrency=_CONNECTIONS,
                backlog=_BACKLOG,
                log_level="warning",
                access_log=False,
                server_header=False,
            )
        )
        self._state: State = app.state.shared
        self._drain_seconds, self._ready = drain_seconds, ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs. None is raised again: to be told to end is no failure."""
        before = [(each, signal.signal(each, self.handle_exit)) for each in (signal.SIGINT, signal.SIGTERM)]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.force_exit or (self.should_exit and sig == signal.SIGINT)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # of tasks that it cancels
        limit = asyncio.ensure_future(self._end_replies())
        try:
            await super().shutdown(sockets)
        finally:
            limit.cancel()
            with suppress(asyncio.CancelledError):
                await limit
            self._forget_clients()
            await self._state.shelf.close()

    async def _end_replies(self) -> None:
        """End what runs after the time for it, then forget clients that do not read how it ended."""
        await asyncio.sleep(_LATE_SECONDS)
        for connection in [*self.server_state.connections]:
            if not connection.transport.is_closing():
                connection.shutdown()
        await asyncio.sleep(max(0.0, self._drain_seconds - _LATE_SECONDS))
        await self._state.shelf.close()
        await asyncio.sleep(_TELL_SECONDS)
        self._forget_clients()

    def _forget_clients(self) -> None:
        for connection in [*self.server_state.connections]:
            connection.transport.abort()
