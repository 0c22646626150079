"""Chat completions, through OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from live_server import LiveServer
from serve.supported.tools import UNIT
from text.dialects.replies import TOOLS

from ..conftest import KEY, Script

QUESTION: list[Any] = [{"role": "user", "content": "Weather in Bern?"}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'


@pytest.fixture(scope="module")
def client(live: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def test_a_reply_has_text_and_thoughts(client: openai.OpenAI, script: Script) -> None:
    script("I see.\n</think>\n\nIt rains.")
    reply = client.chat.completions.create(model="chat", messages=QUESTION)
    (choice,) = reply.choices
    assert (choice.message.content, choice.finish_reason) == ("It rains.", "stop")
    assert choice.message.reasoning_content == "I see."  # type: ignore[attr-defined]
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.usage.completion_tokens_details is not None
    assert 0 < (reply.usage.completion_tokens_details.reasoning_tokens or 0) < reply.usage.completion_tokens
    assert reply.timings["tokens"] == reply.usage.completion_tokens  # type: ignore[attr-defined]


def test_a_stream_has_the_same_text(client: openai.OpenAI, script: Script) -> None:
    script("I see.\n</think>\n\nIt rains.")
    stream = client.chat.completions.create(
        model="chat", messages=QUESTION, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = stream
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == "It rains."
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "I see."
    assert len(deltas) > 6
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "stop"]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens > 6
    assert last.usage.completion_tokens_details is not None
    assert last.usage.completion_tokens_details.reasoning_tokens


def test_calls_arrive_whole_and_in_pieces(client: openai.OpenAI, script: Script) -> None:
    script(f"I see.\n</think>\n\n{CALL}")
    asked: dict[str, Any] = {"model": "chat", "messages": QUESTION, "tools": TOOLS}
    (choice,) = client.chat.completions.create(**asked).choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls or ()
    assert (call.type, call.function.name) == ("function", "weather")
    assert json.loads(call.function.arguments) == {"city": "Bern"}

    script(f"I see.\n</think>\n\n{CALL}")
    fragments, names, finish = "", [], None
    for chunk in client.chat.completions.create(**asked, stream=True):
        for delta in chunk.choices[0].delta.tool_calls or ():
            names += [delta.function.name] if delta.function.name else []
            fragments += delta.function.arguments or ""
        finish = chunk.choices[0].finish_reason
    assert (names, json.loads(fragments), finish) == (["weather"], {"city": "Bern"}, "tool_calls")


def test_one_call_if_several_are_not_wanted(client: openai.OpenAI, script: Script) -> None:
    script(f"</think>\n\n{CALL}\n{CALL}")
    asked: dict[str, Any] = {"model": "chat", "messages": QUESTION, "tools": TOOLS}
    both = client.chat.completions.create(**asked)
    assert len(both.choices[0].message.tool_calls or ()) == 2
    script(f"</think>\n\n{CALL}\n{CALL}")
    one = client.chat.completions.create(**asked, parallel_tool_calls=False)
    assert len(one.choices[0].message.tool_calls or ()) == 1
    assert one.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("several", [True, False])
def test_a_call_that_is_cut_off_is_no_call(client: openai.OpenAI, script: Script, several: bool) -> None:
    script(f"</think>\n\n{CALL}")
    cut = client.chat.completions.create(
        model="chat", messages=QUESTION, tools=TOOLS, parallel_tool_calls=several, max_tokens=30
    )
    assert cut.choices[0].finish_reason == "length"


def test_results_of_calls_are_read(client: openai.OpenAI, script: Script) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
    messages = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "rain"}]},
    ]
    script("</think>\n\nRain.")
    reply = client.chat.completions.create(model="chat", messages=messages, tools=TOOLS)
    assert reply.choices[0].message.content == "Rain."


REPLIES = {
    "text": ("They ask. 🦊\n</think>\n\nThe **Loire** 🦊.", "The **Loire** 🦊."),
    "call": (
        'Hm.</think>Look: \n<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>',
        "Look:",
    ),
}


@pytest.mark.parametrize("reply", REPLIES)
def test_logprobs_are_those_of_the_content_streaming_or_not(
    client: openai.OpenAI, script: Script, reply: str
) -> None:
    said, content = REPLIES[reply]
    asked: dict[str, Any] = {
        "model": "chat",
        "messages": QUESTION,
        "logprobs": True,
        "top_logprobs": 2,
        "stop": ["e asks"],  # `e` waits for the next token
    }
    if reply == "call":
        asked["tools"] = TOOLS
    script(said)
    whole = client.chat.completions.create(**asked).choices[0].logprobs
    assert whole is not None
    entries = whole.content or []
    assert b"".join(bytes(entry.bytes or ()) for entry in entries).decode() == content
    assert all(len(entry.top_logprobs) == 2 for entry in entries)
    assert all(bytes(entry.bytes or ()).decode("utf-8", "replace") == entry.token for entry in entries)
    script(said)
    streamed, text = [], ""
    for chunk in client.chat.completions.create(**asked, stream=True):
        (choice,) = chunk.choices
        text += choice.delta.content or ""
        if choice.logprobs is not None:
            assert choice.delta.content
            streamed += choice.logprobs.content or []
            assert b"".join(bytes(entry.bytes or ()) for entry in streamed).decode().startswith(text)
    assert [entry.token for entry in streamed] == [entry.token for entry in entries]
    assert [entry.logprob for entry in streamed] == pytest.approx(
        [entry.logprob for entry in entries], abs=1e-3
    )


def test_logprobs_have_no_tokens_of_thoughts(client: openai.OpenAI, script: Script) -> None:
    script("Only thoughts")
    reply = client.chat.completions.create(model="chat", messages=QUESTION, logprobs=True).choices[0]
    assert reply.logprobs is not None
    assert (reply.message.content, reply.logprobs.content) == ("", [])


def test_several_replies_have_seeds_of_their_own(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "chat", "messages": QUESTION, "max_tokens": 6, "temperature": 1.0}
    several = client.chat.completions.create(**asked, seed=3, n=3).choices
    assert [choice.index for choice in several] == [0, 1, 2]
    alone = client.chat.completions.create(**asked, seed=4).choices[0]
    assert several[1].message == alone.message
    assert several[0].message != several[1].message
    texts = ["", "", ""]
    for chunk in client.chat.completions.create(**asked, seed=3, n=3, stream=True):
        choice = chunk.choices[0]
        texts[choice.index] += (choice.delta.content or "") + getattr(choice.delta, "reasoning_content", "")
    assert texts == [
        (choice.message.content or "") + getattr(choice.message, "reasoning_content", "")
        for choice in several
    ]


@pytest.mark.parametrize("seed", range(3))
def test_a_schema_holds_for_what_follows_the_thoughts(client: openai.OpenAI, seed: int) -> None:
    reply = client.chat.completions.create(
        model="chat",
        messages=QUESTION,
        temperature=1.0,
        seed=seed,
        response_format={"type": "json_schema", "json_schema": {"name": "unit", "schema": UNIT}},
        extra_body={"reasoning_budget": 6},
    )
    (choice,) = reply.choices
    assert choice.finish_reason == "stop"
    value = json.loads(choice.message.content or "")
    assert sorted(value) == ["exact", "unit"]
    assert value["unit"] in ("C", "F")
    assert type(value["exact"]) is bool
    assert choice.message.reasoning_content  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(3))
def test_a_tool_that_is_named_is_called_after_the_thoughts(client: openai.OpenAI, seed: int) -> None:
    tool: Any = {"type": "function", "function": {"name": "measure", "parameters": UNIT}}
    asked: dict[str, Any] = {"model": "chat", "messages": QUESTION, "temperature": 1.0, "seed": seed}
    asked |= {"tools": [*TOOLS, tool], "tool_choice": {"type": "function", "function": {"name": "measure"}}}
    (choice,) = client.chat.completions.create(**asked, extra_body={"reasoning_budget": 6}).choices
    (call,) = choice.message.tool_calls or ()
    assert (call.type, call.function.name) == ("function", "measure")
    assert sorted(json.loads(call.function.arguments)) == ["exact", "unit"]
    assert (choice.message.content, choice.finish_reason) == (None, "tool_calls")


def test_no_effort_means_no_thoughts(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "chat", "messages": QUESTION, "temperature": 1.0, "max_tokens": 9}
    for fields in ({"reasoning_effort": "none"}, {"extra_body": {"reasoning_budget": 0}}):
        (choice,) = client.chat.completions.create(**asked, **fields).choices
        assert not getattr(choice.message, "reasoning_content", None)
        assert choice.message.content
    (choice,) = client.chat.completions.create(**asked, reasoning_effort="low").choices
    assert choice.message.reasoning_content  # type: ignore[attr-defined]


def test_a_prompt_that_was_read_is_not_read_again(client: openai.OpenAI, script: Script) -> None:
    messages = [{"role": "user", "content": "Tell me about the river Aare, please, and take your time."}]
    script("</think>\n\nIt flows.")
    client.chat.completions.create(model="chat", messages=messages)
    script("</think>\n\nIt flows.")
    again = client.chat.completions.create(model="chat", messages=messages)
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert (again.usage.prompt_tokens_details.cached_tokens or 0) > 0.8 * again.usage.prompt_tokens


def test_a_model_without_a_template_continues_the_text(client: openai.OpenAI) -> None:
    said: list[Any] = [{"role": "user", "content": "Once upon a"}]
    reply = client.chat.completions.create(model="stories", messages=said, max_tokens=3, temperature=0)
    assert reply.choices[0].message.content == " time, there"


def _function(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": fields}


def _allowed(**fields: Any) -> dict[str, Any]:
    listed = {"mode": "auto", "tools": [_function(name="now")]}
    return {"type": "allowed_tools", "allowed_tools": listed | fields}


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"bogus": 1}, "bogus", "not supported"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"temperature": "hot"}, "temperature", "number"),
        ({"temperature": -1}, "temperature", "expected"),
        ({"n": 99}, "n", "at most 8"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages.0.role", "expected one of"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages.0.content.0",
            "type text, got 'image_url'",
        ),
        ({"tool_choice": "required"}, "tool_choice", "tools"),
        ({"tools": TOOLS, "tool_choice": "perhaps"}, "tool_choice", "expected none, auto"),
        ({"tools": TOOLS, "tool_choice": "required", "regex": "a"}, "tools", "beside regex"),
        *(
            ({"tools": TOOLS, "tool_choice": choice}, f"tool_choice{where}", message)
            for choice, where, message in (
                (_function(name="weather") | {"mode": "x"}, ".mode", "not supported"),
                (_function(name="weather", bogus=1), ".function.bogus", "not supported"),
                (_function(name="x"), ".function.name", "expected one of weather, now, got 'x'"),
                (_function(), ".function.name", "expected text, got None"),
                ({"type": "function"}, ".function", "expected an object with a name, got None"),
                ({"type": "function", "name": "weather"}, ".name", "not supported"),
                (_allowed() | {"bogus": 1}, ".bogus", "not supported"),
                (_allowed(bogus=1), ".allowed_tools.bogus", "not supported"),
                (_allowed(mode="none"), ".allowed_tools.mode", "expected auto or required, got 'none'"),
                (_allowed(tools=[]), ".allowed_tools.tools", "expected a list of tools, got []"),
                (_allowed(tools=["weather"]), ".allowed_tools.tools.0", "expected a function, got 'weather'"),
                (
                    _allowed(tools=[{"type": "custom"}]),
                    ".allowed_tools.tools.0.type",
                    "expected function, got 'custom'",
                ),
                (
                    _allowed(tools=[_function(name="now", x=1)]),
                    ".allowed_tools.tools.0.function.x",
                    "not supported",
                ),
                (
                    _allowed(tools=[_function(name="x")]),
                    ".allowed_tools.tools",
                    "expected one of weather, now, got 'x'",
                ),
            )
        ),
        ({"response_format": {"type": "xml"}}, "response_format.type", "text"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "expected a schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "bogus"}}}},
            "response_format.json_schema.schema",
            "response_format.json_schema.schema: expected a JSON schema that a reply can fit",
        ),
        ({"top_logprobs": 2}, "top_logprobs", "logprobs"),
        ({"logit_bias": {"99999999": 1}}, "logit_bias", "expected an id below"),
        ({"reasoning_budget": -1}, "reasoning_budget", "greater than or equal to 0"),
        ({"functions": []}, "functions", "not supported"),
        ({"model": "nobody"}, "model", "expected one of chat, stories"),
        ({"model": "stories", "tools": TOOLS}, "tools", "knows no tools"),
        ({"max_tokens": 9, "messages": [{"role": "user", "content": "word " * 3000}]}, "messages", "context"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_wrong_requests_say_what_was_expected(
    live: LiveServer, fields: dict[str, Any], param: str | None, message: str
) -> None:
    body = {"model": "chat", "messages": QUESTION, **fields}
    answer = httpx.post(
        f"{live.url}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {KEY}"}
    )
    error = answer.json()["error"]
    assert answer.status_code == (404 if fields.get("model") == "nobody" else 400)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert message in error["message"]
