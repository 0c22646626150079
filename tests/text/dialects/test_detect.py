"""The dialect of a model, from its template and its special tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Vocabulary

from pyturbo.errors import ArgumentError
from pyturbo.text import Tokenizer
from pyturbo.text.dialects import Message, ToolCall, dialect_of
from text.dialects.published import TEMPLATES
from text.dialects.replies import TOOLS
from text.vocabularies import byte_level, byte_level_gguf, huggingface

CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}


@pytest.mark.parametrize("family", TEMPLATES)
def test_the_template_shows_the_dialect(family: str) -> None:
    dialect = dialect_of(TEMPLATES[family])
    assert dialect.name == family.split()[0]
    assert dialect.thinks == ("think" in family)
    assert getattr(dialect, "fenced", False) == ("fenced" in family)


@pytest.mark.parametrize("family", [family for family in TEMPLATES if not family.startswith("plain")])
def test_what_a_template_writes_of_a_call_is_that_call(family: str) -> None:
    """The parser reads the text that the template writes for an earlier reply."""
    tokenizer = Tokenizer(byte_level_gguf(chat_template=TEMPLATES[family]))
    question = {"role": "user", "content": "Weather?"}
    before = tokenizer.chat([question])
    after = tokenizer.chat(
        [question, {"role": "assistant", "content": None, "tool_calls": [CALL]}], generate=False
    )
    assert after.startswith(before.removesuffix("<think>\n"))
    reply = after[len(before.removesuffix("<think>\n")) :]
    found = tokenizer.dialect.parse(reply, TOOLS)
    assert [(call.name, call.values()) for call in found.tool_calls] == [("weather", {"city": "Bern"})]


@pytest.mark.parametrize("family", [family for family in TEMPLATES if family.endswith("opened")])
def test_thoughts_that_the_template_begins(family: str) -> None:
    tokenizer = Tokenizer(byte_level_gguf(chat_template=TEMPLATES[family]))
    prompt = tokenizer.chat([{"role": "user", "content": "Hi"}])
    assert tokenizer.dialect.parse("Hm.\n</think>\n\nYes.", prompt=prompt) == Message("Yes.", "Hm.")
    prompt = tokenizer.chat([{"role": "user", "content": "Hi"}], enable_thinking=False)
    assert tokenizer.dialect.parse("Yes.", prompt=prompt) == Message("Yes.")


def harmony(folder: Path, **settings: str) -> Tokenizer:
    """A tokenizer with the special tokens of gpt-oss."""
    vocabulary = Vocabulary.from_str(byte_level().to_str())
    markers = dialect_of(TEMPLATES["harmony"]).markers
    vocabulary.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    return Tokenizer(huggingface(vocabulary, folder, **settings))


def test_special_tokens_reach_the_parser(tmp_path: Path) -> None:
    tokenizer = harmony(tmp_path, chat_template=TEMPLATES["harmony"])
    dialect = tokenizer.dialect
    assert dialect.special.keys() == set(dialect.markers)
    message = Message("Let me see.", "Hm.", [ToolCall("weather", '{"city": "Bern"}')])
    ids = tokenizer.encode(dialect.compose(message), special=False)
    assert set(dialect.special.values()) & set(ids)
    detokenizer = tokenizer.detokenizer(continues=True, markers=dialect.markers)
    text = "".join(map(detokenizer.add, ids)) + detokenizer.finish()
    found = dialect.parse(text)
    assert (found.content, found.reasoning, found.tool_calls[0].name) == ("Let me see.", "Hm.", "weather")
    assert "<|" not in tokenizer.decode(ids)


def test_without_a_template_special_tokens_show_the_dialect(tmp_path: Path) -> None:
    assert harmony(tmp_path).dialect.name == "harmony"
    assert Tokenizer(byte_level_gguf()).dialect.name == "plain"


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="dialect_of: template: expected text, got 3"):
        dialect_of(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="detokenizer: markers: expected a list of texts, got 'a'"):
        Tokenizer(byte_level_gguf()).detokenizer(markers="a")
