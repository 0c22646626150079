"""Chat templates, against what transformers renders (tests/oracle/make_chat_goldens.py)."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pyturbo.errors import ArgumentError, FormatError
from pyturbo.text import Tokenizer, chat
from pyturbo.text.chat_template import ChatTemplate
from pyturbo.text.special_texts import SpecialTexts
from text.templates import CASES, LONG, NAMED_TOKENS, SHORT, TEMPLATES
from text.vocabularies import byte_level, byte_level_gguf, huggingface, sentencepiece_gguf

GOLDENS = json.loads((Path(__file__).parents[1] / "goldens" / "chats.json").read_text(encoding="utf-8"))


def render(template: str, messages: list[dict[str, Any]] = SHORT, **variables: Any) -> str:
    return chat.render(ChatTemplate(template, NAMED_TOKENS), SpecialTexts(()), messages, True, variables)


@pytest.mark.parametrize("name", CASES)
def test_prompts_are_those_of_transformers(name: str) -> None:
    template, messages, generate, variables = CASES[name]
    text = ChatTemplate(TEMPLATES[template], NAMED_TOKENS).render(messages, generate, variables)
    assert text == GOLDENS[name]


def test_tokens_have_the_names_of_the_settings(tmp_path: Path) -> None:
    template = "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token }}"
    tokenizer = Tokenizer(sentencepiece_gguf(chat_template=template))
    assert tokenizer.chat(SHORT) == "<s>|</s>||<unk>"
    settings = {"bos_token": {"content": "<b>"}, "eos_token": "<e>", "pad_token": None, "add_bos_token": True}
    source = huggingface(byte_level(), tmp_path, settings=settings, chat_template=template)
    assert Tokenizer(source).chat(SHORT) == "<b>|<e>||"


def test_a_rendered_chat_becomes_special_tokens() -> None:
    tokenizer = Tokenizer(byte_level_gguf(chat_template=TEMPLATES["chatml"]))
    prompt = tokenizer.chat(LONG)
    ids = tokenizer.encode(prompt, special=False)
    assert ids.count(tokenizer.encode("<|im_start|>")[0]) == len(LONG) + 1
    assert tokenizer.decode(ids, skip_special=False) == prompt
    assert tokenizer.chat(LONG, generate=False) + "<|im_start|>assistant\n" == prompt


def test_the_day_is_known() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", render("{{ strftime_now('%Y-%m-%d') }}"))
    assert render("{{ strftime_now('%Y') }}") in (str(datetime.now().year), str(datetime.now().year - 1))


def test_json_is_written_as_it_is() -> None:
    value = {"b": "<é>", "a": [1, None]}
    assert render("{{ v | tojson }}", v=value) == '{"b": "<é>", "a": [1, null]}'
    assert render("{{ v | tojson(sort_keys=true, separators=(',', ':'), ensure_ascii=true) }}", v=value) == (
        '{"a":[1,null],"b":"<\\u00e9>"}'
    )


def test_a_template_that_raises_is_an_argument_error() -> None:
    message = 'The first message must not be from the assistant, "</s>"'
    with pytest.raises(ArgumentError, match=f"chat: the template refuses: {message}"):
        render(TEMPLATES["llama3"], [{"role": "assistant", "content": "x"}])
    for template in ("{{ nobody.name }}", "{{ 1 / 0 }}", "{{ messages[9].role }}", "{{ 'a' + 1 }}"):
        with pytest.raises(ArgumentError, match="chat: the template refuses: "):
            render(template)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
    ],
)
def test_templates_are_confined(template: str) -> None:
    with pytest.raises(ArgumentError, match="unsafe|undefined|Range too big"):
        render(template)


def test_a_broken_template_is_a_format_error() -> None:
    tokenizer = Tokenizer(byte_level_gguf(chat_template="{% if %}"))
    with pytest.raises(FormatError, match="chat_template: not a template: "):
        tokenizer.chat(SHORT)


def test_no_template_is_said_so() -> None:
    with pytest.raises(ArgumentError, match="chat: the checkpoint has no chat template"):
        Tokenizer(byte_level_gguf()).chat(SHORT)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("Hi", "chat: messages: expected a list of messages, got 'Hi'"),
        ({"role": "user"}, "chat: messages: expected a list of messages, got an object"),
        (["Hi"], r"chat: messages\[0\]: expected a mapping with role and content, got 'Hi'"),
        ([*SHORT, {"content": "x"}], r"chat: messages\[1\]: role: expected text, got None"),
        ([{"role": 1, "content": "x"}], r"chat: messages\[0\]: role: expected text, got 1"),
        ([{"role": "user"}], r"chat: messages\[0\]: content: expected text or a list of parts, got None"),
        ([{"role": "user", "content": 3}], r"chat: messages\[0\]: content: expected text or a list of parts"),
    ],
)
def test_messages_are_checked(messages: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        render("", messages)


def test_variables_do_not_hide_arguments() -> None:
    with pytest.raises(ArgumentError, match="chat: add_generation_prompt: expected the argument generate"):
        render("", add_generation_prompt=True)
    tokenizer = Tokenizer(byte_level_gguf(chat_template="{{ messages[0].content }}"))
    with pytest.raises(ArgumentError, match="chat: messages: expected one list of messages, got a second"):
        tokenizer.chat(SHORT, messages=3)
    assert tokenizer.chat(messages=SHORT) == tokenizer.chat(SHORT)
    with pytest.raises(ArgumentError, match="chat: messages: expected a list of messages, got None"):
        tokenizer.chat()


def test_an_error_without_text_is_named() -> None:
    with pytest.raises(ArgumentError, match="chat: the template refuses: TemplateError$"):
        render("{{ raise_exception('') }}")
