"""A request that another process answers, without that process."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from pyturbo.serve.access import route_path
from pyturbo.serve.replicas.in_process import messages_of, passed_on


async def _echo(request: Request) -> Response:
    return PlainTextResponse(f"{request.url.path} {route_path(request.scope)} {request.headers['x-a']}")


REPLICA = Starlette(routes=[Route("/v1/messages", _echo, methods=["POST"])])


async def _front(scope: Scope, receive: Receive, send: Send) -> None:
    async for message in messages_of(REPLICA, passed_on(scope), await Request(scope, receive).body()):
        await send(message)


@pytest.mark.parametrize("prefix", ["", "/llm"])
def test_a_prefix_of_the_paths_is_passed_on(prefix: str) -> None:
    """Ray's proxy has the prefix of a route in the path and as the root path, as this client has."""
    client = TestClient(_front, root_path=prefix, headers={"x-a": "b"})
    answer = client.post(f"{prefix}/v1/messages")
    assert (answer.status_code, answer.text) == (200, f"{prefix}/v1/messages /v1/messages b")
    assert client.post(f"{prefix}/v1/nothing").status_code == 404
