"""Running the application: sockets and signals."""

from __future__ import annotations

import uvicorn
from starlette.applications import Starlette

_CONNECTIONS = 1024  # more are told at once to come back later
_BACKLOG = 128


def run(app: Starlette, host: str, port: int, *, drain_seconds: int) -> None:
    """Serve until a signal. What runs by then has `drain_seconds` to end; nothing new is accepted."""
    uvicorn.run(
        app,
        host=host,
        port=port,
        timeout_graceful_shutdown=drain_seconds,
        limit_concurrency=_CONNECTIONS,
        backlog=_BACKLOG,
        log_level="warning",
        access_log=False,
        server_header=False,
    )
