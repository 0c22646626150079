"""Requests that are not what they should be. Each is refused in time, and others go on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pyturbo.serve import Settings

from .served_process import events
from .small_server import LONG, Small, everything, request, small, until

SETTINGS = Settings(body_bytes=1 << 20, body_seconds=0.5, hosts=["localhost", "127.0.0.1", "::1"])
ASKED: dict[str, Any] = {"prompt": "Once", "max_tokens": 3, "temperature": 0}


@pytest.fixture(scope="module")
def server() -> Iterator[Small]:
    with small(settings=SETTINGS) as made:
        yield made


@pytest.fixture(autouse=True)
def goes_on(server: Small) -> Iterator[None]:
    """After each test the server does nothing, and replies as before."""
    yield
    until(lambda: (server.engine.running, server.engine.waiting) == (0, 0))
    answer = httpx.post(server.completions, json=ASKED)
    assert answer.json()["choices"][0]["text"] == " upon a time"


def sent(server: Small, data: bytes) -> tuple[int, bytes]:
    """Send bytes; return the status of the response and its text, read until the connection closes."""
    with server.connect() as connection:
        connection.sendall(data)
        found = everything(connection)
    return int(found.split(b" ")[1]) if found.startswith(b"HTTP/1.") else 0, found


def posted(server: Small, body: bytes) -> httpx.Response:
    return httpx.post(server.completions, content=body, timeout=60)


def refused(answer: httpx.Response, status: int = 400) -> str:
    """Require a refusal in OpenAI's form, and return its message."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    return str(error["message"])


def test_a_body_too_large_is_refused_before_it_is_read(server: Small) -> None:
    data = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(data)
        assert connection.recv(12) == b"HTTP/1.1 413"
    assert "at most 1048576 bytes" in refused(posted(server, b" " * (2 << 20)), 413)


def test_a_body_in_pieces_without_a_length_is_limited_too(server: Small) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    with server.connect() as connection:
        connection.sendall(head + piece * 17)
        assert connection.recv(12) == b"HTTP/1.1 413"
    body = json.dumps(ASKED).encode()
    pieces = [body[i : i + 7] for i in range(0, len(body), 7)]
    assert httpx.post(server.completions, content=iter(pieces)).status_code == 200


def test_a_body_that_never_ends_is_refused_after_its_time(server: Small) -> None:
    data = b'POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{"prompt"'
    began = time.monotonic()
    with server.connect() as connection:
        connection.sendall(data)
        assert connection.recv(12) == b"HTTP/1.1 408"
    assert 0.4 < time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "expected JSON"),
        (b"{", "expected JSON"),
        (b'{"prompt": "a\xff"}', "expected JSON"),
        (b"\xff\xfe{", "expected JSON"),
        (b"[]", "expected a JSON object"),
        (b"3", "expected a JSON object"),
        (b'{"prompt": "a", "temperature": NaN}', "NaN"),
        (b'{"prompt": "a", "temperature": Infinity}', "Infinity"),
        (b'{"prompt": "a", "temperature": -Infinity}', "-Infinity"),
        (b'{"prompt": "a", "temperature": 1e999}', "1e999"),
        (b'{"prompt": "a", "top_p": -1e999}', "-1e999"),
        (b'{"prompt": "a", "seed": 1%s}' % (b"0" * 100), "seed"),
        (b'{"prompt": "a", "seed": 1%s}' % (b"0" * 5000), "expected JSON"),
        (b'{"prompt": "a", "max_tokens": 1%s}' % (b"0" * 100), "max_tokens"),
        (b'{"prompt": "a", "top_k": 1%s}' % (b"0" * 30), "top_k"),
        (b'{"prompt": "a", "logit_bias": {"%s": 1}}' % (b"9" * 5000), "logit_bias"),
        (b'{"prompt": "a", "logit_bias": {"99999999": 1}}', "logit_bias"),
        (b'{"prompt": "a", "logit_bias": {"5": 1e999}}', "1e999"),
        (b'{"prompt": "\\ud800"}', "surrogate"),
        (b'{"prompt": "a", "stop": "\\udfff"}', "surrogate"),
        (b'{"model": "\\uDC00\\ud800", "prompt": "a"}', "surrogate"),
        (b'{"prompt": "a", "\\ud800": 1}', "surrogate"),
        (b'{"prompt": []}', ""),
        (b'{"prompt": [1e99]}', "prompt"),
        (b'{"prompt": [-1]}', "prompt"),
        (b'{"prompt": "a", "stop": [""]}', "stop"),
        (b'{"prompt": "a", "stop": ["a", 3]}', "stop"),
        (b'{"prompt": "a", "n": true}', "n"),
        (b'{"prompt": "a", "max_tokens": 3.5}', "max_tokens"),
        (b'{"prompt": "a", "x": ' + b"[" * 200 + b"]" * 200 + b"}", "levels of nesting"),
        (b'{"prompt": "a", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "levels of nesting"),
        (b'{"prompt": "a", "x": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}", "levels of nesting"),
    ],
    ids=lambda value: value[:48].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_bodies_that_are_no_request(server: Small, body: bytes, message: str) -> None:
    answer = posted(server, body)
    assert answer.status_code in (400, 404), answer.text
    assert message in refused(answer, answer.status_code)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"regex": "(" * 5000 + "a" + ")" * 5000},
        {"regex": "(?:a?){5000}a{5000}"},  # exceeds a limit when its first token is known
        {"grammar": "start: start"},
        {"grammar": "start: nothing"},
    ],
    ids=["depth", "states", "circle", "unknown"],
)
def test_constraints_that_explode_are_refused(server: Small, fields: dict[str, Any], stream: bool) -> None:
    began = time.monotonic()
    answer = httpx.post(server.completions, json=ASKED | fields | {"stream": stream}, timeout=60)
    if answer.status_code == 200:
        *_, last = events(answer)
        assert stream
        assert (last["error"]["type"], last["error"]["param"]) == ("invalid_request_error", "regex")
    else:
        assert next(iter(fields)) in refused(answer)
    assert time.monotonic() - began < 20


def test_many_stop_strings_and_biases_are_bounded(server: Small) -> None:
    began = time.monotonic()
    words = [f"word {i}" for i in range(65)]
    assert httpx.post(server.completions, json=ASKED | {"stop": words[1:]}, timeout=60).status_code == 200
    for fields in (
        {"stop": words},
        {"stop": "a" * 257},
        {"dry_multiplier": 1.0, "dry_breakers": words[:17]},
        {"dry_multiplier": 1.0, "dry_breakers": ["a" * 17]},
    ):
        answer = httpx.post(server.completions, json=ASKED | fields, timeout=60)
        assert "expected at most" in refused(answer)
    biases = {str(i % 4096): 0.0 for i in range(4096)} | {f"nothing {i}": 1.0 for i in range(40_000)}
    assert "logit_bias" in refused(
        httpx.post(server.completions, json=ASKED | {"logit_bias": biases}, timeout=60)
    )
    answer = httpx.post(
        server.completions, json=ASKED | {"logit_bias": {str(i): 0.0 for i in range(4096)}}, timeout=60
    )
    assert answer.json()["choices"][0]["text"] == " upon a time"
    assert time.monotonic() - began < 20


def test_other_requests_are_answered_while_a_large_body_is_checked(server: Small) -> None:
    body = json.dumps(ASKED | {"stop": [f"never said {i}" for i in range(40_000)]}).encode()
    with server.connect() as connection:
        connection.sendall(request(body))
        began = time.monotonic()
        assert httpx.get(f"{server.url}/health").status_code == 200
        assert time.monotonic() - began < 2
        connection.recv(12)


def test_http_1_0_and_connections_that_close(server: Small) -> None:
    body = json.dumps(ASKED).encode()
    status, text = sent(server, request(body, "/v1/completions", version="1.0"))
    assert status == 200
    assert b" upon a time" in text
    stream = json.dumps(ASKED | {"stream": True}).encode()
    status, text = sent(server, request(stream, "/v1/completions", version="1.0"))
    assert (status, text.count(b"data: "), b"[DONE]" in text) == (200, 4, True)
    status, text = sent(server, request(body, "/v1/completions", "connection: close"))
    assert status == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),  # TLS
        b"GET\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 200_000 + b"\r\n\r\n",
    ],
    ids=["tls", "no path", "negative", "two lengths", "chunk", "long header"],
)
def test_what_is_no_http_is_refused(server: Small, data: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(data)
        try:
            found = connection.recv(12)
        except ConnectionResetError:
            found = b""
    assert found in (b"", b"HTTP/1.1 400"), found


def test_garbage_after_a_request_ends_the_connection_after_its_reply(server: Small) -> None:
    status, text = sent(server, request(json.dumps(ASKED).encode()) + b"\x00garbage\r\n\r\n")
    assert status == 200
    assert b" upon a time" in text
    assert text.count(b"HTTP/1.1 400") == 1


def test_requests_may_follow_each_other_without_waiting(server: Small) -> None:
    one, close = request(json.dumps(ASKED).encode()), request(b"{}", "/v1/completions", "connection: close")
    status, text = sent(server, one * 3 + close)
    assert (status, text.count(b" upon a time"), text.count(b"HTTP/1.1 400")) == (200, 3, 1)


def test_methods_and_paths(server: Small) -> None:
    with httpx.Client(base_url=server.url) as client:
        assert (client.head("/health").status_code, client.head("/health").content) == (200, b"")
        assert client.head("/v1/models").status_code == 200
        for method, path, status in (
            ("GET", "/v1/completions", 405),
            ("HEAD", "/v1/completions", 405),
            ("DELETE", "/v1/models", 405),
            ("OPTIONS", "/v1/completions", 405),
            ("BREW", "/v1/models", 405),
            ("GET", "/v1/nothing", 404),
            ("GET", "/v1/models/../../etc/passwd", 404),
            ("GET", "/v1/models/%2e%2e%2f%00%ff", 404),
        ):
            answer = client.request(method, path)
            assert answer.status_code == status, (method, path)
            if method != "HEAD":
                assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:1234", 200),
        ("LOCALHOST:99", 200),
        ("127.0.0.1:80", 200),
        ("[::1]:80", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("evil.example:80@localhost", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
def test_only_known_hosts(server: Small, host: str, status: int) -> None:
    """A page whose name was bound to this address meanwhile sends its own name."""
    found, text = sent(server, f"GET /health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
    if host.endswith("@localhost"):
        assert found in (200, 403)  # what it addresses is localhost
    else:
        assert found == status, text


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/models", "/health"])
def test_pages_of_other_sites_are_refused(server: Small, path: str) -> None:
    for origin in ("https://evil.example", "null", "http://localhost.evil.example", "http://localhost:1"):
        answer = httpx.post(f"{server.url}{path}", json=ASKED, headers={"Origin": origin})
        assert "may not use this server" in refused(answer, 403)
        assert "access-control-allow-origin" not in answer.headers
    answer = httpx.options(
        f"{server.url}{path}",
        headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"},
    )
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    own = httpx.post(server.completions, json=ASKED, headers={"Origin": server.url})
    assert own.status_code == 200


@pytest.mark.parametrize(
    "given", ["https://chat.example", "https://Chat.Example/", "https://chat.example:443", "*"]
)
def test_pages_of_sites_that_are_allowed(given: str) -> None:
    site = "https://chat.example"
    allowed = "*" if given == "*" else site
    with small(settings=Settings(origins=[given], keys=["k"])) as server:
        asked = {
            "Origin": site,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        }
        preflight = httpx.options(server.completions, headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == allowed
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        answer = httpx.post(
            server.completions, json=ASKED, headers={"Origin": site, "Authorization": "Bearer k"}
        )
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, allowed)
        wrong = httpx.post(server.completions, json=ASKED, headers={"Origin": site})
        assert (wrong.status_code, wrong.headers["access-control-allow-origin"]) == (401, allowed)
        other = httpx.post(
            server.completions, json=ASKED, headers={"Origin": "https://evil.example", "x-api-key": "k"}
        )
        assert other.status_code == (200 if allowed == "*" else 403)
        until(lambda: server.engine.running == 0)


def test_a_client_that_is_gone_before_its_body_is_no_error(
    server: Small, capfd: pytest.CaptureFixture[str]
) -> None:
    for stop in (0, 30, 90):
        with server.connect() as connection:
            connection.sendall(request(json.dumps(LONG).encode())[:stop])
    time.sleep(0.3)
    assert "Traceback" not in capfd.readouterr().err
