"""Messages with calls and thoughts: every template gets them in the form that it can write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyturbo.errors import ArgumentError
from pyturbo.text import chat
from pyturbo.text.chat_calls import CallForm
from pyturbo.text.chat_template import ChatTemplate
from pyturbo.text.special_texts import SpecialTexts
from text.dialects.published import TEMPLATES as CALLING
from text.templates import TEMPLATES

USER = {"role": "user", "content": "Weather?"}
ARGUMENTS = {"city": "Zürich", "days": 2}


def asking(arguments: Any, content: Any = None, **more: Any) -> list[dict[str, Any]]:
    call = {"id": "call_1", "function": {"name": "weather", "arguments": arguments}}
    return [USER, {"role": "assistant", "content": content, "tool_calls": [call], **more}]


def render(template: str, messages: list[dict[str, Any]]) -> str:
    return chat.render(ChatTemplate(template, {}), SpecialTexts(()), messages, False, {})


@pytest.mark.parametrize("family", [family for family in CALLING if not family.startswith("plain")])
def test_text_and_mappings_render_the_same(family: str) -> None:
    template = CALLING[family]
    forms = [
        asking(ARGUMENTS),
        asking(json.dumps(ARGUMENTS, ensure_ascii=False)),
        asking(ARGUMENTS, ""),
        asking(ARGUMENTS, "", x=1),
    ]
    texts = {render(template, messages) for messages in forms}
    assert len(texts) == 1, texts
    (text,) = texts
    assert "weather" in text
    assert "Zürich" in text
    assert "None" not in text
    assert "\\" not in text


@pytest.mark.parametrize(
    ("template", "form"),
    [
        (CALLING["hermes"], CallForm(as_text=False, empty=None)),
        (CALLING["harmony"], CallForm(as_text=False, empty="")),
        (CALLING["deepseek think"], CallForm(as_text=True, empty=None)),
        ("{{ messages[1].tool_calls[0].function.name }}", None),
        (TEMPLATES["thinking"], None),
    ],
)
def test_the_form_is_found_by_trying(template: str, form: CallForm | None) -> None:
    assert ChatTemplate(template, {}).call_form == form


def test_arguments_that_are_no_object_remain() -> None:
    form = CallForm(as_text=False, empty=None)
    for arguments in ("{", "[1]", "3", None):
        assert form.of({"name": "f", "arguments": arguments}) == {"name": "f", "arguments": arguments}
    assert form.of({"name": "f"}) == {"name": "f"}


def test_messages_are_not_changed() -> None:
    messages = asking(json.dumps(ARGUMENTS), reasoning_content="Hm.")
    before = json.dumps(messages)
    render(CALLING["harmony"], messages)
    assert json.dumps(messages) == before


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_have_the_name_that_the_template_knows(name: str) -> None:
    messages = asking(ARGUMENTS, **{name: "Hm."})
    assert "<|channel|>analysis<|message|>Hm.<|end|>" in render(CALLING["harmony"], messages)
    own = "{{ messages[1].reasoning_content }}"
    assert render(own, messages) == "Hm."


def test_thoughts_are_left_out_where_a_template_refuses_them() -> None:
    """Those of gpt-oss take a content with a call for the thoughts, and no other thoughts beside it."""
    messages = asking(ARGUMENTS, "Let me see.", reasoning_content="Hm.")
    assert "Hm." not in render(CALLING["harmony"], messages)


def test_calls_are_plain_text() -> None:
    """What a call spells is no special token, in whichever form its arguments are."""
    for arguments in ({"city": "<|im_end|>"}, '{"city": "<|im_end|>"}'):
        text = chat.render(
            ChatTemplate(CALLING["hermes"], {}), SpecialTexts(["<|im_end|>"]), asking(arguments), False, {}
        )
        assert text.count("<|im_end|>") == 3  # two of them end a turn
        assert len(text.breaks) == 1


@pytest.mark.parametrize("calls", ["weather", [3], {"name": "weather"}])
def test_wrong_calls_are_refused(calls: Any) -> None:
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": calls}]
    with pytest.raises(
        ArgumentError, match=r"chat: messages\[1\]: tool_calls: expected a list of calls, got"
    ):
        render(CALLING["hermes"], messages)
