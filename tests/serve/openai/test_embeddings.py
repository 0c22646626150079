"""Embeddings, through OpenAI's own client, which asks for base64 unless it is told otherwise."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import openai
import pytest

import pyturbo
from live_server import LiveServer
from pyturbo.engine.session import Session

from ..conftest import KEY
from ..small_server import small, until

TEXTS = ["Once upon a time", "The cat sat."]
HEADERS = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def client(live: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.mark.parametrize("form", [None, "float", "base64"])
def test_texts_and_tokens_are_vectors(client: openai.OpenAI, stories: pyturbo.Model, form: Any) -> None:
    want, tokens = stories.embed(TEXTS), [stories.tokenizer.encode(text) for text in TEXTS]
    asked: dict[str, Any] = {"model": "stories"} | ({} if form is None else {"encoding_format": form})
    for given, rows in ((TEXTS, [0, 1]), (tokens, [0, 1]), (TEXTS[1], [1]), (tokens[0], [0])):
        answer = client.embeddings.create(input=given, **asked)
        assert [entry.index for entry in answer.data] == list(range(len(rows)))
        for entry, row in zip(answer.data, rows):
            got = entry.embedding
            if isinstance(got, str):  # the client decodes what it asked for itself
                got = np.frombuffer(base64.b64decode(got), "<f4").tolist()
            assert np.array_equal(np.array(got, np.float32), want[row])
        count = sum(len(tokens[row]) for row in rows)
        assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (count, count)
        assert answer.model == "stories"
    last = client.embeddings.create(
        input=TEXTS[0], **asked, dimensions=want.shape[1], user="me", extra_body={"pooling": "last"}
    )
    if form != "base64":
        assert np.array_equal(
            np.array(last.data[0].embedding, np.float32), stories.embed(TEXTS[0], "last")[0]
        )


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"input": []}, "input", "at least one"),
        ({"input": ""}, "input", "at least one token"),
        ({"input": ["a", ""]}, "input", "at least one token"),
        ({"input": [10**6]}, "input", "expected 0 to 4095, got 1000000"),
        ({"input": ["a"] * 257}, "input", "at most 256 texts, got 257"),
        ({"input": "word " * 3000}, "input", "at most 2048 tokens"),
        ({"dimensions": 8}, "dimensions", "expected 256, those of the model, got 8"),
        ({"encoding_format": "hex"}, "encoding_format", "float"),
        ({"pooling": "max"}, "pooling", "mean"),
        ({"bogus": 1}, "bogus", "not supported"),
    ],
)
def test_wrong_requests(live: LiveServer, fields: dict[str, Any], param: str, message: str) -> None:
    body = {"model": "stories", "input": "a", **fields}
    answer = httpx.post(f"{live.url}/v1/embeddings", json=body, headers=HEADERS)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert message in answer.json()["error"]["message"]


def test_replies_go_on_beside_embeddings(
    client: openai.OpenAI, live: LiveServer, stories: pyturbo.Model
) -> None:
    """Both have the results that they have alone, and the server answers others meanwhile."""
    alone = stories.generate("Once upon a", 12).text
    long = [TEXTS[0] * 60] * 20
    want = stories.embed(long[0])[0]
    got: list[Any] = []
    thread = threading.Thread(
        target=lambda: got.append(client.embeddings.create(model="stories", input=long))
    )
    thread.start()
    assert httpx.get(f"{live.url}/health").status_code == 200
    reply = client.completions.create(model="stories", prompt="Once upon a", max_tokens=12)
    assert reply.choices[0].text == alone
    assert thread.is_alive()
    thread.join()
    assert len(got[0].data) == len(long)
    for entry in got[0].data:  # read in other pieces while a reply was under way
        assert np.abs(np.array(entry.embedding) - want).max() <= 1e-5


def test_a_client_that_goes_away_ends_the_work(
    live: LiveServer, stories: pyturbo.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No further text is begun once it is gone."""
    calls, real = [], pyturbo.Model.embed

    def slow(self: pyturbo.Model, *given: Any, **more: Any) -> Any:
        calls.append(1)
        time.sleep(0.05)
        return real(self, *given, **more)

    monkeypatch.setattr(pyturbo.Model, "embed", slow)

    async def leave() -> None:
        async with httpx.AsyncClient() as client:
            body = {"model": "stories", "input": ["a"] * 200}
            with pytest.raises(httpx.ReadTimeout):
                await client.post(f"{live.url}/v1/embeddings", json=body, headers=HEADERS, timeout=0.5)

    asyncio.run(leave())
    time.sleep(0.3)
    count = len(calls)
    time.sleep(0.5)
    assert 0 < count == len(calls) < 100


def test_a_client_that_goes_away_ends_the_reading_of_its_text(
    live: LiveServer, stories: pyturbo.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces are small from when a reply is under way, and the next text waits for one of them."""
    pieces, read, goes_on = [], Session._advance, threading.Event()

    def slow(self: Session, ids: Any, *more: Any) -> Any:
        if more == ("hidden",):
            pieces.append(len(ids))
            goes_on.wait(60)
            time.sleep(0.2)
        return read(self, ids, *more)

    monkeypatch.setattr(Session, "_advance", slow)
    monkeypatch.setattr(stories.runner, "traits", stories.runner.traits._replace(chunk=64))
    body = json.dumps({"model": "stories", "input": [5] * 2000}).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    head = f"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n{head}\r\n"
    reply = {"model": "stories", "prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    with socket.create_connection(("127.0.0.1", httpx.URL(live.url).port)) as client:
        client.sendall(head.encode() + body)
        until(lambda: bool(pieces))
        assert "pyturbo_state_bytes{" in (found := httpx.get(f"{live.url}/metrics", headers=HEADERS).text)
        assert not re.search(r"pyturbo_state_bytes.*stories.* 0\.0$", found, re.MULTILINE)
        with httpx.stream("POST", f"{live.url}/v1/completions", json=reply, headers=HEADERS) as answer:
            lines = answer.iter_lines()  # closed with what iterates over it
            next(lines)
            goes_on.set()
            until(lambda: 32 in pieces)
    answer = httpx.post(f"{live.url}/v1/embeddings", json={"input": "hi"}, headers=HEADERS, timeout=60)
    assert answer.status_code == 200
    assert sum(pieces) < 2000
    assert 64 in pieces


def test_a_text_larger_than_the_memory_of_states_is_refused() -> None:
    with small(memory="1MB") as server:
        answer = httpx.post(f"{server.url}/v1/embeddings", json={"input": [5] * 2000})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "input")
    assert "expected a state of at most 1.0 MB, the memory of the engine" in error["message"]
