"""More requests than a server takes, clients that go away, and clients that do not read."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from live_server import LiveServer
from pyturbo._machine import used_memory
from pyturbo.engine.session import Session
from pyturbo.errors import ArgumentError
from pyturbo.serve import Settings
from pyturbo.serve.connection import Connection
from pyturbo.serve.listening import listening

from .served_process import events
from .small_server import LONG, Small, everything, small, until


@pytest.fixture(scope="module")
def server() -> Iterator[Small]:
    with small(slots=2, queue=2) as made:
        yield made


@pytest.fixture(autouse=True)
def idle(server: Small) -> Iterator[None]:
    """Each test leaves a server that does nothing."""
    yield
    until(lambda: (server.engine.running, server.engine.waiting) == (0, 0))


def fill(server: Small, *, running: int = 2, waiting: int = 2) -> list[socket.socket]:
    """Have as many replies run and wait."""
    made = [server.post(LONG | {"stream": True}) for _ in range(running + waiting)]
    until(lambda: (server.engine.running, server.engine.waiting) == (running, waiting))
    return made


def test_one_request_too_many_is_told_at_once_to_come_back(server: Small) -> None:
    admitted = fill(server)
    try:
        with httpx.Client() as client:
            client.get(f"{server.url}/health")  # connects
            times, empty = [], []
            for stream in (False, True, False, True):
                began = time.perf_counter()
                client.get(f"{server.url}/health")  # what any answer takes on a busy machine
                between = time.perf_counter()
                answer = client.post(server.completions, json=LONG | {"stream": stream})
                empty.append(between - began)
                times.append(time.perf_counter() - between)
                assert answer.status_code == 503
                assert answer.headers["retry-after"] == "2"
                error = answer.json()["error"]
                assert (error["type"], error["code"], error["param"]) == ("server_error", "queue_full", None)
        assert min(times) < min(empty) + 0.05
        assert (server.engine.running, server.engine.waiting) == (2, 2)
    finally:
        for each in admitted:
            each.close()


def test_as_many_as_there_are_slots_and_places_are_admitted_at_once(server: Small) -> None:
    """Also of an idle server, whose engine has not begun any of them."""
    for _ in range(5):
        admitted = [server.post(LONG | {"max_tokens": 3}) for _ in range(4)]
        for each in admitted:
            assert each.recv(12) == b"HTTP/1.1 200"
            each.close()
        until(lambda: (server.engine.running, server.engine.waiting) == (0, 0))


def test_admitted_replies_are_those_of_the_model_alone(server: Small) -> None:
    want = server.model.generate("Once upon a time", 60, temperature=0).text
    others = fill(server, running=1, waiting=0)
    with httpx.stream("POST", server.completions, json=LONG | {"max_tokens": 60, "stream": True}) as answer:
        found = events(answer)
        texts = [next(found)["choices"][0]["text"]]
        others += [server.post(LONG) for _ in range(20)]  # of which all but two are refused
        texts += [each["choices"][0]["text"] for each in found if each != "[DONE]"]
    assert "".join(texts) == want
    for each in others:
        each.close()


def test_replies_to_one_request_are_admitted_together_or_not_at_all(server: Small) -> None:
    others = fill(server, running=2, waiting=0)
    answer = httpx.post(server.completions, json=LONG | {"n": 4})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_full")
    answer = httpx.post(server.completions, json=LONG | {"n": 5})  # which would never be admitted
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")
    assert answer.json()["error"]["message"].startswith("n: expected at most 4 replies at once")
    until(lambda: (server.engine.running, server.engine.waiting) == (2, 0))
    for each in others:
        each.close()


def test_a_conversation_larger_than_the_memory_of_states_is_refused() -> None:
    with small(memory="1MB") as server:
        answers = {
            field: httpx.post(f"{server.url}/v1/{path}", json={field: given, limit: 2000}).json()["error"]
            for path, field, given, limit in (
                ("completions", "prompt", "Once", "max_tokens"),
                ("responses", "input", "Once", "max_output_tokens"),
                ("chat/completions", "messages", [{"role": "user", "content": "Once"}], "max_tokens"),
            )
        }
    for field, error in answers.items():
        assert (error["type"], error["param"]) == ("invalid_request_error", field)
        assert error["message"].startswith(f"{field}: expected a conversation of at most 1.0 MB, the memory")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_ends_its_reply(server: Small, stream: bool) -> None:
    connection = server.post(LONG | {"stream": stream})
    until(lambda: server.engine.usage.steps > 0 and server.engine.running == 1)
    connection.close()
    until(lambda: server.engine.running == 0, 5)
    steps = server.engine.usage.step_tokens
    time.sleep(0.1)
    assert server.engine.usage.step_tokens == steps


def test_of_several_replies_to_one_request_all_end(server: Small) -> None:
    connection = server.post(LONG | {"stream": True, "n": 3})
    until(lambda: (server.engine.running, server.engine.waiting) == (2, 1))
    connection.close()
    until(lambda: (server.engine.running, server.engine.waiting) == (0, 0), 5)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_leaves_the_queue(server: Small, stream: bool) -> None:
    running = fill(server, waiting=0)
    waits = server.post(LONG | {"stream": stream})
    until(lambda: server.engine.waiting == 1)
    waits.close()
    until(lambda: server.engine.waiting == 0, 5)
    assert server.engine.running == 2
    for each in running:
        each.close()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_ends_the_reading_of_its_prompt(
    server: Small, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyturbo.batching.member import Member

    read = Member.read
    pieces: list[int] = []

    def slowly(self: Member, count: int) -> None:
        time.sleep(0.1)
        pieces.append(count)
        read(self, min(count, 32))

    monkeypatch.setattr(Member, "read", slowly)
    connection = server.post(LONG | {"prompt": [5] * 1900, "max_tokens": 1, "stream": stream})
    until(lambda: len(pieces) >= 2)
    connection.close()
    until(lambda: server.engine.running == 0, 5)
    assert len(pieces) < 1900 / 32 / 2


def test_a_client_that_does_not_read_holds_nobody_up(server: Small) -> None:
    stuck = server.post(LONG | {"stream": True, "logprobs": 20}, 4096)
    until(lambda: server.engine.running == 1)
    before = used_memory()
    for _ in range(5):
        answer = httpx.post(server.completions, json=LONG | {"max_tokens": 20}, timeout=60)
        assert answer.status_code == 200
    until(lambda: server.engine.running == 0, 120)  # its reply ends, although nobody takes it
    assert used_memory() - before < 64 << 20
    answer = httpx.get(f"{server.url}/health")
    assert answer.json()["running"] == 0
    text = everything(stuck)  # and nothing of it was lost
    assert text.count(b'"finish_reason":"length"') == 1
    assert text.count(b"data: ") == 2001
    stuck.close()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such limit")
def test_a_client_that_never_reads_is_forgotten() -> None:
    (listens,) = listening("127.0.0.1", 0, silent_seconds=1)
    listens.listen()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(listens.getsockname())
        accepted, _ = listens.accept()
        accepted.settimeout(30)
        began = time.monotonic()
        with accepted, pytest.raises(TimeoutError, match="timed out"):
            accepted.sendall(bytes(64 << 20))
        assert time.monotonic() - began < 20
    listens.close()


def test_a_reply_ends_after_its_time() -> None:
    with small(settings=Settings(reply_seconds=0.3)) as server:
        for stream in (False, True):
            with httpx.stream(
                "POST", server.completions, json=LONG | {"stream": stream}, timeout=60
            ) as answer:
                text = answer.read().decode()
            assert '"finish_reason":"length"' in text
            until(lambda: server.engine.running == 0, 5)


def test_text_that_may_begin_a_stop_string_is_not_lost_when_the_time_is_over() -> None:
    asked = LONG | {"regex": "x+", "stop": "x" * 255 + "y", "logprobs": 0}
    with small(settings=Settings(reply_seconds=0.3)) as server:
        (choice,) = httpx.post(server.completions, json=asked, timeout=60).json()["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["text"] == "".join(choice["logprobs"]["tokens"])
    assert set(choice["text"]) == {"x"}


def test_nor_is_it_lost_when_tokens_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    sample, drawn = Session._sample, []

    def slow(session: Session, chooser: Any) -> Any:
        time.sleep(3 if drawn else 0)
        drawn.append(session)
        return sample(session, chooser)

    monkeypatch.setattr(Session, "_sample", slow)
    asked = LONG | {"regex": "x+", "stop": "x" * 255 + "y", "logprobs": 0}
    with small(settings=Settings(reply_seconds=2, quiet_seconds=0.05)) as server:
        (choice,) = httpx.post(server.completions, json=asked, timeout=60).json()["choices"]
    assert choice["finish_reason"] == "length"
    assert set(choice["text"]) == {"x"}
    assert choice["text"] == "".join(choice["logprobs"]["tokens"])
    assert len(drawn) == 2


def test_a_reply_without_a_token_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, sample = threading.Event(), Session._sample

    def stuck(session: Session, chooser: Any) -> Any:
        go_on.wait(60)
        return sample(session, chooser)

    monkeypatch.setattr(Session, "_sample", stuck)
    with small(settings=Settings(reply_seconds=0.3, quiet_seconds=0.05)) as server:
        (choice,) = httpx.post(server.completions, json=LONG, timeout=30).json()["choices"]
        go_on.set()
    assert (choice["text"], choice["finish_reason"]) == ("", "length")


def test_no_request_has_memory_for_more_than_the_longest_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    with small(settings=Settings(max_reply=20)) as server:
        contexts: list[int] = []
        context_for = server.model.runner.context_for
        monkeypatch.setattr(
            server.model.runner, "context_for", lambda tokens: contexts.append(tokens) or context_for(tokens)
        )
        reply = httpx.post(server.completions, json=LONG | {"max_tokens": 10**6}, timeout=60).json()
    assert (reply["usage"]["completion_tokens"], reply["choices"][0]["finish_reason"]) == (20, "length")
    assert contexts == [2048]  # what every conversation has


def test_the_shortest_reply_is_limited_as_the_longest_is() -> None:
    with small(settings=Settings(max_reply=20)) as server:
        asked = {"prompt": "Once", "max_tokens": 50, "logit_bias": {"0": 100.0}}  # ends as soon as it may
        reply = httpx.post(server.completions, json=asked | {"min_tokens": 30}, timeout=60).json()
        refused = httpx.post(server.completions, json=asked | {"min_tokens": 51}, timeout=60)
    assert (reply["usage"]["completion_tokens"], reply["choices"][0]["finish_reason"]) == (20, "length")
    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == "min_tokens: expected at most max_tokens, 50, got 51"


@pytest.mark.parametrize("sent", [b"", b"POST /v1/completions HTTP/1.1\r\nhost: local"])
@pytest.mark.parametrize("after_a_request", [False, True])
def test_a_connection_without_a_request_ends(
    server: Small, monkeypatch: pytest.MonkeyPatch, sent: bytes, after_a_request: bool
) -> None:
    monkeypatch.setattr(Connection, "header_seconds", 0.5)
    with server.connect() as connection:
        if after_a_request:
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b"200 OK" in connection.recv(1 << 16)
        began = time.monotonic()
        connection.sendall(sent)
        connection.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1 << 16) == b""
        assert 0.3 < time.monotonic() - began < 5


def test_a_client_may_take_longer_to_read_than_headers_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "header_seconds", 0.2)
    body = bytes(32 << 20)  # more than the buffers of the system hold
    with LiveServer(Response(body)) as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(10)
        client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        time.sleep(1)
        _, _, found = everything(client).partition(b"\r\n\r\n")
    assert len(found) == len(body)


def test_a_reply_may_take_longer_than_headers_may(server: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = Session._sample

    def slow(session: Session, chooser: Any) -> Any:
        time.sleep(1.0)
        return sample(session, chooser)

    monkeypatch.setattr(Connection, "header_seconds", 1.5)
    monkeypatch.setattr(Session, "_sample", slow)
    reply = httpx.post(server.completions, json=LONG | {"max_tokens": 3}, timeout=60).json()
    assert reply["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("stream", [False, True])
def test_what_fails_in_the_middle_of_a_reply_is_the_fault_of_the_server(
    server: Small, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    sample, drawn = Session._sample, []

    def fails(session: Session, chooser: Any) -> Any:
        drawn.append(session)
        if len(drawn) > 3:
            raise ArgumentError("logits: expected numbers, got NaN")
        return sample(session, chooser)

    monkeypatch.setattr(Session, "_sample", fails)
    answer = httpx.post(server.completions, json=LONG | {"stream": stream}, timeout=60)
    assert answer.status_code == (200 if stream else 500)
    last = answer.text.strip().splitlines()[-1].removeprefix("data: ")
    error = json.loads(last)["error"]
    assert (error["type"], error["param"]) == ("server_error", None)
    assert "expected numbers, got NaN" in error["message"]


def test_an_engine_that_is_closed_is_told_to_streams_and_requests() -> None:
    with small() as own:
        with httpx.stream("POST", own.completions, json=LONG | {"stream": True}, timeout=60) as answer:
            found = events(answer)
            next(found)
            own.engine.close()
            *_, last = found
        assert last["error"]["code"] == "shutting_down"
        later = httpx.post(own.completions, json=LONG)
        assert (later.status_code, later.json()["error"]["code"]) == (503, "shutting_down")
