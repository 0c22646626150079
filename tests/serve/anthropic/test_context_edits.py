"""Thoughts that a request leaves out of its own messages."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from pydantic import ValidationError

from live_server import LiveServer
from pyturbo.serve.anthropic.context_edits import ContextManagement

from ..conftest import KEY, Script

ASK = {"role": "user", "content": "Why?"}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}


def thought(text: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": text}, {"type": "text", "text": "So."}],
    }


def thoughts(messages: list[dict[str, Any]]) -> list[str]:
    blocks = [
        block for message in messages if isinstance(message["content"], list) for block in message["content"]
    ]
    return [block["thinking"] for block in blocks if block["type"] == "thinking"]


#: Three turns: the second has a call between its thoughts, and the third, under way, has none.
SAID = [
    ASK,
    thought("a"),
    ASK,
    thought("b"),
    RESULT,
    thought("c"),
    ASK,
    {"role": "assistant", "content": "Yes."},
    ASK,
]


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        ({}, ["b", "c"]),
        ({"keep": "all"}, ["a", "b", "c"]),
        ({"keep": {"type": "thinking_turns", "value": 1}}, ["b", "c"]),
        ({"keep": {"type": "thinking_turns", "value": 2}}, ["a", "b", "c"]),
    ],
)
def test_the_last_turns_with_thoughts_are_kept(keep: dict[str, Any], left: list[str]) -> None:
    edits = ContextManagement.model_validate({"edits": [{"type": "clear_thinking_20251015", **keep}]})
    made = edits.applied(SAID)
    assert thoughts(made) == left
    assert [message["role"] for message in made] == [message["role"] for message in SAID]
    assert thoughts(SAID) == ["a", "b", "c"]


def test_thoughts_are_left_out_once() -> None:
    edit = {"type": "clear_thinking_20251015", "keep": "all"}
    with pytest.raises(ValidationError, match="at most 1 item"):
        ContextManagement.model_validate({"edits": [edit, edit]})


def test_a_client_sends_edits(live: LiveServer, script: Script) -> None:
    script("</think>\n\nIt rains.")
    edits: Any = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    with anthropic.Anthropic(base_url=live.url, api_key=KEY, max_retries=0) as client:
        asked: dict[str, Any] = {"model": "chat", "max_tokens": 50, "messages": [ASK]}
        reply = client.beta.messages.create(**asked, context_management=edits)
        assert [block.text for block in reply.content if block.type == "text"] == ["It rains."]
        with pytest.raises(anthropic.BadRequestError, match="context_management.edits.0.type"):
            client.beta.messages.create(
                **asked, context_management={"edits": [{"type": "clear_tool_uses_20250919"}]}
            )
