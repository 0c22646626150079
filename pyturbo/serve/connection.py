"""Connections that do not wait for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from pyturbo.serve.door import Door

#: How long the headers of a request may take to arrive, from the connection or the last response on.
HEADER_SECONDS = 20.0


class Connection(H11Protocol):
    """Ends if no request has begun for a while: a client that says nothing, or a header now and then.

    It reads HTTP with h11, which limits the size of headers; other parsers that may be installed do not.
    """

    header_seconds = HEADER_SECONDS
    _watch: asyncio.TimerHandle | None = None

    def __init__(self, *given: Any, door: Door | None = None, **more: Any) -> None:
        """Take who refuses requests at the door, and what the server gives."""
        super().__init__(*given, **more)
        self._door = door  # until the first bytes are there
        self._missing: int | None = None  # bytes of a request that was refused at the door

    def data_received(self, data: bytes) -> None:
        if self._missing is not None:
            self._end_after(self._missing - len(data))
            return
        door, self._door = self._door, None
        refusal = None if door is None else door.refusal(data)
        if refusal is None:
            super().data_received(data)
        else:
            self.transport.write(refusal.response)
            self._end_after(refusal.missing)

    def _end_after(self, missing: int) -> None:
        """End the connection when a request is read; a client may get no response before that."""
        self._missing = missing
        if missing <= 0:
            self.transport.close()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self._busy():
            self._forget()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._busy():
            self._wait_for_request()

    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_request(self) -> None:
        self._forget()
        self._watch = self.loop.call_later(self.header_seconds, self._end_if_silent)

    def _end_if_silent(self) -> None:
        """End the connection, unless a response is still sent. The system ends those that nobody reads."""
        if self.transport.get_write_buffer_size() > 0:
            self._wait_for_request()
        else:
            self.transport.abort()

    def _forget(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
