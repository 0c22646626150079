"""POST /v1/messages and POST /v1/messages/count_tokens."""

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
    thoughts_of,
    tokens_of,
    without_thoughts,
)
from serve.supported.thoughtful import NAME
from serve.supported.tools import BLOCKS, UNIT, is_unit

_QUIET: dict[str, Any] = {"thinking": {"type": "disabled"}}
_THINKS: dict[str, Any] = {"model": "chat", "max_tokens": 400}
_CALLS = {**_THINKS, **_QUIET, "tools": BLOCKS}
_ASKED = {"role": "user", "content": "Once upon a time"}
_USE = {"type": "tool_use", "id": "c1", "name": "measure", "input": {}}
_RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "sunny", "is_error": False}
_THOUGHT = {"type": "thinking", "thinking": "A thought of some length.", "signature": ""}
_CALLED = [_ASKED, {"role": "assistant", "content": [_USE]}, {"role": "user", "content": [_RESULT]}]
_THOUGHT_AND_SAID = {"role": "assistant", "content": [_THOUGHT, {"type": "text", "text": "there was"}]}
_TWO_TURNS = [_ASKED, _THOUGHT_AND_SAID, _ASKED, _THOUGHT_AND_SAID, _ASKED]
_CLEAR = {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}]}


#: The fields that make a prompt.
_PROMPT = (
    supported(
        "messages: text",
        "blocks of text, of the roles user, assistant and system",
        [_ASKED, {"role": "assistant", "content": [{"type": "text", "text": "there was"}]}, _ASKED],
        reads_more(),
    ),
    supported(
        "messages: tool_use, tool_result",
        "calls and their results",
        _CALLED,
        reads_more(model="chat", tools=BLOCKS),
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
        reads_more(model=NAME, tools=BLOCKS, messages=_CALLED),
        model=NAME,
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
        reads_more(),
    ),
    supported(
        "tools: custom",
        "with `name`, `description` and `input_schema`",
        BLOCKS,
        reads_more(model="chat"),
        model="chat",
    ),
    refused(
        "tools: others", "a server would run them itself", [{"type": "web_search_20250305", "name": "a"}]
    ),
    supported(
        "context_management: clear_thinking_20251015",
        "leaves thoughts of earlier turns out, whatever the template does with them",
        _CLEAR,
        reads_less(model=NAME, messages=_TWO_TURNS),
        model=NAME,
        messages=_TWO_TURNS,
    ),
    refused(
        "context_management: others",
        "a context is never shortened",
        {"edits": [{"type": "clear_tool_uses_20250919"}]},
    ),
)


_NO_TOOLS = supported(
    "tool_choice: none",
    "the prompt has no tools",
    {"type": "none"},
    reads_less(model="chat", tools=BLOCKS),
    model="chat",
    tools=BLOCKS,
)
_EFFORT = supported(
    "output_config.effort",
    "a variable of templates that know it",
    {"effort": "low"},
    reads_more(model=NAME),
    model=NAME,
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
        supported("model", "", "chat", by_another_model),
        supported(
            "max_tokens", "the longest reply; the server may allow less", 3, lambda r, ask: tokens_of(r) == 3
        ),
        *_PROMPT,
        supported(
            "stream",
            "events",
            True,
            lambda reply, ask: isinstance(reply, list) and text_of(reply) == text_of(ask()),
        ),
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
        accepted("tool_choice: auto", "what it is without it", {"type": "auto"}, model="chat", tools=BLOCKS),
        _NO_TOOLS,
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
            without_thoughts(model="chat"),
            model="chat",
        ),
        accepted(
            "thinking: adaptive", "the template decides, as without it", {"type": "adaptive"}, model="chat"
        ),
        supported(
            "output_config.format",
            "the reply fits the schema",
            {"format": {"type": "json_schema", "schema": UNIT}},
            lambda reply, ask: is_unit(json.loads(text_of(reply))),
            **_THINKS,
            **_QUIET,
        ),
        _EFFORT,
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
        *_PROMPT,
        _NO_TOOLS,
        supported(
            "thinking",
            "a variable of templates that know it",
            {"type": "disabled"},
            lambda reply, ask: reply != ask(model="chat"),
            model="chat",
        ),
        _EFFORT,
        *_IGNORED,
    ),
)
