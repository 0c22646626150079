"""Requests that are refused before anything is made of them, because nobody else may wait."""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.datastructures import Headers

from pyturbo.errors import BusyError
from pyturbo.serve.access import Access
from pyturbo.serve.requests.request_error import RequestError, request_error_of
from pyturbo.serve.server_state import State

#: Paths whose requests wait for a place.
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")

_HEAD_BYTES = 8192
_LENGTH = re.compile("[0-9]{1,5}")  # of a body that is short
_REQUEST = re.compile(rb"POST (/[!-~]*) HTTP/1\.1")
_HEADER = re.compile(rb"([-!#$%&'*+.^_`|~0-9A-Za-z]+):[ \t]*([\x20-\x7e\x80-\xff\t]*)")
_OTHERWISE = {b"transfer-encoding", b"expect", b"origin", b"upgrade"}  # requests that need a closer look


class Refusal(NamedTuple):
    """A response, after which the connection ends, and how many bytes of the request are still to come."""

    response: bytes
    missing: int


class Door:
    """Refuses requests for a server that has one model, all of whose places are taken.

    The application would take several times as long for the same response. Only the first request of a
    connection is refused here, by a client that may use the server, and only if its body is short. All others
    are the application's.
    """

    def __init__(self, app: Starlette) -> None:
        """Take an application of `create_app`."""
        state: State = app.state.shared
        self._shelf, self._requests = state.shelf, state.metrics.requests
        self._access = Access(app, state.settings)
        self._responses = {path: _response(path, state.settings.retry_seconds) for path in PATHS}

    def refusal(self, data: bytes) -> Refusal | None:
        """Answer the first bytes of a connection; None: the application has to do that."""
        served = self._shelf.served
        if len(self._shelf.names) > 1 or not served or not served[0].full:
            return None
        if not served[0].usable:  # the application loads it again
            return None
        head, end, body = data.partition(b"\r\n\r\n")
        if not end or len(head) > _HEAD_BYTES:
            return None
        first, *lines = head.split(b"\r\n")
        request, headers = _REQUEST.fullmatch(first), _headers(lines)
        path = "" if request is None else request[1].decode()
        length = headers.get("content-length", "")
        missing = int(length) - len(body) if _LENGTH.fullmatch(length) else -1
        if path not in self._responses or missing < 0:
            return None
        try:
            self._access.check("POST", path, headers)
        except RequestError:
            return None
        self._requests.labels(path, HTTPStatus.SERVICE_UNAVAILABLE.value).inc()
        return Refusal(self._responses[path] % formatdate(usegmt=True).encode(), missing)


def _headers(lines: Iterable[bytes]) -> Headers:
    """Return the headers of a request; none at all if one needs a closer look."""
    found: dict[bytes, bytes] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        name = b"" if header is None else header[1].lower()
        if header is None or name in _OTHERWISE or name in found:
            return Headers()
        found[name] = header[2].rstrip(b" \t")
    return Headers(raw=[*found.items()])


def _response(path: str, retry_seconds: int) -> bytes:
    """Return the bytes of a refusal, with a place for the date."""
    refused = request_error_of(BusyError("too many requests wait already"), path).response(
        path, retry_seconds
    )
    status = HTTPStatus(refused.status_code)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), b"date: %s", b"connection: close"]
    lines += [name + b": " + value for name, value in refused.raw_headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + bytes(refused.body).replace(b"%", b"%%")
