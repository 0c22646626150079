"""How many tokens a text has at least, against how many it has."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Package

from pyturbo.text import ChatText, Tokenizer
from text.vocabularies import (
    CORPUS,
    TEXTS,
    byte_level,
    byte_level_gguf,
    huggingface,
    sentencepiece,
    sentencepiece_gguf,
)

NFC = {"type": "NFC"}


def changed(package: Package, change: Callable[[dict[str, Any]], None]) -> Package:
    """A copy of a tokenizer whose JSON was changed."""
    state = json.loads(package.to_str())
    change(state)
    return Package.from_str(json.dumps(state))


def strips(state: dict[str, Any]) -> None:
    for token in state["added_tokens"]:
        token |= {"lstrip": True, "rstrip": True}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    packages = {
        "byte level": byte_level(),
        "composed": changed(byte_level(), lambda state: state.update(normalizer=NFC)),
        "swallows": changed(byte_level(), strips),
        "sentencepiece": sentencepiece(),
    }
    made = {name: Tokenizer(huggingface(p, tmp_path_factory.mktemp("t"))) for name, p in packages.items()}
    gguf = {"byte level gguf": byte_level_gguf(), "sentencepiece gguf": sentencepiece_gguf()}
    return made | {name: Tokenizer(source) for name, source in gguf.items()}


SCRAPS = st.sampled_from(
    [
        *TEXTS,
        *CORPUS,
        " ",
        "\t",
        "\u3000",
        "\u00a0",
        "a",
        "e\u0301",
        "\u0301",
        "\u212a",
        "각",
        "▁",
        "中文",
        "<s>",
    ]
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.one_of(SCRAPS, st.text(max_size=9)), st.integers(1, 40)), max_size=6))
def test_no_text_has_fewer_tokens(tokenizers: dict[str, Tokenizer], parts: list[tuple[str, int]]) -> None:
    text = "".join(part * count for part, count in parts)
    for name, tokenizer in tokenizers.items():
        for form in (text, unicodedata.normalize("NFD", text), ChatText(text, [len(text) // 2])):
            assert tokenizer.least_tokens(form) <= len(tokenizer.encode(form, False)), name


@pytest.mark.parametrize("text", ["Once upon a time, ", "12 ", "日本語のテキスト、", "\n", "=" * 7])
def test_long_texts_are_known_to_be_long(tokenizers: dict[str, Tokenizer], text: str) -> None:
    for name, tokenizer in tokenizers.items():
        if (name, text) != ("swallows", "\n"):
            assert tokenizer.least_tokens(text * 10_000) > 1000, name


def lacks(byte: str) -> Callable[[dict[str, Any]], None]:
    def change(state: dict[str, Any]) -> None:
        model = state["model"]
        del model["vocab"][byte]
        model["merges"] = [pair for pair in model["merges"] if byte not in "".join(pair)]

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update(normalizer={"type": "Lowercase"}),
        lambda state: state.update(normalizer={"type": "Sequence", "normalizers": [NFC, {"type": "NFKC"}]}),
        lambda state: state["pre_tokenizer"]["pretokenizers"][0].update(behavior="Removed"),
        lambda state: state["pre_tokenizer"]["pretokenizers"].insert(0, {"type": "WhitespaceSplit"}),
        lambda state: state.update(normalizer={"type": "ByteLevel"}),
    ],
    ids=["lower case", "compatible", "removed", "white space", "bytes"],
)
def test_where_text_may_be_lost_nothing_is_known(tmp_path: Path, change: Any) -> None:
    tokenizer = Tokenizer(huggingface(changed(byte_level(), change), tmp_path))
    assert tokenizer.least_tokens("Once upon a time" * 1000) == 0


def test_bytes_without_a_piece_are_lost(tmp_path: Path) -> None:
    tokenizer = Tokenizer(huggingface(changed(byte_level(), lacks("q")), tmp_path))
    assert tokenizer.least_tokens("q" * 1000) == len(tokenizer.encode("q" * 1000)) == 0
    assert 100 < tokenizer.least_tokens("Once upon a quiet time" * 1000) < 3000


def test_unknown_characters_that_are_one_token_together(tmp_path: Path) -> None:
    def change(state: dict[str, Any]) -> None:
        state["model"] |= {"fuse_unk": True, "byte_fallback": False}

    tokenizer = Tokenizer(huggingface(changed(sentencepiece(), change), tmp_path))
    assert tokenizer.least_tokens("☃" * 1000) == 0
    assert len(tokenizer.encode("☃" * 1000)) < 9
