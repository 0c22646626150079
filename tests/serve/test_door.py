"""Requests that are refused before the application sees them: which these are, and that it says the same."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from pyturbo.serve import Settings, Shelf, Source, create_app
from pyturbo.serve.door import PATHS, Door

from .served_process import ServedProcess
from .small_server import LONG, Small, everything, request, small, until

KEY = "a-key"
BODY = json.dumps({"prompt": "a", "messages": [], "input": "a"}).encode()


@pytest.fixture(scope="module")
def full() -> Iterator[Small]:
    """A server all of whose places are taken."""
    with (
        small(1, 1, Settings(keys=[KEY], hosts=["localhost"], retry_seconds=7)) as server,
        ExitStack() as taken,
    ):
        for _ in range(2):
            connection = taken.enter_context(server.connect())
            connection.sendall(request(json.dumps(LONG).encode(), "/v1/completions", f"x-api-key: {KEY}"))
        until(lambda: server.engine.full)
        yield server


@pytest.fixture(scope="module")
def door(full: Small) -> Door:
    return Door(full.app)


def asked(*headers: str, path: str = PATHS[0], body: bytes = BODY) -> bytes:
    return request(body, path, f"x-api-key: {KEY}", *headers)


@pytest.mark.parametrize("path", PATHS)
def test_it_says_what_the_application_says(full: Small, door: Door, path: str) -> None:
    fields = LONG | {"model": "stories", "messages": [{"role": "user", "content": "a"}], "input": "a"}
    wanted = {
        "/v1/completions": ("prompt",),
        "/v1/responses": ("input",),
    }.get(path, ("model", "messages", "max_tokens"))
    body = {name: fields[name] for name in wanted}
    told = httpx.post(f"{full.url}{path}", json=body, headers={"host": "localhost", "x-api-key": KEY})
    assert told.status_code == 503
    found = door.refusal(asked(path=path))
    assert found is not None
    head, _, said = found.response.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert (first, json.loads(said)) == ("HTTP/1.1 503 Service Unavailable", told.json())
    assert (headers.pop("connection"), headers["retry-after"]) == ("close", "7")
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", headers.pop("date"))
    assert headers == {name: told.headers[name] for name in headers}
    assert {"content-length", "content-type"} < set(headers)


def test_a_body_may_still_be_on_its_way(door: Door) -> None:
    data = asked(body=b"x" * 300)
    found = door.refusal(data[:-120])
    assert found is not None
    assert found.missing == 120


OTHERS = {
    "another path": asked(path="/v1/embeddings"),
    "a longer path": asked(path=f"{PATHS[0]}?a=b"),
    "another method": asked().replace(b"POST", b"GET", 1),
    "an older version": asked().replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "no end of the headers": asked().partition(b"\r\n\r\n")[0],
    "a page": asked("origin: http://localhost"),
    "no key": asked().replace(KEY.encode(), b"other"),
    "another host": asked().replace(b"localhost", b"evil.example"),
    "pieces": asked("transfer-encoding: chunked"),
    "a question": asked("expect: 100-continue"),
    "two lengths": asked(f"content-length: {len(BODY)}"),
    "two hosts": asked("host: localhost"),
    "a number that is none": asked().replace(f"length: {len(BODY)}".encode(), b"length: +1"),
    "more than the body": asked() + b"GET / HTTP/1.1\r\n\r\n",
    "a long body": asked(body=b"x" * 100_000),
    "long headers": asked(f"x-long: {'x' * 9000}"),
    "a header on two lines": asked("x-one: a\r\n b"),
    "no header": asked("nothing"),
    "a name with a space": asked("x-api-key : b"),
    "a zero": asked("x-zero: \0"),
    "nothing": b"",
    "garbage": b"\x16\x03\x01\r\n\r\n",
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_the_applications(door: Door, name: str) -> None:
    assert door.refusal(asked()) is not None
    assert door.refusal(OTHERS[name]) is None


def test_a_server_with_room_refuses_nobody() -> None:
    with small(settings=Settings(keys=[KEY])) as server:
        assert Door(server.app).refusal(asked()) is None


def test_a_request_may_be_for_another_of_several_models(full: Small) -> None:
    shelf = Shelf(
        [Source(name, lambda: full.model) for name in ("first", "second")], lambda model: full.engine
    )
    shelf.place("first", full.model)
    assert Door(create_app(shelf, Settings(keys=[KEY]))).refusal(asked()) is None


def test_a_model_whose_engine_failed_is_the_applications() -> None:
    """A request for it has it loaded again, however many are still prepared."""
    with small(settings=Settings(keys=[KEY])) as server:
        (served,), door = server.app.state.shared.shelf.served, Door(server.app)
        served.preparing = 1000
        assert door.refusal(asked()) is not None
        server.engine.close()
        assert served.full
        assert door.refusal(asked()) is None


@pytest.mark.slow
def test_the_process_refuses_at_the_door_and_counts_it() -> None:
    with ServedProcess("--slots", "1", "--queue", "1") as server, ExitStack() as taken:
        data = request(json.dumps(LONG).encode())
        head, end, body = data.partition(b"\r\n\r\n")
        for _ in range(2):
            connection = taken.enter_context(socket.create_connection(("127.0.0.1", server.port), 30))
            connection.sendall(data)
        until(lambda: server.counts() == (1, 1))
        with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
            connection.sendall(head + end)
            assert connection.recv(12) == b"HTTP/1.1 503"
            connection.sendall(body[:10])
            connection.sendall(body[10:])
            assert b"too many requests wait already" in everything(connection)
        counted = httpx.get(f"{server.url}/metrics").text
        assert 'pyturbo_requests_total{path="/v1/completions",status="503"} 1.0' in counted


def most_that_may_wait() -> int:
    """Return how many connections the system lets wait to be accepted, however many a program allows."""
    if sys.platform == "darwin":
        return int(subprocess.check_output(["sysctl", "-n", "kern.ipc.somaxconn"]))
    return int(Path("/proc/sys/net/core/somaxconn").read_text())


@pytest.mark.slow
def test_many_clients_may_connect_while_the_server_is_busy() -> None:
    """A connection that the system does not take is tried again after a second."""
    with ServedProcess() as server, ExitStack() as made:
        server.signal(signal.SIGSTOP)
        try:
            for _ in range(min(300, most_that_may_wait() - 10)):
                made.enter_context(socket.create_connection(("127.0.0.1", server.port), 0.5))
        finally:
            server.signal(signal.SIGCONT)
