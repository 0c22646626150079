"""Sockets that a server listens on."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack

#: After this time a client that does not read what it is sent, or whose machine is gone, is forgotten.
SILENT_SECONDS = 60


def listening(host: str, port: int, silent_seconds: int = SILENT_SECONDS) -> list[socket.socket]:
    """Return a socket for each address of a host; port 0 takes a free one, the same for all of them.

    They do not accept yet: whoever connects is refused until the server has started.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise OSError(f"{host}: expected a name or address of this machine: {error.strerror}") from None
    with ExitStack() as opened:
        sockets: list[socket.socket] = []
        for family, kind, protocol, _, address in dict.fromkeys(found):
            place = (address[0], port, *address[2:])
            new = opened.enter_context(socket.socket(family, kind, protocol))
            try:
                _prepare(new, family, silent_seconds)
                new.bind(place)
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise OSError(f"port {port} of {host}: {reason}") from None
            port = int(new.getsockname()[1])
            sockets.append(new)
        opened.pop_all()
    return sockets


def _prepare(new: socket.socket, family: int, silent_seconds: int) -> None:
    """Set what connections inherit."""
    new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        new.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    new.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        new.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, silent_seconds)
        new.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * silent_seconds)
