"""Histories of any shape are read as messages that templates take, or refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyturbo.serve.anthropic import history
from pyturbo.serve.openai import items
from pyturbo.serve.requests.request_error import RequestError
from pyturbo.text.chat import check

#: Values of each field that are right in some place, and wrong in others.
WORDS = st.sampled_from(
    [
        *(
            "user",
            "assistant",
            "system",
            "developer",
            "text",
            "tool_use",
            "tool_result",
            "thinking",
            "message",
        ),
        *(
            "redacted_thinking",
            "function_call",
            "function_call_output",
            "reasoning",
            "reasoning_text",
            "image",
        ),
        *("input_text", "output_text", "custom", "function", "c1", ""),
    ]
)
NAMES = (
    *("type", "role", "content", "text", "id", "name", "input", "tool_use_id", "is_error", "thinking"),
    *("call_id", "arguments", "output", "summary", "input_schema", "parameters", "description"),
)
ODD = st.sampled_from(
    [None, True, 2, [], {}, [""], [{"type": "text", "text": ""}], [{"type": []}], {"type": 1}]
)
ITEMS = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, WORDS | ODD))
NESTED = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(NAMES, WORDS | ODD) | {"content": WORDS | ODD | st.lists(ITEMS, max_size=2)}
)
MAPPINGS = st.lists(NESTED, max_size=3)
TEXTS = st.none() | WORDS


@pytest.mark.parametrize("reader", [history, items], ids=["anthropic", "openai"])
@given(TEXTS, MAPPINGS)
def test_any_history_is_read_or_refused(reader: Any, system: str | None, said: list[dict[str, Any]]) -> None:
    with suppress(RequestError):
        messages = reader.messages_of(system, said)
        check(messages, {})


@pytest.mark.parametrize("reader", [history, items], ids=["anthropic", "openai"])
@given(MAPPINGS)
def test_any_tools_are_read_or_refused(reader: Any, tools: list[dict[str, Any]]) -> None:
    with suppress(RequestError):
        assert all(isinstance(tool["function"]["name"], str) for tool in reader.tools_of(tools) or ())
