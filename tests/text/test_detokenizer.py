"""Text token by token, against the text of all tokens and against the `tokenizers` package."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyturbo.errors import ArgumentError
from pyturbo.text import Tokenizer
from text.vocabularies import (
    byte_level,
    byte_level_gguf,
    huggingface,
    sentencepiece,
    sentencepiece_gguf,
)

BYTE_LEVEL = Tokenizer(byte_level_gguf())
SENTENCEPIECE = Tokenizer(sentencepiece_gguf())
FAMILY = "👩‍👩‍👧 and 🎂"


def parts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    detokenizer = tokenizer.detokenizer()
    return [*map(detokenizer.add, ids), detokenizer.finish()]


def ids_of(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    """Any ids, a few of them outside; half of them single bytes, which make and break characters."""
    single = range(3, 259) if tokenizer is SENTENCEPIECE else range(256)
    any_id = st.integers(0, tokenizer.vocab_size + 2)
    return st.lists(st.one_of(any_id, st.sampled_from(single)), max_size=40)


@given(ids_of(BYTE_LEVEL))
def test_byte_level_parts_make_the_text_that_the_package_makes(ids: list[int]) -> None:
    text = "".join(parts(BYTE_LEVEL, ids))
    assert text == BYTE_LEVEL.decode(ids) == byte_level().decode(ids)


@given(ids_of(SENTENCEPIECE))
def test_sentencepiece_parts_make_the_text_of_all_bytes(ids: list[int]) -> None:
    """Where the bytes are UTF-8 it is the text that the package makes."""
    known = [i for i in ids if 3 <= i < SENTENCEPIECE.vocab_size]
    pieces = [sentencepiece().id_to_token(i) for i in known]
    data = b"".join(
        bytes([i - 3]) if i < 259 else piece.replace("▁", " ").encode() for i, piece in zip(known, pieces)
    )
    text = "".join(parts(SENTENCEPIECE, ids))
    assert text == SENTENCEPIECE.decode(ids) == data.removeprefix(b" ").decode("utf-8", "replace")
    if "\ufffd" not in text:
        assert text == sentencepiece().decode(ids)


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE], ids=["byte_level", "sentencepiece"])
@given(st.text(max_size=20))
def test_every_character_comes_whole_and_as_soon_as_it_can(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(FAMILY + text, special=False)
    shown = parts(tokenizer, ids)
    assert "".join(shown) == FAMILY + text
    for count in range(len(ids)):
        data = tokenizer.decode(ids[:count]).rstrip("\ufffd")
        assert "".join(shown[:count]).rstrip("\ufffd") == data


def test_a_character_that_never_ends_is_replaced_once() -> None:
    cake = [3 + byte for byte in "🎂".encode()]
    assert parts(SENTENCEPIECE, cake) == ["", "", "", "🎂", ""]
    assert parts(SENTENCEPIECE, cake[:3]) == ["", "", "", "\ufffd"]
    assert parts(SENTENCEPIECE, [*cake[:2], 3 + ord("a")]) == ["", "", "\ufffda", ""]


def test_only_the_first_space_of_a_text_is_dropped() -> None:
    hello = SENTENCEPIECE.encode("the", special=False)
    assert SENTENCEPIECE.decode(hello + hello) == "the the"
    assert SENTENCEPIECE.decode([1, *hello]) == "the"
    space = 3 + ord(" ")
    assert parts(SENTENCEPIECE, [space, space]) == ["", " ", ""]


def test_what_is_held_does_not_grow() -> None:
    detokenizer = BYTE_LEVEL.detokenizer()
    ids = BYTE_LEVEL.encode(FAMILY)
    for i in ids:
        detokenizer.add(i)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(500):
            for i in ids:
                detokenizer.add(i)
        assert tracemalloc.get_traced_memory()[0] - before < 2000
    finally:
        tracemalloc.stop()


def test_what_is_no_token_id_is_named(tmp_path: Path) -> None:
    tokenizer = Tokenizer(huggingface(byte_level(), tmp_path))
    wrong: Any
    ids: Any
    for ids in (["x"], [None], [1.5], [[1]]):
        for decode in (tokenizer.decode, tokenizer.decode_chat):
            with pytest.raises(ArgumentError, match="ids: expected an integer, got "):
                decode(ids)
    for ids in (5, None):
        with pytest.raises(ArgumentError, match=f"decode: ids: expected a list of token ids, got {ids}"):
            tokenizer.decode(ids)
        with pytest.raises(ArgumentError, match=f"decode_chat: ids: expected a list of token ids, got {ids}"):
            tokenizer.decode_chat(ids)
    for wrong in ("x", 1.5, None):
        with pytest.raises(ArgumentError, match="piece: id: expected an integer, got "):
            tokenizer.piece(wrong)
        with pytest.raises(ArgumentError, match="token: expected an integer, got "):
            tokenizer.detokenizer().add(wrong)
    assert tokenizer.decode(np.array(tokenizer.encode("Hi"))) == "Hi"
    assert tokenizer.piece(-1) == tokenizer.decode([10**30, -5]) == ""
