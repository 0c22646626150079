"""Responses, through OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

import pyturbo
from live_server import LiveServer
from pyturbo.batching import Stream
from pyturbo.serve.openai.items import messages_of
from text.dialects.replies import TOOLS as FUNCTIONS

from ..conftest import KEY, Script

QUESTION = "Weather in Bern?"
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'
TOOLS: list[Any] = [{"type": "function", "strict": None, **tool["function"]} for tool in FUNCTIONS]
ASKED: dict[str, Any] = {"model": "chat", "input": QUESTION, "max_output_tokens": 200}


@pytest.fixture(scope="module")
def client(live: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def test_a_response_has_thoughts_and_text(client: openai.OpenAI, script: Script) -> None:
    script("I see.\n</think>\n\nIt rains.")
    response = client.responses.create(**ASKED)
    assert response.output_text == "It rains."
    thoughts, message = response.output
    assert thoughts.type == "reasoning"
    assert [part.text for part in thoughts.content or ()] == ["I see."]
    assert (thoughts.summary, thoughts.encrypted_content) == ([], None)
    assert message.type == "message"
    assert (message.role, message.status, message.content[0].type) == (
        "assistant",
        "completed",
        "output_text",
    )
    assert (response.status, response.model, response.error) == ("completed", "chat", None)
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert 2 < response.usage.output_tokens_details.reasoning_tokens < response.usage.output_tokens - 2
    assert response.timings["tokens"] == response.usage.output_tokens  # type: ignore[attr-defined]
    script("</think>Yes.")
    with client.responses.stream(**ASKED) as stream:
        last = stream.get_final_response()
    assert last.usage is not None
    assert last.timings["tokens"] == last.usage.output_tokens  # type: ignore[attr-defined]


def test_a_stream_adds_up_to_the_same_response(client: openai.OpenAI, script: Script) -> None:
    script(f"I see.\n</think>\n\nLook: {CALL}")
    whole = client.responses.create(**ASKED, tools=TOOLS)
    script(f"I see.\n</think>\n\nLook: {CALL}")
    snapshots = {}
    with client.responses.stream(**ASKED, tools=TOOLS) as stream:
        for event in stream:
            if event.type in ("response.output_text.delta", "response.function_call_arguments.delta"):
                snapshots[event.type.split(".")[1]] = event.snapshot
        streamed = stream.get_final_response()
    assert snapshots["output_text"] == "Look:"
    assert json.loads(snapshots["function_call_arguments"]) == {"city": "Bern"}
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call"]
    changing = {"id", "call_id", "created_at", "cached_tokens", "timings", "parsed", "parsed_arguments"}
    assert _without(streamed.to_dict(), changing) == _without(whole.to_dict(), changing)


def _without(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(part, names) for name, part in value.items() if name not in names}
    return [_without(part, names) for part in value] if isinstance(value, list) else value


def test_events_have_openais_order(client: openai.OpenAI, script: Script) -> None:
    script(f"I see.\n</think>\n\nLook: {CALL}")
    events: list[Any] = [*client.responses.create(**ASKED, tools=TOOLS, stream=True)]
    assert [event.sequence_number for event in events] == [*range(len(events))]
    order: list[tuple[str, int | None]] = []
    for event in events:
        step = (event.type.removeprefix("response."), getattr(event, "output_index", None))
        if not order or order[-1] != step:
            order.append(step)
    assert order == [
        ("created", None),
        ("in_progress", None),
        ("output_item.added", 0),
        ("content_part.added", 0),
        ("reasoning_text.delta", 0),
        ("reasoning_text.done", 0),
        ("content_part.done", 0),
        ("output_item.done", 0),
        ("output_item.added", 1),
        ("content_part.added", 1),
        ("output_text.delta", 1),
        ("output_text.done", 1),
        ("content_part.done", 1),
        ("output_item.done", 1),
        ("output_item.added", 2),
        ("function_call_arguments.delta", 2),
        ("function_call_arguments.done", 2),
        ("output_item.done", 2),
        ("completed", None),
    ]
    added = [event.item for event in events if event.type == "response.output_item.added"]
    assert [item.status for item in added] == ["in_progress"] * 3
    assert (added[0].content, added[1].content, added[2].arguments) == ([], [], "")
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.id for item in added] == [item.id for item in done]
    assert events[-1].response.output == done
    ends = {event.type: event for event in events if event.type.endswith(".done")}
    assert ends["response.reasoning_text.done"].text == "I see."
    assert ends["response.output_text.done"].text == "Look:"
    assert json.loads(ends["response.function_call_arguments.done"].arguments) == {"city": "Bern"}
    assert (events[0].response.status, events[0].response.output) == ("in_progress", [])


def test_a_stream_that_waits_says_how_far_it_is(
    live: LiveServer, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, next_chunk = iter(range(1)), Stream.anext

    async def slow(self: Stream, timeout: float | None = None) -> Any:
        if next(waits, None) is not None:
            raise TimeoutError
        return await next_chunk(self, timeout)

    monkeypatch.setattr(Stream, "anext", slow)
    script("</think>\n\nDone.")
    assert "\n: prompt " in _post(live, stream=True).text


def _post(live: LiveServer, **fields: Any) -> httpx.Response:
    return httpx.post(
        f"{live.url}/v1/responses", json=ASKED | fields, headers={"Authorization": f"Bearer {KEY}"}
    )


def test_calls_have_arguments(client: openai.OpenAI, script: Script) -> None:
    script(f"</think>\n\n{CALL}\n{CALL}")
    first, second = client.responses.create(**ASKED, tools=TOOLS).output
    assert first.type == second.type == "function_call"
    assert (first.name, json.loads(first.arguments)) == ("weather", {"city": "Bern"})
    assert first.status == "completed"
    assert first.call_id != second.call_id
    script(f"</think>\n\n{CALL}\n{CALL}")
    one = client.responses.create(**ASKED, tools=TOOLS, parallel_tool_calls=False)
    assert [item.type for item in one.output] == ["function_call"]
    assert one.parallel_tool_calls is False


@pytest.mark.parametrize(
    ("choice", "reply"),
    [("required", "No."), ({"type": "function", "name": "now"}, CALL)],
    ids=["required", "function"],
)
def test_another_reply_than_the_choice_demands_is_impossible(
    client: openai.OpenAI, script: Script, choice: Any, reply: str
) -> None:
    script(f"</think>\n\n{reply}")
    with pytest.raises(openai.APIStatusError, match="tools: expected a token that the mask allows"):
        client.responses.create(**ASKED, tools=TOOLS, tool_choice=choice)


def test_choices_hide_tools_or_leave_them(client: openai.OpenAI, script: Script, prompts: list[str]) -> None:
    for choice, shows in (("none", False), ("auto", True)):
        script("</think>\n\nNo.")
        response = client.responses.create(**ASKED, tools=TOOLS, tool_choice=choice)  # type: ignore[call-overload]
        assert (response.output_text, response.tool_choice) == ("No.", choice)
        assert ("The weather of a place." in prompts[-1]) == shows


def test_items_are_read_as_the_template_has_them(
    client: openai.OpenAI, script: Script, prompts: list[str]
) -> None:
    parts = [{"type": "input_text", "text": "In "}, {"type": "input_text", "text": "Bern?"}]
    items: list[Any] = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "Weather?"},
        {"type": "message", "role": "user", "content": parts},
        {
            "type": "reasoning",
            "id": "r",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Ask."}],
        },
        {"type": "reasoning", "id": "s", "summary": [], "encrypted_content": "secret"},
        {
            "type": "message",
            "id": "m",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Bern"}'},
        {"type": "function_call", "call_id": "c2", "name": "now", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "noon"}]},
    ]
    script("</think>\n\nRain.")
    client.responses.create(model="chat", instructions="Be brief.", input=items)
    assert prompts[-1] == (
        "<|im_start|>system\nBe brief.\n\nBe kind.<|im_end|>\n"
        "<|im_start|>user\nWeather?<|im_end|>\n"
        "<|im_start|>user\nIn Bern?<|im_end|>\n"
        "<|im_start|>assistant\nI look."
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\nrain<|im_end|>\n"
        "<|im_start|>tool\nnoon<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )


def test_thoughts_of_the_past_reach_templates_that_want_them() -> None:
    thoughts: Any = {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
    }
    said = {"role": "assistant", "content": "Yes."}
    assert messages_of(None, [thoughts, said]) == [
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
    ]


def test_an_output_can_be_sent_back_as_it_is(client: openai.OpenAI, script: Script) -> None:
    script(f"I see.\n</think>\n\nLook: {CALL}")
    first = client.responses.create(**ASKED, tools=TOOLS)
    result = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "rain"}  # type: ignore[union-attr]
    items: list[Any] = [{"role": "user", "content": QUESTION}, *first.output, result]
    script("</think>\n\nRain.")
    assert client.responses.create(**ASKED | {"input": items}, tools=TOOLS).output_text == "Rain."


class Weather(BaseModel):
    """What the schema of a test is made from."""

    rain: bool


def test_a_reply_fits_a_schema(client: openai.OpenAI, script: Script) -> None:
    reply = 'I see.\n</think>\n\n{"rain": true}'
    script(reply)
    assert client.responses.parse(**ASKED, text_format=Weather).output_parsed == Weather(rain=True)
    script(reply)
    with client.responses.stream(**ASKED, text_format=Weather) as stream:
        assert stream.get_final_response().output_parsed == Weather(rain=True)
    script(reply)
    anything = client.responses.create(**ASKED, text={"format": {"type": "json_object"}})
    assert json.loads(anything.output_text) == {"rain": True}
    script("</think>\n\nRain.")
    with pytest.raises(openai.APIStatusError, match="schema: expected a token that the mask allows"):
        client.responses.parse(**ASKED, text_format=Weather)
    script("</think>\n\nRain.")
    plain = client.responses.create(**ASKED, text={"format": {"type": "text"}, "verbosity": "medium"})
    assert plain.output_text == "Rain."


def test_a_response_that_is_cut_off_is_incomplete(client: openai.OpenAI, script: Script) -> None:
    asked = ASKED | {"max_output_tokens": 6}
    script("</think>\n\nOne. Two. Three. Four.")
    whole = client.responses.create(**asked)
    assert whole.incomplete_details is not None
    assert (whole.status, whole.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert [item.status for item in whole.output] == ["incomplete"]  # type: ignore[union-attr]
    script("</think>\n\nOne. Two. Three. Four.")
    *_, last = client.responses.create(**asked, stream=True)
    assert last.type == "response.incomplete"
    assert last.response.output_text == whole.output_text != ""
    assert last.response.usage is not None
    assert last.response.usage.output_tokens == 6


def test_a_call_that_is_cut_off_is_incomplete(client: openai.OpenAI, script: Script) -> None:
    script(f"</think>\n\n{CALL}")
    response = client.responses.create(**ASKED | {"max_output_tokens": 50}, tools=TOOLS)
    assert response.status == "incomplete"
    (call,) = response.output
    assert call.type == "function_call"
    assert (call.status, call.name, call.arguments[:2]) == ("incomplete", "weather", '{"')


def test_sampling_is_that_of_the_request(client: openai.OpenAI) -> None:
    def said(**sampling: Any) -> list[Any]:
        response = client.responses.create(**ASKED | {"max_output_tokens": 8}, **sampling)
        return [_without(item.to_dict(), {"id"}) for item in response.output]

    greedy = said(temperature=0)
    assert said(temperature=1, top_p=1e-6) == greedy
    assert any(said(temperature=1.5) != greedy for _ in range(5))


def test_efforts_are_variables_of_the_template(
    client: openai.OpenAI, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    submit = pyturbo.Engine.submit_several

    def noted(self: pyturbo.Engine, *given: Any, **options: Any) -> Any:
        seen.append(options["variables"])
        return submit(self, *given, **options)

    monkeypatch.setattr(pyturbo.Engine, "submit_several", noted)
    script("</think>\n\nYes.")
    response = client.responses.create(**ASKED, reasoning={"effort": "low", "summary": "auto"})
    assert seen == [{"reasoning_effort": "low"}]
    assert response.reasoning is not None
    assert response.reasoning.effort == "low"


def test_no_effort_means_no_thoughts(client: openai.OpenAI, script: Script, prompts: list[str]) -> None:
    script("It rains.")
    response = client.responses.create(**ASKED, reasoning={"effort": "none"})
    assert [item.type for item in response.output] == ["message"]
    assert prompts[-1].endswith("<think>\n\n</think>\n\n")


def test_a_prompt_that_was_read_is_not_read_again(client: openai.OpenAI, script: Script) -> None:
    asked = ASKED | {"input": "Tell me about the lake of Thun, please. " * 6}
    script("</think>\n\nIt is deep.")
    client.responses.create(**asked)
    script("</think>\n\nIt is deep.")
    usage = client.responses.create(**asked).usage
    assert usage is not None
    assert usage.input_tokens_details.cached_tokens > 0.8 * usage.input_tokens


def test_what_was_asked_is_repeated(client: openai.OpenAI, script: Script) -> None:
    script("</think>\n\nYes.")
    response = client.responses.create(
        **ASKED, instructions="Be brief.", metadata={"job": "7"}, tools=TOOLS, temperature=0.5, top_p=0.9
    )
    assert (response.instructions, response.metadata) == ("Be brief.", {"job": "7"})
    assert (response.temperature, response.top_p, response.max_output_tokens) == (0.5, 0.9, 200)
    assert [tool.name for tool in response.tools] == ["weather", "now"]  # type: ignore[union-attr]


def test_what_changes_no_reply_is_accepted(client: openai.OpenAI, script: Script) -> None:
    script("</think>\n\nYes.")
    response = client.responses.create(
        **ASKED,
        store=True,
        include=["reasoning.encrypted_content"],
        truncation="disabled",
        background=False,
        user="somebody",
        safety_identifier="somebody",
        prompt_cache_key="a",
        service_tier="auto",
    )
    assert response.output_text == "Yes."
    assert (response.to_dict()["store"], response.truncation) == (False, "disabled")


def test_nothing_is_stored(client: openai.OpenAI, script: Script) -> None:
    script("</think>\n\nYes.")
    response = client.responses.create(**ASKED)
    with pytest.raises(openai.NotFoundError, match="stores none"):
        client.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError, match="stores none"):
        client.responses.delete(response.id)


def test_a_stream_that_fails_says_why(
    client: openai.OpenAI, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script("</think>\n\nOne. Two. Three. Four.")
    taken, parts = iter(range(6)), Stream.new_parts

    def failing(self: Stream) -> Any:
        if next(taken, None) is None:
            raise pyturbo.errors.StateError("the engine is closed")
        return parts(self)

    monkeypatch.setattr(Stream, "new_parts", failing)
    *_, last = client.responses.create(**ASKED, stream=True)
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert (last.response.status, last.response.error.code) == ("failed", "server_error")
    assert last.response.error.message == "the engine is closed"
    assert last.response.output_text.startswith("One")


def _allowed(*tools: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": "auto", "tools": [*tools]}


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"bogus": 1}, "bogus", "this field is not supported"),
        ({"input": []}, "input", "at least 1"),
        ({"input": 5}, "input", "valid string, got 5"),
        ({"max_output_tokens": 0}, "max_output_tokens", "greater than or equal to 1"),
        ({"temperature": -1}, "temperature", "expected"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "stores no responses"),
        ({"conversation": "conv_1"}, "conversation", "stores no responses"),
        ({"background": True}, "background", "should be False"),
        ({"truncation": "auto"}, "truncation", "'disabled'"),
        ({"include": ["message.output_text.logprobs"]}, "include.0", "'reasoning.encrypted_content'"),
        ({"metadata": {"a": 1}}, "metadata.a", "valid string"),
        ({"text": {"verbosity": "low"}}, "text.verbosity", "'medium'"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", "'json_object'"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "expected a schema"),
        (
            {"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "bogus"}}}},
            "text.format.schema",
            "text.format.schema: expected a JSON schema that a reply can fit",
        ),
        ({"text": {"format": {"type": "json_object"}}, "tools": TOOLS}, "tools", "none beside text.format"),
        ({"reasoning": {"context": "auto"}}, "reasoning.context", "not supported"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type", "expected function, got 'web_search'"),
        ({"tools": [{"type": "function"}]}, "tools.0.name", "expected text, got None"),
        ({"tools": [{**TOOLS[0], "defer_loading": True}]}, "tools.0.defer_loading", "not supported"),
        ({"tool_choice": "required"}, "tool_choice", "tools"),
        ({"tool_choice": "perhaps"}, "tool_choice", "expected none, auto"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type", "expected function or allowed_tools"),
        ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice", "expected tools with it"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "name": "x"}},
            "tool_choice.name",
            "expected one of weather, now, got 'x'",
        ),
        *(
            ({"tools": TOOLS, "tool_choice": choice}, f"tool_choice{where}", message)
            for choice, where, message in (
                ({"type": "function", "name": "now", "bogus": 1}, ".bogus", "not supported"),
                ({"type": "function"}, ".name", "expected text, got None"),
                (_allowed() | {"bogus": 1}, ".bogus", "not supported"),
                (_allowed({"type": "function", "name": "now", "x": 1}), ".tools.0.x", "not supported"),
                (_allowed({"type": "custom"}), ".tools.0.type", "expected function, got 'custom'"),
                (_allowed("now"), ".tools.0", "expected a function, got 'now'"),
                (_allowed(), ".tools", "expected a list of tools, got []"),
                (_allowed({"type": "function", "name": "x"}), ".tools", "expected one of weather, now, got"),
                (_allowed() | {"mode": "none"}, ".mode", "expected auto or required, got 'none'"),
            )
        ),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0.type", "got 'item_reference'"),
        ({"input": [{"content": "x"}]}, "input.0.type", "expected one of message"),
        ({"input": [{"role": "robot", "content": ""}]}, "input.0.role", "expected one of system"),
        ({"input": [{"role": "user", "content": 5}]}, "input.0.content", "expected text or a list"),
        ({"input": [{"role": "user", "content": "", "name": "x"}]}, "input.0.name", "not supported"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input.0.content.0",
            "type text, got 'input_image'",
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
            "input.0.call_id",
            "expected that of a function_call before it, got 'c'",
        ),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": "now"}]},
            "input.0.arguments",
            "expected text, got None",
        ),
        (
            {"input": [{"type": "reasoning", "content": [{"type": "text", "text": "x"}]}]},
            "input.0.content.0",
            "reasoning_text",
        ),
        ({"model": "nobody"}, "model", "expected one of chat, stories"),
        ({"model": "stories", "tools": TOOLS}, "tools", "knows no tools"),
        ({"input": "word " * 3000}, "input", "context"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_wrong_requests_say_what_was_expected(
    live: LiveServer, fields: dict[str, Any], param: str | None, message: str
) -> None:
    answer = _post(live, **fields)
    error = answer.json()["error"]
    assert answer.status_code == (404 if fields.get("model") == "nobody" else 400)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert message in error["message"]
