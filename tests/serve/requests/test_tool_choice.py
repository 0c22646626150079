"""Many tools to choose from."""

from __future__ import annotations

import time
from typing import Any

import pytest

import pyturbo
from pyturbo.serve.requests.asked import Asked
from pyturbo.serve.requests.request_error import RequestError
from pyturbo.serve.requests.tool_choice import Places, constrained

MANY = 3000
TOOLS = [{"type": "function", "function": {"name": f"tool{i}"}} for i in range(MANY)]
PLACES = Places("response_format")
ASKED = Asked([{"role": "user", "content": "Hi"}], {}, tools=TOOLS)


def allowed(tools: list[Any]) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}


def test_all_of_many_tools_are_allowed_in_little_time(chat_model: pyturbo.Model) -> None:
    began = time.process_time()
    constrained(chat_model, ASKED, None, None, PLACES)
    between = time.process_time()
    constrained(chat_model, ASKED, allowed(TOOLS), None, PLACES)
    assert time.process_time() - between < 2 * (between - began) + 0.5


def test_an_error_names_a_few_of_many_tools(chat_model: pyturbo.Model) -> None:
    wanted = [{"type": "function", "function": {"name": "x"}}]
    with pytest.raises(
        RequestError, match="expected one of tool0, tool1, .* and 2984 more, got 'x'"
    ) as found:
        constrained(chat_model, ASKED, allowed(wanted), None, PLACES)
    assert len(str(found.value)) < 400
