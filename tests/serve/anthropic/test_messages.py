"""Messages, through Anthropic's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest

import pyturbo
from live_server import LiveServer
from pyturbo.batching import Stream
from pyturbo.serve.anthropic.history import messages_of
from text.dialects.replies import TOOLS as FUNCTIONS

from ..conftest import KEY, Script

QUESTION: list[Any] = [{"role": "user", "content": "Weather in Bern?"}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'
TOOLS: list[Any] = [
    {
        "name": tool["function"]["name"],
        "description": tool["function"]["description"],
        "input_schema": {"type": "object", **tool["function"]["parameters"]},
    }
    for tool in FUNCTIONS
]
ASKED: dict[str, Any] = {"model": "chat", "max_tokens": 200, "messages": QUESTION}


@pytest.fixture(scope="module")
def client(live: LiveServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=live.url, api_key=KEY, max_retries=0) as client:
        yield client


def events_of(live: LiveServer, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """All events of a stream as they are on the wire: names and data."""
    answer = httpx.post(
        f"{live.url}/v1/messages", json=ASKED | fields | {"stream": True}, headers={"x-api-key": KEY}
    )
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = []
    for piece in answer.text.split("\n\n")[:-1]:
        name, data = piece.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    assert all(name == data["type"] for name, data in found)
    return found


def test_a_reply_has_thoughts_and_text(client: anthropic.Anthropic, script: Script) -> None:
    script("I see.\n</think>\n\nIt rains.")
    reply = client.messages.create(**ASKED)
    thoughts, text = reply.content
    assert thoughts.type == "thinking"
    assert thoughts.thinking == "I see."
    assert thoughts.signature
    assert text.type == "text"
    assert text.text == "It rains."
    assert (reply.role, reply.model, reply.stop_reason, reply.stop_sequence) == (
        *("assistant", "chat", "end_turn", None),
    )
    assert reply.usage.output_tokens > 6
    assert reply.usage.output_tokens_details is not None
    assert 2 < reply.usage.output_tokens_details.thinking_tokens < reply.usage.output_tokens - 2


def test_models_have_anthropics_shape(client: anthropic.Anthropic) -> None:
    found = client.models.list()
    assert [(model.id, model.type, model.display_name) for model in found] == [
        ("chat", "model", "chat"),
        ("stories", "model", "stories"),
    ]
    assert found.has_more is False
    assert client.models.retrieve("stories").created_at.year >= 1970


def test_a_reply_has_timings(client: anthropic.Anthropic, script: Script) -> None:
    script("</think>Yes.")
    reply: Any = client.messages.create(**ASKED)
    assert reply.timings["tokens"] == reply.usage.output_tokens
    script("</think>Yes.")
    with client.messages.stream(**ASKED) as stream:
        (delta,) = [event for event in stream if event.type == "message_delta"]
        timings: Any = delta.timings  # type: ignore[attr-defined]
        assert timings["tokens"] == stream.get_final_message().usage.output_tokens


def test_a_stream_adds_up_to_the_same_message(client: anthropic.Anthropic, script: Script) -> None:
    script(f"I see.\n</think>\n\nLook: {CALL}")
    whole = client.messages.create(**ASKED, tools=TOOLS)
    script(f"I see.\n</think>\n\nLook: {CALL}")
    with client.messages.stream(**ASKED, tools=TOOLS) as stream:
        kinds = [each.type for each in stream]
        streamed = stream.get_final_message()
    assert len(kinds) > 10
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use"]
    ids = {"id", "cache_read_input_tokens", "input_tokens", "timings"}  # the prompt is known the second time
    assert _without(streamed.to_dict(), ids | {"parsed_output"}) == _without(whole.to_dict(), ids)


def _without(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(part, names) for name, part in value.items() if name not in names}
    return [_without(part, names) for part in value] if isinstance(value, list) else value


def test_events_have_anthropics_order(live: LiveServer, script: Script) -> None:
    script(f"I see.\n</think>\n\nLook: {CALL}")
    found = [(name, data) for name, data in events_of(live, tools=TOOLS) if name != "ping"]
    assert found[0][1]["message"]["content"] == []
    usage = found[0][1]["message"]["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] > 10
    begun = [data for name, data in found if name == "content_block_start"]
    assert [(data["index"], data["content_block"]["type"]) for data in begun] == [
        (0, "thinking"),
        (1, "text"),
        (2, "tool_use"),
    ]
    assert begun[0]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert begun[1]["content_block"]["text"] == ""
    assert begun[2]["content_block"]["input"] == {}
    order = []
    for name, data in found:
        step = (name, data.get("index"), data.get("delta", {}).get("type"))
        if not order or order[-1] != step:
            order.append(step)
    deltas = {0: ("thinking_delta", "signature_delta"), 1: ("text_delta",), 2: ("input_json_delta",)}
    assert order == [
        ("message_start", None, None),
        *(
            step
            for index, kinds in deltas.items()
            for step in (
                ("content_block_start", index, None),
                *(("content_block_delta", index, kind) for kind in kinds),
                ("content_block_stop", index, None),
            )
        ),
        ("message_delta", None, None),
        ("message_stop", None, None),
    ]
    json_text = "".join(data.get("delta", {}).get("partial_json", "") for _, data in found)
    assert json.loads(json_text) == {"city": "Bern"}
    assert found[-2][1]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None, "stop_details": None}
    assert found[-2][1]["usage"]["output_tokens"] > 10


def test_a_stream_that_waits_has_pings(
    live: LiveServer, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, next_chunk = iter(range(2)), Stream.anext

    async def slow(self: Stream, timeout: float | None = None) -> Any:
        if next(waits, None) is not None:
            raise TimeoutError
        return await next_chunk(self, timeout)

    monkeypatch.setattr(Stream, "anext", slow)
    script("</think>\n\nDone.")
    names = [name for name, _ in events_of(live)]
    assert names[:4] == ["message_start", "ping", "ping", "content_block_start"]


def test_calls_have_their_input(client: anthropic.Anthropic, script: Script) -> None:
    script(f"</think>\n\n{CALL}")
    reply = client.messages.create(**ASKED, tools=TOOLS)
    (call,) = reply.content
    assert call.type == "tool_use"
    assert (call.name, call.input, reply.stop_reason) == ("weather", {"city": "Bern"}, "tool_use")


def test_a_call_that_is_cut_off_is_none(client: anthropic.Anthropic, script: Script) -> None:
    script(f"</think>\n\n{CALL}")
    reply = client.messages.create(**ASKED | {"max_tokens": 50}, tools=TOOLS)
    assert (reply.content, reply.stop_reason) == ([], "max_tokens")


@pytest.mark.parametrize("choice", ["auto", "any", "tool"])
def test_one_call_if_several_are_not_wanted(client: anthropic.Anthropic, script: Script, choice: str) -> None:
    name = {"name": "weather"} if choice == "tool" else {}
    script(f"</think>\n\n{CALL}\n{CALL}")
    chosen: Any = {"type": choice, "disable_parallel_tool_use": True, **name}
    reply = client.messages.create(**ASKED, tools=TOOLS, tool_choice=chosen)
    assert [block.type for block in reply.content] == ["tool_use"]
    assert reply.stop_reason == "tool_use"


def test_choices_demand_calls_or_hide_tools(
    client: anthropic.Anthropic, script: Script, prompts: list[str]
) -> None:
    script(f"</think>\n\n{CALL}\n{CALL}")
    both = client.messages.create(**ASKED, tools=TOOLS, tool_choice={"type": "any"})
    assert [block.type for block in both.content] == ["tool_use", "tool_use"]
    assert "The weather of a place." in prompts[-1]
    script("</think>\n\nNo.")
    none = client.messages.create(**ASKED, tools=TOOLS, tool_choice={"type": "none"})
    assert [block.type for block in none.content] == ["text"]
    assert "The weather of a place." not in prompts[-1]


@pytest.mark.parametrize(
    ("choice", "reply"),
    [({"type": "any"}, "No."), ({"type": "tool", "name": "now"}, CALL)],
    ids=["any", "tool"],
)
def test_another_reply_than_the_choice_demands_is_impossible(
    client: anthropic.Anthropic, script: Script, choice: Any, reply: str
) -> None:
    script(f"</think>\n\n{reply}")
    with pytest.raises(anthropic.APIStatusError, match="tools: expected a token that the mask allows"):
        client.messages.create(**ASKED, tools=TOOLS, tool_choice=choice)


def test_history_is_read_as_the_template_has_it(
    client: anthropic.Anthropic, script: Script, prompts: list[str]
) -> None:
    result: list[Any] = [{"type": "text", "text": "rain"}, {"type": "text", "text": "and wind"}]
    cached: Any = {"cache_control": {"type": "ephemeral"}}
    messages: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "Weather?", **cached}]},
        {"role": "user", "content": "In Bern."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Ask.", "signature": "xyz"},
                {"type": "redacted_thinking", "data": "secret"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Bern"}},
                {"type": "tool_use", "id": "t2", "name": "now", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": result},
                {"type": "tool_result", "tool_use_id": "t2", "content": "no clock", "is_error": True},
                {"type": "text", "text": "And now?"},
            ],
        },
    ]
    script("</think>\n\nRain.")
    client.messages.create(
        model="chat",
        max_tokens=50,
        system=[{"type": "text", "text": "Be brief.", **cached}, {"type": "text", "text": "Be kind."}],
        messages=messages,
    )
    assert prompts[-1] == (
        "<|im_start|>system\nBe brief.\nBe kind.<|im_end|>\n"
        "<|im_start|>user\nWeather?\nIn Bern.<|im_end|>\n"
        "<|im_start|>assistant\nI look."
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\nrain\nand wind<|im_end|>\n"
        "<|im_start|>tool\nError: no clock<|im_end|>\n"
        "<|im_start|>user\nAnd now?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )


def test_a_reply_can_be_sent_back_as_it_is(client: anthropic.Anthropic, script: Script) -> None:
    script(f"I see.\n</think>\n\nLook: {CALL}")
    first = client.messages.create(**ASKED, tools=TOOLS)
    result: Any = {"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "rain"}  # type: ignore[union-attr]
    script("</think>\n\nRain.")
    messages: list[Any] = [*QUESTION, first.to_param(), {"role": "user", "content": [result]}]
    second = client.messages.create(**ASKED | {"messages": messages}, tools=TOOLS)
    assert second.content[-1].text == "Rain."  # type: ignore[union-attr]


def test_thoughts_of_the_past_reach_templates_that_want_them() -> None:
    said: Any = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""}]}
    assert messages_of(None, [said]) == [{"role": "assistant", "content": "", "reasoning_content": "Hm."}]


def test_a_reply_that_was_begun_goes_on(
    client: anthropic.Anthropic, script: Script, prompts: list[str]
) -> None:
    script("ains.")
    begun: list[Any] = [*QUESTION, {"role": "assistant", "content": "It r"}]
    reply = client.messages.create(**ASKED | {"messages": begun})
    assert prompts[-1].endswith("<|im_start|>assistant\nIt r")
    assert [block.to_dict()["text"] for block in reply.content] == ["ains."]


def test_the_sequence_that_ends_a_reply_is_named(client: anthropic.Anthropic, script: Script) -> None:
    script("</think>\n\nOne. Two! Three.")
    reply = client.messages.create(**ASKED, stop_sequences=["Three", "!"])
    assert (reply.stop_reason, reply.stop_sequence) == ("stop_sequence", "!")
    assert reply.content[-1].text == "One. Two"  # type: ignore[union-attr]
    script("</think>\n\nOne. Two! Three.")
    with client.messages.stream(**ASKED, stop_sequences=["Four", "Three"]) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence) == ("stop_sequence", "Three")


def test_more_tokens_than_the_context_has_may_be_asked_for(
    client: anthropic.Anthropic, script: Script
) -> None:
    script("</think>\n\nYes.")
    assert client.messages.create(**ASKED | {"max_tokens": 20_000}).stop_reason == "end_turn"


def test_a_reply_that_is_cut_off_says_so(client: anthropic.Anthropic, script: Script) -> None:
    script("</think>\n\nOne. Two. Three.")
    reply = client.messages.create(**ASKED | {"max_tokens": 5})
    assert (reply.stop_reason, reply.usage.output_tokens) == ("max_tokens", 5)


def test_sampling_is_that_of_the_request(client: anthropic.Anthropic) -> None:
    def said(**sampling: Any) -> list[Any]:
        return client.messages.create(**ASKED | {"max_tokens": 8}, extra_body=sampling).content

    greedy = said(temperature=0)
    assert said(temperature=1, top_k=1) == said(temperature=1, top_p=1e-6) == greedy
    assert any(said(temperature=1.5) != greedy for _ in range(5))


def test_thinking_is_what_the_template_makes_of_it(
    client: anthropic.Anthropic, script: Script, prompts: list[str]
) -> None:
    script("It rains.")
    reply = client.messages.create(**ASKED, thinking={"type": "disabled"})
    assert [block.type for block in reply.content] == ["text"]
    assert prompts[-1].endswith("<think>\n\n</think>\n\n")
    for thinking in ({"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}):
        script("I see.\n</think>\n\nIt rains.")
        reply = client.messages.create(**ASKED, thinking=thinking)  # type: ignore[arg-type]
        assert [block.type for block in reply.content] == ["thinking", "text"]
        assert prompts[-1].endswith("<think>\n")


def test_thoughts_end_at_their_budget(client: anthropic.Anthropic) -> None:
    asked = ASKED | {"max_tokens": 40, "extra_body": {"temperature": 0}}
    endless = client.messages.create(**asked, thinking={"type": "enabled", "budget_tokens": 1024})
    assert [block.type for block in endless.content] == ["thinking"]
    short = client.messages.create(**asked, thinking={"type": "enabled", "budget_tokens": 3})
    assert [block.type for block in short.content] == ["thinking", "text"]
    begun = str(short.content[0].to_dict()["thinking"])
    assert str(endless.content[0].to_dict()["thinking"]).startswith(begun.strip())
    assert short.usage.output_tokens_details is not None
    assert short.usage.output_tokens_details.thinking_tokens < 16  # with the marker, letter by letter


def test_a_reply_fits_a_schema(client: anthropic.Anthropic, script: Script) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    script('I see.\n</think>\n\n{"a": 5}')
    reply = client.messages.create(
        **ASKED,
        output_config={"effort": "low", "format": {"type": "json_schema", "schema": schema}},
    )
    assert json.loads(reply.content[-1].text) == {"a": 5}  # type: ignore[union-attr]


def test_a_prompt_that_was_read_is_not_read_again(client: anthropic.Anthropic, script: Script) -> None:
    asked = ASKED | {"messages": [{"role": "user", "content": "Tell me about the Rhine, " * 9}]}
    script("</think>\n\nIt flows.")
    first = client.messages.create(**asked).usage
    script("</think>\n\nIt flows.")
    with client.messages.stream(**asked) as stream:
        second = stream.get_final_message().usage
    assert (first.cache_creation_input_tokens, second.cache_creation_input_tokens) == (0, 0)
    whole = (first.cache_read_input_tokens or 0) + first.input_tokens
    assert (second.cache_read_input_tokens or 0) + second.input_tokens == whole
    assert (second.cache_read_input_tokens or 0) > 0.8 * whole
    assert client.messages.count_tokens(model="chat", messages=asked["messages"]).input_tokens == whole


def test_tokens_are_counted_with_everything_in_the_prompt(client: anthropic.Anthropic) -> None:
    asked: dict[str, Any] = {"model": "chat", "messages": QUESTION}
    alone = client.messages.count_tokens(**asked).input_tokens
    assert alone < client.messages.count_tokens(**asked, system="Be brief.").input_tokens
    with_tools = client.messages.count_tokens(**asked, tools=TOOLS).input_tokens
    assert with_tools > alone + 20
    none = client.messages.count_tokens(**asked, tools=TOOLS, tool_choice={"type": "none"})
    assert none.input_tokens == alone
    thoughtless = client.messages.count_tokens(**asked, thinking={"type": "disabled"})
    assert thoughtless.input_tokens > alone


def test_what_changes_no_reply_is_accepted(client: anthropic.Anthropic, script: Script) -> None:
    script("</think>\n\nYes.")
    reply = client.messages.create(
        **ASKED,
        metadata={"user_id": "somebody"},
        service_tier="auto",
        cache_control={"type": "ephemeral"},
        tools=[TOOLS[0] | {"type": "custom", "cache_control": {"type": "ephemeral"}, "strict": True}],
        extra_headers={"anthropic-version": "2023-06-01", "anthropic-beta": "some-beta"},
    )
    assert reply.content[-1].text == "Yes."  # type: ignore[union-attr]


def test_a_stream_that_fails_ends_with_an_error(
    client: anthropic.Anthropic, monkeypatch: pytest.MonkeyPatch, script: Script
) -> None:
    script("</think>\n\nOne. Two.")
    taken = iter(range(3))
    parts = Stream.new_parts

    def failing(self: Stream) -> Any:
        if next(taken, None) is None:
            raise pyturbo.errors.StateError("the engine is closed")
        return parts(self)

    monkeypatch.setattr(Stream, "new_parts", failing)
    with pytest.raises(anthropic.APIStatusError) as caught, client.messages.stream(**ASKED) as stream:
        stream.until_done()
    assert caught.value.body == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "the engine is closed"},
    }


IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
USE = {"type": "tool_use", "id": "t", "name": "now", "input": {}}


def said(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": [*blocks]}]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bogus": 1}, "bogus: this field is not supported"),
        ({"max_tokens": None}, "max_tokens: field required"),
        ({"max_tokens": 0}, "max_tokens: input should be greater than or equal to 1"),
        ({"messages": []}, "messages: list should have at least 1 item"),
        (
            {"messages": [{"role": "robot", "content": ""}]},
            "messages.0.role: expected one of user, assistant",
        ),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content: expected text or a list"),
        ({"messages": [{"role": "user", "content": "", "name": "x"}]}, "messages.0.name: this field is not"),
        (said(IMAGE), "messages.0.content.0: expected a block of type text or tool_result, got 'image'"),
        (
            said(DOCUMENT),
            "messages.0.content.0: expected a block of type text or tool_result, got 'document'",
        ),
        (said("text"), "messages.0.content.0: expected a block of type text or tool_result, got 'text'"),
        (said(USE), "messages.0.content.0: expected a block of type text or tool_result, got 'tool_use'"),
        (said({"type": "text"}), "messages.0.content.0.text: expected text, got None"),
        (said({"type": "text", "text": "", "citations": []}), "messages.0.content.0.citations: this field"),
        (
            said({**USE, "input": 5}, role="assistant"),
            "messages.0.content.0.input: expected an object, got 5",
        ),
        (
            said({"type": "tool_result", "tool_use_id": "t", "content": "x"}),
            "messages.0.content.0.tool_use_id: expected the id of a tool_use block before it, got 't'",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [USE]},
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}],
                    },
                ]
            },
            "messages.1.content.0.content.0: expected a block of type text, got 'image'",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [USE]},
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": "no"}],
                    },
                ]
            },
            "messages.1.content.0.is_error: expected true or false, got 'no'",
        ),
        ({"system": [IMAGE]}, "system.0: expected a block of type text, got 'image'"),
        (
            {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            "tools.0.type: expected custom, got",
        ),
        ({"tools": [{"name": "now"}]}, "tools.0.input_schema: expected a JSON schema, got None"),
        ({"tools": [{**TOOLS[0], "defer_loading": True}]}, "tools.0.defer_loading: this field"),
        ({"tool_choice": {"type": "any"}}, "tool_choice: expected tools with it"),
        ({"tool_choice": {"type": "tool", "name": "x"}}, "tool_choice: expected tools with it"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "x"}},
            "tool_choice.name: expected one of weather, now, got 'x'",
        ),
        (
            {"tools": TOOLS, "tool_choice": {"type": "tool"}},
            "tool_choice.name: expected the name of a tool with type tool, got none",
        ),
        (
            {"tools": TOOLS, "tool_choice": {"type": "any", "name": "now"}},
            "tool_choice.name: expected none with type any, got 'now'",
        ),
        ({"tool_choice": {"type": "perhaps"}}, "tool_choice.type: input should be 'auto', 'any', 'tool' or"),
        (
            {"thinking": {"type": "deep"}},
            "thinking.type: input should be 'enabled', 'disabled' or 'adaptive'",
        ),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens: input should be"),
        (
            {"thinking": {"type": "disabled", "budget_tokens": 9}},
            "thinking.budget_tokens: expected none with",
        ),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "bogus"}}}},
            "output_config.format.schema: expected a JSON schema that a reply can fit",
        ),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {}}}, "tools": TOOLS},
            "tools: expected none beside output_config.format",
        ),
        ({"output_config": {"effort": "none"}}, "output_config.effort: input should be 'low'"),
        ({"temperature": -1}, "temperature: expected"),
        ({"stop_sequences": [""]}, "stop_sequences.0: string should have at least 1 character"),
        ({"model": "nobody"}, "model: expected one of chat, stories, got 'nobody'"),
        ({"model": "stories", "tools": TOOLS}, "knows no tools"),
        ({"messages": [{"role": "user", "content": "word " * 3000}]}, "context"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_wrong_requests_say_what_was_expected(live: LiveServer, fields: dict[str, Any], message: str) -> None:
    answer = httpx.post(f"{live.url}/v1/messages", json=ASKED | fields, headers={"x-api-key": KEY})
    found = answer.json()
    kind, status = ("not_found_error", 404) if "nobody" in message else ("invalid_request_error", 400)
    assert (answer.status_code, found["type"], found["error"]["type"]) == (status, "error", kind)
    assert message in found["error"]["message"]


def test_errors_are_those_of_the_client(live: LiveServer, client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        client.messages.create(**ASKED | {"max_tokens": 0})
    with pytest.raises(anthropic.NotFoundError, match="nobody"):
        client.messages.count_tokens(model="nobody", messages=QUESTION)
    with (
        anthropic.Anthropic(base_url=live.url, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError),
    ):
        stranger.messages.create(**ASKED)
