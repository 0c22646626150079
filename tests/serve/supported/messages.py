"""POST /v1/messages and POST /v1/messages/count_tokens."""

from __future__ import annotations

import json
from typing import Any

from serve.supported.rows import (
    Api,
    Row,
    calls_of,
    changes,
    ignored,
    refused,
    same_as,
    supported,
    text_of,
    thoughts_of,
    tokens_of,
)
from serve.supported.tools import BLOCKS, UNIT, is_unit

_QUIET: dict[str, Any] = {"thinking": {"type": "disabled"}}
_THINKS: dict[str, Any] = {"model": "chat", "temperature": 1.0, "max_tokens": 400}
_CALLS = {**_THINKS, **_QUIET, "tools": BLOCKS}
_ASKED = {"role": "user", "content": "Once upon a time"}
_USE = {"type": "tool_use", "id": "c1", "name": "measure", "input": {}}
_RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "sunny", "is_error": False}
_THOUGHT = {"type": "thinking", "thinking": "A thought of some length.", "signature": ""}
_CLEAR = {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}]}


def _prompt(count: Any) -> tuple[Row, ...]:
    """Return the fields that make a prompt; `count` finds its tokens in a reply."""
    return (
        supported(
            "messages: text",
            "blocks of text, of the roles user, assistant and system",
            [_ASKED, {"role": "assistant", "content": [{"type": "text", "text": "there was"}]}, _ASKED],
            lambda reply, ask: count(reply) > count(ask()),
        ),
        supported(
            "messages: tool_use, tool_result",
            "calls and their results",
            [_ASKED, {"role": "assistant", "content": [_USE]}, {"role": "user", "content": [_RESULT]}],
            lambda reply, ask: count(reply) > count(ask(model="chat", tools=BLOCKS)),
            model="chat",
            tools=BLOCKS,
        ),
        supported(
            "messages: thinking",
            "thoughts; the template says which are read. `redacted_thinking` is left out",
            [
                _ASKED,
                {"role": "assistant", "content": [_THOUGHT, _USE]},
                {"role": "user", "content": [_RESULT]},
            ],
            lambda reply, ask: count(reply) > count(ask(model="chat", tools=BLOCKS)),
            model="chat",
            tools=BLOCKS,
        ),
        refused(
            "messages: images, documents",
            "only text is read",
            [{"role": "user", "content": [{"type": "image"}]}],
        ),
        supported(
            "system",
            "text, or blocks of text",
            [{"type": "text", "text": "Once.", "cache_control": {"type": "ephemeral"}}],
            lambda reply, ask: count(reply) > count(ask()),
        ),
        supported(
            "tools: custom",
            "with `name`, `description` and `input_schema`",
            BLOCKS,
            lambda reply, ask: count(reply) > count(ask(model="chat")),
            model="chat",
        ),
        refused(
            "tools: others", "a server would run them itself", [{"type": "web_search_20250305", "name": "a"}]
        ),
        supported(
            "context_management: clear_thinking_20251015",
            "leaves thoughts of earlier turns out, whatever the template does with them",
            _CLEAR,
            lambda reply, ask: count(reply) == count(ask()),
        ),
        refused(
            "context_management: others",
            "a context is never shortened",
            {"edits": [{"type": "clear_tool_uses_20250919"}]},
        ),
    )


#: Fields that change no reply here.
_IGNORED = (
    ignored("cache_control", "known prompts are found without it", {"type": "ephemeral"}),
    ignored("metadata", "", {"user_id": "somebody"}),
    ignored("service_tier", "", "auto"),
    ignored("speed", "", "standard"),
    ignored("user_profile_id", "", "somebody"),
    ignored("workspace_id", "", "here"),
)

MESSAGES = Api(
    "/v1/messages",
    {"model": "stories", "messages": [_ASKED], "max_tokens": 16, "temperature": 0},
    (
        supported("model", "", "stories", lambda reply, ask: reply["model"] == "stories"),
        supported(
            "max_tokens", "the longest reply; the server may allow less", 3, lambda r, ask: tokens_of(r) == 3
        ),
        *_prompt(lambda reply: reply["usage"]["input_tokens"] + reply["usage"]["cache_read_input_tokens"]),
        supported("stream", "events", True, lambda reply, ask: text_of(reply) == text_of(ask())),
        supported("temperature", "0 takes the likeliest token", 5.0, changes()),
        supported("top_p", "", 1e-9, same_as(), temperature=5.0),
        supported("top_k", "", 1, same_as(), temperature=5.0),
        supported(
            "stop_sequences",
            "up to 64, each of at most 256 characters",
            ["little"],
            lambda reply, ask: (
                reply["stop_sequence"] == "little" and text_of(reply) == text_of(ask()).partition("little")[0]
            ),
        ),
        supported(
            "tool_choice: auto",
            "",
            {"type": "auto"},
            lambda reply, ask: reply["role"] == "assistant",
            **_CALLS,
        ),
        supported(
            "tool_choice: none", "", {"type": "none"}, lambda reply, ask: calls_of(reply) == [], **_CALLS
        ),
        supported(
            "tool_choice: any",
            "at least one call",
            {"type": "any"},
            lambda reply, ask: calls_of(reply) != [] and all(is_unit(given) for _, given in calls_of(reply)),
            **_CALLS,
        ),
        supported(
            "tool_choice: tool",
            "one call of this tool",
            {"type": "tool", "name": "weigh"},
            lambda reply, ask: [name for name, _ in calls_of(reply)] == ["weigh"],
            **_CALLS,
        ),
        supported(
            "tool_choice.disable_parallel_tool_use",
            "a reply ends after its first call",
            {"type": "any", "disable_parallel_tool_use": True},
            lambda reply, ask: len(calls_of(reply)) == 1,
            **_CALLS,
        ),
        supported(
            "thinking: enabled",
            "with `budget_tokens` of thoughts at most",
            {"type": "enabled", "budget_tokens": 2},
            lambda reply, ask: (
                0 < len(thoughts_of(reply)) < len(thoughts_of(ask(model="chat", max_tokens=40)))
            ),
            model="chat",
            max_tokens=40,
        ),
        supported(
            "thinking: disabled",
            "no thoughts",
            {"type": "disabled"},
            lambda reply, ask: thoughts_of(reply) == "",
            model="chat",
        ),
        supported(
            "thinking: adaptive",
            "the template decides",
            {"type": "adaptive"},
            lambda reply, ask: thoughts_of(reply) != "",
            model="chat",
        ),
        supported(
            "output_config.format",
            "the reply fits the schema",
            {"format": {"type": "json_schema", "schema": UNIT}},
            lambda reply, ask: is_unit(json.loads(text_of(reply))),
            **_THINKS,
            **_QUIET,
        ),
        supported(
            "output_config.effort",
            "a variable of the template",
            {"effort": "low"},
            lambda reply, ask: thoughts_of(reply) != "",
            model="chat",
        ),
        *_IGNORED,
        refused("container", "", "c"),
        refused("inference_geo", "", "us"),
        refused("mcp_servers", "", []),
    ),
)

COUNT_TOKENS = Api(
    "/v1/messages/count_tokens",
    {"model": "stories", "messages": [_ASKED]},
    (
        supported("model", "", "chat", lambda reply, ask: reply != ask()),
        *_prompt(lambda reply: reply["input_tokens"]),
        supported("tool_choice", "", {"type": "auto"}, lambda reply, ask: reply == ask()),
        supported(
            "thinking",
            "a variable of templates that know it",
            {"type": "adaptive"},
            lambda reply, ask: reply == ask(model="chat"),
            model="chat",
        ),
        supported(
            "output_config",
            "",
            {"effort": "low"},
            lambda reply, ask: reply == ask(model="chat"),
            model="chat",
        ),
        *_IGNORED,
    ),
)
