"""POST /v1/chat/completions."""

from __future__ import annotations

import json
from typing import Any

from serve.supported.rows import (
    Api,
    accepted,
    calls_of,
    reads_less,
    reads_more,
    refused,
    same_as,
    supported,
    text_of,
    thoughts_of,
    tokens_of,
    without_thoughts,
)
from serve.supported.sampling import IGNORED, sampling
from serve.supported.thoughtful import NAME
from serve.supported.tools import FUNCTIONS, UNIT, is_unit

_REPEATS = {
    "messages": [{"role": "user", "content": "The cat ran. The dog ran. " * 3 + "The"}],
    "max_tokens": 12,
}
#: Fields of a request to a model that thinks and calls; its weights are random, so it does what it must.
_THINKS: dict[str, Any] = {
    "model": "chat",
    "temperature": 1.0,
    "seed": 3,
    "max_tokens": 200,
    "reasoning_budget": 4,
}
_CALLS = {**_THINKS, "tools": FUNCTIONS}
_ONE_CALL = {"parallel_tool_calls": False}  # without end, such a model calls
_CALL = {"id": "c1", "type": "function", "function": {"name": "measure", "arguments": "{}"}}


def _message(role: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": "Once upon a time", **more}


def _spoken(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return [*messages, _message("user")]


CHAT = Api(
    "/v1/chat/completions",
    {"model": "stories", "messages": [_message("user")], "max_tokens": 8, "temperature": 0},
    (
        supported(
            "messages: text",
            "of the roles system, developer, user and assistant; several system prompts in a row are one",
            _spoken(
                _message("system"), _message("developer"), _message("user", name="Ann"), _message("assistant")
            ),
            lambda reply, ask: reply["usage"]["prompt_tokens"] > 2 * ask()["usage"]["prompt_tokens"],
        ),
        supported(
            "messages: parts",
            "a content may be a list of parts of `text`",
            [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": text} for text in ("Once upon", " a")],
                }
            ],
            same_as(messages=[{"role": "user", "content": "Once upon a"}]),
        ),
        supported(
            "messages: tool_calls, tool",
            "calls of the assistant and their results, with `tool_call_id`",
            _spoken(
                _message("user"),
                {"role": "assistant", "content": None, "tool_calls": [_CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
            ),
            lambda reply, ask: reply["usage"]["prompt_tokens"] > ask(**_CALLS)["usage"]["prompt_tokens"],
            **_CALLS,
        ),
        supported(
            "messages: reasoning_content",
            "thoughts of the assistant, also as `reasoning` or `thinking`; the template says which are read",
            _spoken(_message("user"), _message("assistant", reasoning_content="Hm.")),
            reads_more(model=NAME, messages=_spoken(_message("user"), _message("assistant"))),
            model=NAME,
        ),
        refused(
            "messages: images, audio, files",
            "only text is read",
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}],
        ),
        *sampling(_REPEATS),
        supported(
            "max_completion_tokens",
            "the newer name of `max_tokens`",
            3,
            lambda reply, ask: tokens_of(reply) == 3,
        ),
        supported(
            "logprobs",
            "of every token of the content, in streams too",
            True,
            lambda reply, ask: len(reply["choices"][0]["logprobs"]["content"]) == 8,
        ),
        supported(
            "top_logprobs",
            "up to 20",
            2,
            lambda reply, ask: len(reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2,
            logprobs=True,
        ),
        accepted("response_format: text", "what it is without it", {"type": "text"}),
        supported(
            "response_format: json_object",
            "the reply is a JSON object",
            {"type": "json_object"},
            lambda reply, ask: text_of(reply).startswith("{"),
        ),
        supported(
            "response_format: json_schema",
            "the reply fits the schema",
            {"type": "json_schema", "json_schema": {"name": "unit", "schema": UNIT, "strict": True}},
            lambda reply, ask: is_unit(json.loads(text_of(reply))),
            **_THINKS,
        ),
        supported(
            "tools: function",
            "calls fit the schemas of the functions",
            FUNCTIONS,
            lambda reply, ask: (
                len(calls_of(reply)) > 0 and all(is_unit(given) for _, given in calls_of(reply))
            ),
            **_THINKS,
            tool_choice="required",
            **_ONE_CALL,
        ),
        refused("tools: custom", "", [{"type": "custom", "custom": {"name": "shell"}}]),
        supported("tool_choice: none", "the prompt has no tools", "none", reads_less(**_CALLS), **_CALLS),
        accepted(
            "tool_choice: auto",
            "what it is without it: text, calls, or both",
            "auto",
            model="chat",
            tools=FUNCTIONS,
        ),
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
            {"type": "function", "function": {"name": "weigh"}},
            lambda reply, ask: [name for name, _ in calls_of(reply)] == ["weigh"],
            **_CALLS,
        ),
        supported(
            "tool_choice: allowed_tools",
            "only these tools are called; the prompt has all of them",
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "weigh"}}],
                },
            },
            lambda reply, ask: {name for name, _ in calls_of(reply)} == {"weigh"},
            **_CALLS,
            **_ONE_CALL,
        ),
        refused("tool_choice: custom", "", {"type": "custom", "custom": {"name": "shell"}}),
        supported(
            "parallel_tool_calls",
            "false: a reply ends after its first call",
            False,
            lambda reply, ask: len(calls_of(reply)) == 1,
            **_CALLS,
            tool_choice="required",
        ),
        supported(
            "reasoning_effort: none", "no thoughts", "none", without_thoughts(model="chat"), model="chat"
        ),
        supported(
            "reasoning_effort: others",
            "a variable of templates that know it",
            "low",
            reads_more(model=NAME),
            model=NAME,
        ),
        supported(
            "reasoning_budget",
            "not OpenAI's; the most tokens of thoughts",
            1,
            lambda reply, ask: len(thoughts_of(reply)) < len(thoughts_of(ask(model="chat", max_tokens=40))),
            model="chat",
            max_tokens=40,
        ),
        supported(
            "chat_template_kwargs",
            "not OpenAI's; variables of the template",
            {"enable_thinking": False},
            without_thoughts(model="chat"),
            model="chat",
        ),
        accepted("modalities: text", "what it is without it", ["text"]),
        refused("modalities: audio", "", ["text", "audio"]),
        accepted("verbosity: medium", "what it is without it", "medium"),
        refused("verbosity: low, high", "no model here is told", "low"),
        *IGNORED,
        refused("audio", "", {"voice": "alloy", "format": "wav"}),
        refused("functions", "`tools` replaced it", []),
        refused("function_call", "`tool_choice` replaced it", "none"),
        refused("moderation", "", {"model": "omni-moderation-latest"}),
        refused("web_search_options", "", {}),
    ),
)
