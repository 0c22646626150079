"""Random replies: how they are divided does not matter, nothing is lost, and messages survive the way."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyturbo.text.dialects import Message, Text, ToolCallBegin, ToolCallEnd
from text.dialects.replies import (
    DIALECTS,
    PLAIN,
    SOUPS,
    TOOLS,
    cut,
    everything,
    messages,
    parts_of,
)

PLACES = st.lists(st.integers(0, 400), max_size=12)
PROMPTS = st.sampled_from(
    ["", "<think>\n", "<|start|>assistant", "<|start|>assistant<|channel|>final<|message|>"]
)


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=80, deadline=None)
@given(soup=SOUPS, places=PLACES, with_tools=st.booleans(), prompt=PROMPTS)
def test_any_text_divided_anywhere_has_the_same_parts(
    name: str, soup: str, places: list[int], with_tools: bool, prompt: str
) -> None:
    dialect, tools = DIALECTS[name], TOOLS if with_tools else None
    whole = parts_of(dialect, [soup], tools=tools, prompt=prompt)
    assert parts_of(dialect, cut(soup, places), tools=tools, prompt=prompt) == whole
    assert parts_of(dialect, list(soup), tools=tools, prompt=prompt) == whole


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=80, deadline=None)
@given(soup=SOUPS, places=PLACES, prompt=PROMPTS)
def test_text_says_where_it_stands(name: str, soup: str, places: list[int], prompt: str) -> None:
    parser = DIALECTS[name].parser(TOOLS, prompt)
    parts = [part for piece in cut(soup, places) for part in parser.add(piece)] + parser.finish()
    last = 0
    for part in parts:
        if isinstance(part, Text):
            begin, end = part.span
            assert last <= begin < end
            assert part.text in (soup[begin:end], f"\n\n{soup[begin:end]}")
            last = end


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=80, deadline=None)
@given(soup=SOUPS)
def test_nothing_is_lost(name: str, soup: str) -> None:
    """Letters that no marker has arrive, in order, wherever they stand."""
    dialect = DIALECTS[name]
    foreign = "".join(c for c in soup if not c.isascii() and c not in "\uff5c\u2581")
    arrived = everything(parts_of(dialect, [soup], tools=TOOLS))
    assert "".join(c for c in arrived if not c.isascii() and c not in "\uff5c\u2581") == foreign


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=60, deadline=None)
@given(text=st.text(st.sampled_from('aZ <>|/_{}[]"\\:\n日')))
def test_text_without_markers_is_unchanged(name: str, text: str) -> None:
    assert everything(parts_of(DIALECTS[name], list(text), tools=TOOLS)) == text


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), places=PLACES)
def test_what_is_composed_is_parsed(name: str, data: st.DataObject, places: list[int]) -> None:
    dialect, message = DIALECTS[name], data.draw(messages(name))
    text = dialect.compose(message, TOOLS)
    parser = dialect.parser(TOOLS)
    for piece in cut(text, places):
        parser.add(piece)
    parser.finish()
    found = parser.message
    assert (found.content, found.reasoning) == (message.content, message.reasoning)
    assert [(call.name, json.loads(call.arguments)) for call in found.tool_calls] == [
        (call.name, json.loads(call.arguments)) for call in message.tool_calls
    ]
    assert all(call.complete for call in found.tool_calls)
    whole = parts_of(dialect, [text], tools=TOOLS)
    assert parts_of(dialect, list(text), tools=TOOLS) == whole
    assert parts_of(dialect, cut(text, places), tools=TOOLS) == whole


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), length=st.integers(0, 300))
def test_a_call_that_is_cut_off_is_not_complete(name: str, data: st.DataObject, length: int) -> None:
    """Calls come in threes: begin, arguments, end. A complete one has arguments that are an object."""
    dialect, message = DIALECTS[name], data.draw(messages(name))
    text = dialect.compose(message, TOOLS)[:length]
    parts = parts_of(dialect, [text], tools=TOOLS)
    begun = [part.index for part in parts if isinstance(part, ToolCallBegin)]
    ended = [part.index for part in parts if isinstance(part, ToolCallEnd)]
    assert begun == ended == list(range(len(begun)))
    found = dialect.parse(text, TOOLS)
    assert len(found.tool_calls) == len(begun)
    for call, whole in zip(found.tool_calls, message.tool_calls):
        assert call.name == whole.name
        if call.complete:
            assert json.loads(call.arguments) == json.loads(whole.arguments)
        else:
            with pytest.raises(ValueError, match="JSON object of arguments"):
                call.values()


@given(PLAIN)
def test_a_message_without_anything_is_empty(text: str) -> None:
    assert DIALECTS["plain"].parse(text) == Message(text)
