"""POST /v1/responses."""

from __future__ import annotations

import json
from typing import Any

from serve.supported.rows import (
    Api,
    accepted,
    by_another_model,
    calls_of,
    changes,
    ignored,
    reads_less,
    reads_more,
    refused,
    same_as,
    supported,
    text_of,
    tokens_of,
    without_thoughts,
)
from serve.supported.thoughtful import NAME
from serve.supported.tools import ITEMS, UNIT, is_unit

_THINKS: dict[str, Any] = {"model": "chat", "max_output_tokens": 400}
_CALLS = {**_THINKS, "tools": ITEMS, "reasoning": {"effort": "none"}}
_ONE_CALL = {"parallel_tool_calls": False}  # without end, such a model calls
_ASKED = {"role": "user", "content": "Once upon a time"}
_CALL = {"type": "function_call", "call_id": "c1", "name": "measure", "arguments": "{}"}

RESPONSES = Api(
    "/v1/responses",
    {"model": "stories", "input": "Once upon a time", "max_output_tokens": 16, "temperature": 0},
    (
        supported("model", "name of a model; without it the first one", "chat", by_another_model),
        supported("input: text", "", "Once upon a", changes()),
        supported(
            "input: message",
            "parts of text, of the roles system, developer, user and assistant",
            [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "Once upon a"}],
                }
            ],
            same_as(input="Once upon a"),
        ),
        supported(
            "input: function_call, function_call_output",
            "calls and their results",
            [_ASKED, _CALL, {"type": "function_call_output", "call_id": "c1", "output": "sunny"}],
            lambda reply, ask: reply["usage"]["input_tokens"] > ask(**_CALLS)["usage"]["input_tokens"],
            **_CALLS,
        ),
        supported(
            "input: reasoning",
            "thoughts in plain text; encrypted ones are left out",
            [
                _ASKED,
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
                {"role": "assistant", "content": "Yes."},
                _ASKED,
            ],
            reads_more(model=NAME, input=[_ASKED, {"role": "assistant", "content": "Yes."}, _ASKED]),
            model=NAME,
        ),
        refused(
            "input: images, files",
            "only text is read",
            [{"role": "user", "content": [{"type": "input_image"}]}],
        ),
        refused("input: other items", "", [{"type": "item_reference", "id": "x"}]),
        supported("instructions", "the system prompt", "Once there was a cat.", changes()),
        supported("max_output_tokens", "", 3, lambda reply, ask: tokens_of(reply) == 3),
        supported("temperature", "0 takes the likeliest token", 5.0, changes()),
        supported("top_p", "", 1e-9, same_as(), temperature=5.0),
        supported(
            "stream",
            "events",
            True,
            lambda reply, ask: text_of(reply[-1]["response"]) == text_of(ask()) and len(reply) > 10,
        ),
        accepted(
            "stream_options.include_obfuscation",
            "no stream has padding",
            {"include_obfuscation": False},
            stream=True,
        ),
        accepted("text.format: text", "what it is without it", {"format": {"type": "text"}}),
        supported(
            "text.format: json_object",
            "the reply is a JSON object",
            {"format": {"type": "json_object"}},
            lambda reply, ask: text_of(reply).startswith("{"),
        ),
        supported(
            "text.format: json_schema",
            "the reply fits the schema",
            {"format": {"type": "json_schema", "name": "unit", "schema": UNIT, "strict": True}},
            lambda reply, ask: is_unit(json.loads(text_of(reply))),
            **_THINKS,
            reasoning={"effort": "none"},
        ),
        accepted("text.verbosity: medium", "what it is without it", {"verbosity": "medium"}),
        refused("text.verbosity: low, high", "no model here is told", {"verbosity": "low"}),
        supported(
            "tools: function",
            "calls fit the schemas of the functions",
            ITEMS,
            lambda reply, ask: calls_of(reply) != [] and all(is_unit(given) for _, given in calls_of(reply)),
            **_THINKS,
            reasoning={"effort": "none"},
            tool_choice="required",
            **_ONE_CALL,
        ),
        refused("tools: others", "a server would run them itself", [{"type": "web_search"}]),
        supported("tool_choice: none", "the prompt has no tools", "none", reads_less(**_CALLS), **_CALLS),
        accepted("tool_choice: auto", "what it is without it", "auto", model="chat", tools=ITEMS),
        supported(
            "tool_choice: required",
            "at least one call",
            "required",
            lambda reply, ask: calls_of(reply) != [],
            **_CALLS,
            **_ONE_CALL,
        ),
        supported(
            "tool_choice: function",
            "one call of this function",
            {"type": "function", "name": "weigh"},
            lambda reply, ask: [name for name, _ in calls_of(reply)] == ["weigh"],
            **_CALLS,
        ),
        supported(
            "tool_choice: allowed_tools",
            "only these tools are called; the prompt has all of them",
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weigh"}]},
            lambda reply, ask: {name for name, _ in calls_of(reply)} == {"weigh"},
            **_CALLS,
            **_ONE_CALL,
        ),
        refused("tool_choice: others", "", {"type": "web_search"}),
        supported(
            "parallel_tool_calls",
            "false: a reply ends after its first call",
            False,
            lambda reply, ask: len(calls_of(reply)) == 1,
            **_CALLS,
            tool_choice="required",
        ),
        supported(
            "reasoning.effort: none",
            "no thoughts",
            {"effort": "none"},
            without_thoughts(model="chat"),
            model="chat",
        ),
        supported(
            "reasoning.effort: others",
            "a variable of templates that know it",
            {"effort": "low"},
            reads_more(model=NAME),
            model=NAME,
        ),
        accepted("reasoning.summary", "thoughts come whole", {"summary": "auto"}, model="chat"),
        supported(
            "metadata", "the response has it", {"a": "b"}, lambda reply, ask: reply["metadata"] == {"a": "b"}
        ),
        accepted(
            "include: reasoning.encrypted_content",
            "thoughts are not encrypted",
            ["reasoning.encrypted_content"],
            model="chat",
        ),
        refused("include: others", "", ["message.output_text.logprobs"]),
        accepted("truncation: disabled", "what it is without it", "disabled"),
        refused("truncation: auto", "", "auto"),
        accepted("background: false", "what it is without it", False),
        refused("background: true", "", True),
        refused("previous_response_id", "nothing is stored; send all items", "resp_1"),
        refused("conversation", "nothing is stored; send all items", "conv_1"),
        ignored("user", "", "somebody"),
        ignored("store", "nothing is stored", True),
        ignored("service_tier", "", "auto"),
        ignored("safety_identifier", "", "somebody"),
        ignored("prompt_cache_key", "known prompts are found without it", "a"),
        ignored("prompt_cache_options", "", {}),
        ignored("prompt_cache_retention", "", "24h"),
        ignored("max_tool_calls", "it limits tools that a server runs itself", 3),
        ignored("client_metadata", "", {"a": "b"}),
        refused("context_management", "a context is never shortened", [{"type": "compaction"}]),
        refused("moderation", "", {}),
        refused("prompt", "", {"id": "pmpt_1"}),
        refused("top_logprobs", "", 2),
    ),
)
