"""Each row of docs/supported.md is true: the request of the row is sent, and its reply looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import pyturbo
from live_server import LiveServer
from pyturbo.serve import Settings, Shelf, Source, create_app
from pyturbo.serve.anthropic import messages
from pyturbo.serve.app import ROUTES
from pyturbo.serve.openai import chat, completions, embeddings, responses, sampling_fields
from pyturbo.serve.requests.body import Fields
from pyturbo.serve.tokens import TextFields, TokenFields
from serve.supported.rows import Api, Ask, Row, events_of
from serve.supported.table import APIS
from serve.supported.thoughtful import NAME, thoughtful

from .conftest import KEY, thinking_model

#: What reads the body of each path, and the fields that it passes over.
READERS: dict[str, tuple[type[Fields], tuple[str, ...]]] = {
    "/v1/chat/completions": (chat.ChatFields, sampling_fields.IGNORED),
    "/v1/completions": (completions.CompletionFields, sampling_fields.IGNORED),
    "/v1/responses": (responses.ResponseFields, responses.IGNORED),
    "/v1/messages": (messages.MessageFields, messages.IGNORED),
    "/v1/messages/count_tokens": (messages.PromptFields, messages.IGNORED),
    "/v1/embeddings": (embeddings.EmbeddingFields, embeddings.IGNORED),
    "/tokenize": (TextFields, ()),
    "/detokenize": (TokenFields, ()),
}
CASES = [(api, row) for api in APIS for row in api.rows]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server of models of its own, which it closes."""
    folder = tmp_path_factory.mktemp("supported")
    models = {
        "chat": thinking_model(folder / "chat"),
        "stories": pyturbo.load(device="cpu", prefix_cache="64MB"),
        NAME: thoughtful(folder / NAME),
    }
    shelf = Shelf([Source(name, lambda model=model: model) for name, model in models.items()], pyturbo.Engine)
    with LiveServer(create_app(shelf, Settings(keys=[KEY]))) as server:
        yield server


@pytest.fixture(scope="module")
def http(live: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live.url, headers={"x-api-key": KEY}, timeout=60) as client:
        yield client


def asker(http: httpx.Client, api: Api) -> Ask:
    """Return what asks for the reply to a request of an API with further fields; null removes one."""

    def ask(**fields: Any) -> Any:
        answer = http.post(api.path, json={**api.body, **fields})
        assert answer.status_code == 200, answer.text
        return events_of(answer.text) if fields.get("stream") else answer.json()

    return ask


@pytest.mark.parametrize(("api", "row"), CASES, ids=[f"{api.path} {row.name}" for api, row in CASES])
def test_a_row_is_true(http: httpx.Client, api: Api, row: Row) -> None:
    fields = {**row.beside, row.field: row.value}
    if row.state == "refused":
        answer = http.post(api.path, json={**api.body, **fields})
        assert answer.status_code == 400
        message = answer.json()["error"]["message"]
        assert message.startswith((f"{row.field}:", f"{row.field}.")), message
        return
    ask = asker(http, api)
    reply = ask(**fields)
    if row.shows is None:
        assert lasting(reply) == lasting(ask())
    else:
        assert row.shows(reply, ask), reply


OBEYED = [(api, row) for api, row in CASES if row.state == "supported"]


@pytest.mark.parametrize(("api", "row"), OBEYED, ids=[f"{api.path} {row.name}" for api, row in OBEYED])
def test_a_row_sees_that_a_field_is_ignored(http: httpx.Client, api: Api, row: Row) -> None:
    """The request of the row without its field is refused, or its reply does not obey the field."""
    ask = asker(http, api)
    assert row.shows is not None
    if http.post(api.path, json={**api.body, **row.beside}).status_code == 200:
        try:
            obeyed = row.shows(ask(**row.beside), ask)
        except (KeyError, TypeError, ValueError):  # there is nothing to look at, or no JSON
            obeyed = False
        assert not obeyed


def lasting(reply: Any) -> Any:
    """Return what two replies to the same request share."""
    if isinstance(reply, dict):
        gone = ("id", "created", "created_at", "timings", "usage", "call_id")
        return {name: lasting(value) for name, value in reply.items() if name not in gone}
    return [lasting(value) for value in reply] if isinstance(reply, list) else reply


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.path)
def test_the_table_has_every_field(api: Api) -> None:
    reader, ignored = READERS[api.path]
    read = {field.alias or name for name, field in reader.model_fields.items()}
    rows = [row for row in api.rows if row.state != "ignored"]
    assert not read - {row.field for row in rows}
    assert {row.field for row in api.rows if row.state in ("supported", "accepted")} <= read
    assert {row.field for row in api.rows if row.state == "ignored"} == {*ignored}
    assert len({row.name for row in api.rows}) == len(api.rows)


def test_the_table_has_every_path_that_reads_a_body() -> None:
    posted = [route.path for route in ROUTES if route.methods and "POST" in route.methods]
    assert sorted(posted) == sorted(api.path for api in APIS) == sorted(READERS)
