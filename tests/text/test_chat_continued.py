"""A last message of the assistant is a reply that goes on."""

from __future__ import annotations

from typing import Any

import pytest

from pyturbo.errors import ArgumentError
from pyturbo.text import Tokenizer
from text.templates import CALLS, TEMPLATES
from text.vocabularies import byte_level_gguf

QUESTION = {"role": "user", "content": "Sum up."}


def continued(template: str, content: Any, **more: Any) -> str:
    tokenizer = Tokenizer(byte_level_gguf(chat_template=template))
    return tokenizer.chat([QUESTION, {"role": "assistant", "content": content, **more}])


@pytest.mark.parametrize("content", ["In short, ", "In short", "", " \n", "<|im_end|>In", "日本"])
def test_a_reply_goes_on_right_after_its_text(content: str) -> None:
    before = "<|im_start|>user\nSum up.<|im_end|>\n<|im_start|>assistant\n"
    text = continued(TEMPLATES["chatml"], content)
    assert text == before + content
    assert continued(TEMPLATES["thinking"], [{"type": "text", "text": content}]) == text
    tokenizer = Tokenizer(byte_level_gguf(chat_template=TEMPLATES["chatml"]))
    reply = tokenizer.encode(tokenizer.chat([QUESTION]), special=False)
    assert tokenizer.encode(text, special=False)[: len(reply)] == reply


def test_a_template_that_trims_replies_trims_this_one() -> None:
    for content in ("  In short, ", "In short,"):
        text = continued(TEMPLATES["llama3"], content)
        assert text.endswith("<|start_header_id|>assistant<|end_header_id|>\n\nIn short,")


def test_without_generate_the_reply_is_closed() -> None:
    tokenizer = Tokenizer(byte_level_gguf(chat_template=TEMPLATES["chatml"]))
    text = tokenizer.chat([QUESTION, {"role": "assistant", "content": "x"}], generate=False)
    assert text.endswith("assistant\nx<|im_end|>\n")


@pytest.mark.parametrize(
    "template", ["", "{{ messages[1].content }}{{ messages[1].content }}", "{{ messages | length }}"]
)
def test_a_template_that_does_not_write_the_reply_once_is_refused(template: str) -> None:
    times = template.count("content")
    with pytest.raises(
        ArgumentError, match=f"expected a template that writes a reply once.*got it {times} times"
    ):
        continued(template, "x")


def test_a_reply_without_text_is_refused() -> None:
    for content in (None, [], [{"type": "image"}], "x"):
        with pytest.raises(ArgumentError, match="the last message: expected text, which the reply continues"):
            continued(TEMPLATES["thinking"], content, tool_calls=CALLS[1]["tool_calls"])
