"""A server of the bundled model with few slots, for tests of load and of clients that misbehave."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.applications import Starlette

import pyturbo
from live_server import LiveServer
from pyturbo.serve import Settings, Shelf, Source, create_app

#: A reply that would take long.
LONG: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 2000, "ignore_eos": True}


@dataclass
class Small:
    """A server and its engine."""

    live: LiveServer
    engine: pyturbo.Engine
    model: pyturbo.Model
    app: Starlette

    @property
    def url(self) -> str:
        return self.live.url

    @property
    def completions(self) -> str:
        return f"{self.live.url}/v1/completions"

    def connect(self, receive_buffer: int | None = None) -> socket.socket:
        """Return a connection; with a small buffer it takes little that is not read."""
        made = socket.socket()
        made.settimeout(60)
        if receive_buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        made.connect(("127.0.0.1", self.live.port))
        return made

    def post(self, body: dict[str, Any], receive_buffer: int | None = None) -> socket.socket:
        """Send a request for a completion, and return the connection without reading from it."""
        made = self.connect(receive_buffer)
        made.sendall(request(json.dumps(body).encode()))
        return made


@contextmanager
def small(
    slots: int = 2, queue: int = 2, settings: Settings | None = None, **options: Any
) -> Iterator[Small]:
    model = pyturbo.load(device="cpu")
    engine = partial(pyturbo.Engine, slots=slots, queue=queue, context=2048, **options)
    shelf = Shelf([Source("stories", lambda: model)], engine)
    shelf.place("stories", model)
    app = create_app(shelf, settings)
    with LiveServer(app) as live:
        yield Small(live, shelf.served[0].engine, model, app)


def request(body: bytes, path: str = "/v1/completions", *headers: str, version: str = "1.1") -> bytes:
    """Return a request as it is sent."""
    lines = [f"POST {path} HTTP/{version}", "host: localhost", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not become true"
        time.sleep(0.005)


def everything(connection: socket.socket) -> bytes:
    """Read until the other side closes."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))
