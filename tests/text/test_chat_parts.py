"""Messages whose content is a list of parts, for templates that know parts and for those that know text."""

from __future__ import annotations

from typing import Any

import pytest

from pyturbo.errors import ArgumentError
from pyturbo.text import Tokenizer, chat
from pyturbo.text.chat_template import ChatTemplate
from pyturbo.text.special_texts import SpecialTexts
from text.tiny_chat import TEMPLATE
from text.vocabularies import byte_level_gguf

PARTS = [{"type": "text", "text": "Sure"}, {"type": "text", "text": ", why"}, " not?"]

KNOWING_TEXT = [
    "{% for m in messages %}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{{ '' + m['content'] }}{% endfor %}",
    "{% for m in messages %}{{ m['content'] | trim }}{% endfor %}",
    "{% for m in messages %}{% set content = m.content %}{{ content.split('</think>')[-1] }}{% endfor %}",
    "{% for m in messages %}{% for line in m.content.split('|') %}{{ line }}{% endfor %}{% endfor %}",
    "{% for m in messages %}{% if m.content is mapping or m.content is iterable %}{{ m.content }}{% endif %}"
    "{% endfor %}",
    "{% for t in tools or [] %}{{ t.type }}{% endfor %}{% for d in documents or [] %}{{ d.text }}{% endfor %}"
    "{{ messages[0].content }}",
]
KNOWING_PARTS = [
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{{ part.text if part is mapping else part }}{% endfor %}{% endif %}{% endfor %}",
    "{% for m in messages %}{% set c = m['content'] %}"
    "{% for part in c %}{{ part['text'] or part }}{% endfor %}{% endfor %}",
    "{% macro show(it) %}{% for p in it %}{{ p.text or p }}{% endfor %}{% endmacro %}"
    "{{ show(messages[0].content) }}",
    "{% for p in messages[0].content[:] | list %}{{ p['text'] or p }}{% endfor %}",
]


def render(template: str, content: Any, **more: Any) -> str:
    messages = [{"role": "user", "content": content, **more}]
    return chat.render(ChatTemplate(template, {}), SpecialTexts(["<s>"]), messages, True, {})


@pytest.mark.parametrize("template", KNOWING_TEXT)
def test_text_is_joined_for_templates_that_know_only_text(template: str) -> None:
    assert not ChatTemplate(template, {}).reads_parts
    assert render(template, PARTS) == render(template, tuple(PARTS)) == "Sure, why not?"
    assert render(template, []) == ""


@pytest.mark.parametrize("template", KNOWING_PARTS)
def test_parts_stay_for_templates_that_go_over_them(template: str) -> None:
    assert ChatTemplate(template, {}).reads_parts
    assert render(template, PARTS) == "Sure, why not?"


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0].content[0].text }}",
        "{{ messages[0]['content'][0]['text'] }}",
        "{{ messages[0].content | map(attribute='text') | first }}",
        "{{ (messages[0].content | selectattr('type', 'equalto', 'text') | first).text }}",
    ],
)
def test_single_parts_may_be_looked_at(template: str) -> None:
    assert render(template, PARTS[:2]) == "Sure"


@pytest.mark.parametrize(
    ("part", "got"),
    [
        ({"type": "image", "url": "x"}, "'image'"),
        ({"type": "image_url", "text": "x"}, "'image_url'"),
        ({"type": "text"}, "an object of 1 entries"),
        (3, "3"),
        (["Hi"], r"\['Hi'\]"),
    ],
)
def test_other_parts_are_refused_by_their_type(part: Any, got: str) -> None:
    message = rf"chat: messages\[0\]: content\[1\]: expected a part of type 'text', .*, got {got}$"
    with pytest.raises(ArgumentError, match=message):
        render(KNOWING_TEXT[0], ["Hi", part])


def test_what_parts_spell_together_is_text() -> None:
    text = render(KNOWING_TEXT[0], ["a<", "s>"])
    assert (text, text.breaks) == ("a<s>", (2,))  # type: ignore[attr-defined]


def test_a_reply_in_parts_goes_on() -> None:
    tokenizer = Tokenizer(byte_level_gguf(chat_template=TEMPLATE))
    messages = [{"role": "user", "content": PARTS}, {"role": "assistant", "content": PARTS[:1]}]
    assert tokenizer.chat(messages) == (
        "<|im_start|>user\nSure, why not?<|im_end|>\n<|im_start|>assistant\nSure"
    )
