"""Small things that clients notice."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.routing import Mount
from starlette.testclient import TestClient

import pyturbo
from live_server import LiveServer
from pyturbo.batching import Engine
from pyturbo.serve import Settings, Shelf, Source, create_app
from pyturbo.serve.access import Access
from pyturbo.serve.openai.sampling_fields import SamplingFields
from pyturbo.serve.replicas.in_process import messages_of
from pyturbo.serve.replies.sse import event
from pyturbo.serve.requests.request_error import RequestError
from pyturbo.text.dialects.message import json_object
from text.dialects.replies import TOOLS

from .conftest import KEY, Script

HEADERS = {"Authorization": f"Bearer {KEY}"}
QUESTION = [{"role": "user", "content": "Weather in Bern?"}]


def chat(live: LiveServer, **fields: Any) -> Any:
    body = {"model": "chat", "messages": QUESTION, **fields}
    return httpx.post(f"{live.url}/v1/chat/completions", json=body, headers=HEADERS, timeout=60).json()


def test_a_call_that_a_stop_string_cuts_off_is_no_call(live: LiveServer, script: Script) -> None:
    script('</think>\n\n<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>')
    (choice,) = chat(live, tools=TOOLS, stop=["Be"])["choices"]
    assert choice["finish_reason"] == "stop"
    assert "tool_calls" not in choice["message"]


def test_null_is_no_value(live: LiveServer, script: Script) -> None:
    script("</think>\n\nYes.")
    found = chat(live, function_call=None, audio=None, temperature=None, stop=None, tools=None)
    assert found["choices"][0]["message"]["content"] == "Yes."


def test_old_calls_and_unknown_fields_of_messages_are_refused(live: LiveServer) -> None:
    old = {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": "{}"}}
    found = chat(live, messages=[*QUESTION, old, *QUESTION])
    assert found["error"]["param"] == "messages.1.function_call"


def test_tools_beside_a_schema_are_refused(live: LiveServer) -> None:
    found = chat(live, tools=TOOLS, response_format={"type": "json_object"})
    assert found["error"]["message"] == "tools: expected none beside response_format"


def test_system_messages_in_a_row_are_one(live: LiveServer) -> None:
    said = [{"role": "system", "content": "One."}, {"role": "developer", "content": "Two."}, *QUESTION]
    joined = [{"role": "system", "content": "One.\n\nTwo."}, *QUESTION]
    both = [
        httpx.post(f"{live.url}/tokenize", json={"model": "chat", "messages": each}, headers=HEADERS).json()
        for each in (said, joined)
    ]
    assert both[0] == both[1]


def test_the_last_seed_is_followed_by_the_first(live: LiveServer) -> None:
    found = chat(live, seed=2**64 - 1, n=2, temperature=1.0, max_tokens=3)
    assert len(found["choices"]) == 2


def test_what_other_servers_take_for_none() -> None:
    """A checkpoint's own top_k would hold without it."""
    fields = SamplingFields(top_k=-1, seed=-1)
    options = fields.options(Settings())
    assert (options["top_k"], "seed" in options) == (0, False)


def test_events_have_no_line_ends_but_their_own() -> None:
    piece = event({"text": "a\u2028b\u2029c\u0085d\r\ne"})
    assert len(piece.decode().splitlines()) == 2
    assert json.loads(piece.decode().removeprefix("data: "))["text"] == "a\u2028b\u2029c\u0085d\r\ne"


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("example.org:8080", None, True),
        ("EXAMPLE.org", "http://example.ORG", True),
        ("other.org", None, False),
        ("example.org", "https://friend.org", True),
        ("example.org", "https://FRIEND.org", True),
        ("example.org", "https://stranger.org", False),
        ("example.org", "null", False),
        ("example.org", "http://[::1", False),
        ("", "null", False),
    ],
)
def test_hosts_and_origins(host: str, origin: str | None, allowed: bool) -> None:
    access = Access(Starlette(), Settings(hosts=["Example.org"], origins=["https://Friend.org/"]))
    headers = Headers({"host": host} | ({} if origin is None else {"origin": origin}))
    if allowed:
        access.check("POST", "/v1/completions", headers)
    else:
        with pytest.raises(RequestError):
            access.check("POST", "/v1/completions", headers)


def test_an_application_can_be_mounted(stories: pyturbo.Model) -> None:
    inner = create_app(Shelf([Source("stories", lambda: stories)], Engine), Settings(keys=[KEY]))
    with TestClient(Starlette(routes=[Mount("/llm", inner)])) as client:
        assert client.get("/llm/health").status_code == 200
        refused = client.post("/llm/v1/messages", json={})
        assert (refused.status_code, refused.json()["type"]) == (401, "error")
        counted = client.get("/llm/metrics", headers=HEADERS).text
    assert 'pyturbo_requests_total{path="/health",status="200"} 1.0' in counted


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("key", ["schl\u00fcssel", "voil\u00e0", "\u00c5", "\u00a0\u0085"])
@pytest.mark.parametrize(("name", "begin"), [("authorization", "Bearer "), ("x-api-key", "")])
def test_keys_are_sent_as_clients_encode_them(name: str, begin: str, key: str, encoding: str) -> None:
    """The UTF-8 of some ends with a byte that is a space in Latin-1."""
    access = Access(Starlette(), Settings(keys=["other", key]))
    sent = Headers(raw=[(name.encode(), f"{begin}{key}".encode(encoding))])
    access.check("POST", "/v1/completions", sent)
    for wrong in (key[:-1], f"{key}\u00fc"):
        sent = Headers(raw=[(name.encode(), f"{begin}{wrong}".encode(encoding))])
        with pytest.raises(RequestError, match="expected an API key"):
            access.check("POST", "/v1/completions", sent)


def test_keys_are_not_shown() -> None:
    assert "secret" not in repr(Settings(keys=["secret"]))


def test_an_engine_that_failed_is_seen_and_replaced(
    stories: pyturbo.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Engine] = []

    def engine(model: pyturbo.Model) -> Engine:
        made.append(Engine(model))
        return made[-1]

    loads = iter([stories, pyturbo.load(device="cpu")])
    with TestClient(create_app(Shelf([Source("stories", lambda: next(loads))], engine))) as client:
        asked = {"prompt": "Once upon a", "max_tokens": 3}
        assert client.post("/v1/completions", json=asked).status_code == 200
        made[0]._scheduler.stop()
        made[0]._scheduler.join()
        monkeypatch.setattr(stories, "close", lambda: None)  # other tests use it
        assert client.get("/health").status_code == 503
        assert client.post("/v1/completions", json=asked).status_code == 200
        assert client.get("/health").json()["status"] == "ok"
    assert len(made) == 2


def test_a_response_without_a_network() -> None:
    gone = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["body"] == b"body"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/fails":
            raise ValueError("no")
        try:
            await receive()
        finally:
            gone.set()

    async def run() -> None:
        messages = messages_of(app, {"path": "/waits"}, b"body")
        assert (await messages.__anext__())["status"] == 200
        await messages.aclose()
        assert gone.is_set()
        with pytest.raises(ValueError, match="no"):
            [message async for message in messages_of(app, {"path": "/fails"}, b"body")]
        waiting = asyncio.ensure_future(messages_of(app, {"path": "/waits"}, b"body").__anext__())
        await waiting
        assert len(asyncio.all_tasks()) <= 2

    asyncio.run(run())


def test_numbers_that_no_float_has_are_the_largest_floats() -> None:
    largest = sys.float_info.max
    assert json_object('{"a": 1e999, "b": -1e999}') == {"a": largest, "b": -largest}
    assert json_object('{"a": NaN}') is None
