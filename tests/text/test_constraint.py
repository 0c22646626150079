"""Constraints over every kind of vocabulary. Texts are checked by Python's own `re` and `json`, not by the
package that computes the masks: a mask may allow less than the text, where it spells a forced text with the
tokens of the tokenizer, but never more, and never nothing.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyturbo
import smollm2
from pyturbo.checkpoint import open_checkpoint
from pyturbo.errors import ArgumentError, StateError
from pyturbo.text import Tokenizer
from pyturbo.text.constraint import Constraint
from pyturbo.text.grammar_tokens import GrammarTokens
from text.vocabularies import byte_level, byte_level_gguf, huggingface, sentencepiece, sentencepiece_gguf

EXTRA = 5  # logits that no token of the vocabulary has


def _smollm2() -> Tokenizer:
    path = smollm2.model_path()
    assert path is not None
    with open_checkpoint(path) as checkpoint:
        return Tokenizer(checkpoint.tokenizer)


@pytest.fixture(
    scope="module",
    params=["byte level", "byte level gguf", "sentencepiece", "sentencepiece gguf", "bundled", "smollm2"],
)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    end = byte_level().token_to_id("<|im_end|>")
    return {
        "byte level": lambda: Tokenizer(huggingface(byte_level(), folder, eos_ids=(end, end - 1))),
        "byte level gguf": lambda: Tokenizer(byte_level_gguf()),
        "sentencepiece": lambda: Tokenizer(huggingface(sentencepiece(), folder, eos_ids=(2,))),
        "sentencepiece gguf": lambda: Tokenizer(sentencepiece_gguf()),
        "bundled": lambda: pyturbo.load().tokenizer,
        "smollm2": _smollm2,
    }[request.param]()


def make(tokenizer: Tokenizer, **given: Any) -> Constraint:
    return tokenizer.constraint(**given, vocab=tokenizer.vocab_size + EXTRA)


def allowed(constraint: Constraint) -> list[int]:
    bits = np.unpackbits(constraint.mask().view(np.uint8), bitorder="little")
    return [int(token) for token in np.flatnonzero(bits)]


def spelled(tokenizer: Tokenizer, tokens: list[int]) -> bytes:
    """The bytes of tokens, by the detokenizer one token at a time where it shows whole characters."""
    return b"".join(tokenizer._vocabulary.utf8(token) for token in tokens)


def walk(
    tokenizer: Tokenizer, constraint: Constraint, rng: np.random.Generator, most: int = 300
) -> list[int]:
    """Take allowed tokens at random until an end of the reply is drawn, or nothing else can follow."""
    tokens: list[int] = []
    while not constraint.ended and len(tokens) < most:
        choice = allowed(constraint)
        assert choice
        assert max(choice) < tokenizer.vocab_size
        ends = [token for token in choice if token in tokenizer.eos_ids]
        assert ends in ([], sorted(tokenizer.eos_ids))
        if ends and rng.random() < 0.3:
            return tokens
        choice = [token for token in choice if token not in tokenizer.eos_ids]
        if not choice:
            return tokens
        tokens.append(int(rng.choice(choice)))
        constraint.accept(tokens[-1])
    return tokens


@pytest.mark.parametrize(
    "regex",
    [
        r"yes|no",
        r"(Once|One) upon a [a-z]{1,5}\.?",
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
        r"(日本|中文|🎂){1,3}",
        r'"[^"\\]{0,9}"',
        r"<\|im_end\|> is text",
        r" ?x{2,9} ",
    ],
)
def test_texts_match_the_regular_expression(tokenizer: Tokenizer, regex: str) -> None:
    rng = np.random.default_rng(5)
    first = make(tokenizer, regex=regex)
    for _ in range(12):
        tokens = walk(tokenizer, first.copy(), rng)
        text = spelled(tokenizer, tokens).decode("utf-8")
        assert re.fullmatch(regex, text), text
        assert not any(tokenizer._vocabulary.is_special(token) for token in tokens)


LANGUAGE = ("a", "ab", "abb", "Lily", "Lily and Tim", "日", "日本", "3.5")


def test_the_end_is_allowed_exactly_where_the_text_may_end(tokenizer: Tokenizer) -> None:
    """Every allowed token begins or continues one of the texts, and every text can be spelled."""
    texts = [text.encode("utf-8") for text in LANGUAGE]
    first = make(tokenizer, regex="|".join(map(re.escape, LANGUAGE)))
    reached = set()
    states = [(first, b"")]
    while states:
        constraint, text = states.pop()
        choice = allowed(constraint)
        assert bool(set(choice) & set(tokenizer.eos_ids)) == (text in texts)
        assert constraint.ended == (
            text in texts and not any(t.startswith(text) and t != text for t in texts)
        )
        reached |= {text} & set(texts)
        for token in choice:
            if token not in tokenizer.eos_ids:
                longer = text + spelled(tokenizer, [token])
                assert any(t.startswith(longer) for t in texts)
                assert len(longer) > len(text)
                after = constraint.copy()
                after.accept(token)
                states.append((after, longer))
    assert reached == set(texts)


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["cat", "dog", None]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("form", ["mapping", "text"])
def test_texts_fit_the_schema(tokenizer: Tokenizer, form: str) -> None:
    rng = np.random.default_rng(6)
    first = make(tokenizer, schema=SCHEMA if form == "mapping" else json.dumps(SCHEMA))
    for _ in range(8):
        found = json.loads(spelled(tokenizer, walk(tokenizer, first.copy(), rng)))
        assert list(found)[:3] == ["name", "age", "kind"]
        assert set(found) <= set(SCHEMA["properties"])
        assert isinstance(found["name"], str)
        assert len(found["name"]) <= 8
        assert type(found["age"]) is int
        assert 0 <= found["age"] <= 150
        assert found["kind"] in ("cat", "dog", None)
        tags = found.get("tags", [True])
        assert 1 <= len(tags) <= 3
        assert all(type(tag) is bool for tag in tags)


def test_white_space_in_json_has_an_end(tokenizer: Tokenizer) -> None:
    constraint = make(tokenizer, schema={"type": "array", "items": {"type": "integer"}})
    for token in tokenizer._vocabulary.encode("[", special=False)[-1:]:
        constraint.accept(token)
    blanks = [i for i in range(tokenizer.vocab_size) if spelled(tokenizer, [i]).strip(b" \n\t\r") == b""]
    count = 0
    while choice := set(allowed(constraint)) & set(blanks) - {
        i for i in blanks if not spelled(tokenizer, [i])
    }:
        constraint.accept(max(choice))
        count += 1
        assert count < 30


def test_texts_fit_the_grammar(tokenizer: Tokenizer) -> None:
    """Sums with balanced brackets: no regular expression describes them."""
    grammar = 'start: sum\nsum: term ("+" term)*\nterm: NUMBER | "(" sum ")"\nNUMBER: /[1-9][0-9]?/'
    rng = np.random.default_rng(7)
    first = make(tokenizer, grammar=grammar)
    complete = 0
    for _ in range(12):
        constraint = first.copy()
        text = spelled(tokenizer, walk(tokenizer, constraint, rng, most=60)).decode()
        assert re.fullmatch(r"[0-9+()]*", text)
        depth = text.count("(") - text.count(")")
        assert depth >= 0
        if set(allowed(constraint)) & set(tokenizer.eos_ids):
            complete += 1
            assert depth == 0
            assert eval(text) > 0
    assert complete > 3


def test_a_grammar_names_special_tokens() -> None:
    tokenizer = Tokenizer(byte_level_gguf())
    constraint = make(tokenizer, grammar='start: <|im_start|> "Hi"')
    start = tokenizer.encode("<|im_start|>")
    assert allowed(constraint) == start
    constraint.accept(start[0])
    assert {spelled(tokenizer, [token])[:1] for token in allowed(constraint)} == {b"H"}


def test_copies_are_independent(tokenizer: Tokenizer) -> None:
    first = make(tokenizer, regex="ab|cd")
    choice = allowed(first)
    other = first.copy()
    token = next(token for token in choice if spelled(tokenizer, [token]).startswith(b"a"))
    other.accept(token)
    mask = first.mask()
    assert allowed(first) == choice != allowed(other)
    assert mask is not other.mask()
    with pytest.raises(StateError, match="regex: expected a token that the mask allows, got"):
        first.accept(tokenizer.eos_ids[0])
    assert {spelled(tokenizer, [token])[:1] for token in allowed(other)} <= {b"b", b""}


def test_a_vocabulary_without_an_end_of_reply(tmp_path: Path) -> None:
    tokenizer = Tokenizer(huggingface(byte_level(), tmp_path))
    assert tokenizer.eos_ids == ()
    constraint = make(tokenizer, regex="ab?")
    constraint.accept(tokenizer.encode("a")[0])
    assert [spelled(tokenizer, [token]) for token in allowed(constraint)] == [b"b"]
    constraint.accept(tokenizer.encode("b")[0])
    assert constraint.ended
    with pytest.raises(ArgumentError, match="got one that only the empty text fits"):
        make(tokenizer, regex="")


REFUSED = {
    "regex": (
        (
            {"regex": "["},
            "regex: expected a regular expression that a reply can fit: 'unclosed character class'",
        ),
        ({"regex": "a(?=b)"}, "look-around, including look-ahead and look-behind, is not supported"),
        (
            {"regex": r"[^\s\S]"},
            "regex: expected a regular expression that a reply can fit: no token can come next",
        ),
        (
            {"regex": "a{100000000}"},
            "regex: expected a regular expression that a reply can fit: 'lexer error",
        ),
        ({"regex": 5}, "regex: expected text, got 5"),
        ({"regex": "\ud800"}, r"regex: expected text, got '\\ud800'"),
    ),
    "grammar": (
        (
            {"grammar": "start: x"},
            """grammar: expected a Lark grammar that a reply can fit: 'at 1\\(8\\): unknown name""",
        ),
        ({"grammar": "x: /a/"}, "no start rule found"),
        ({"grammar": ""}, "Empty grammar"),
        ({"grammar": "start: start"}, "no token can come next"),
        (
            {"grammar": 'start: "a" start'},
            "grammar: expected a Lark grammar that a reply can fit: 'parser error",
        ),
        ({"grammar": b"start: /a/"}, "grammar: expected text, got b'start: /a/'"),
        ({"grammar": "start: <|nothing|>"}, "unknown special token"),
    ),
    "schema": (
        (
            {"schema": {"type": "text"}},
            "schema: expected a JSON schema that a reply can fit: 'Invalid type: text'",
        ),
        ({"schema": {"type": "string", "minLength": 5, "maxLength": 2}}, "Unsatisfiable schema: minLength"),
        ({"schema": {"enum": []}}, "Unsatisfiable schema"),
        ({"schema": {"not": {}}}, "Unimplemented keys"),
        (
            {"schema": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}},
            "schema: expected a JSON schema that a reply can fit, got one whose values cannot end",
        ),
        (
            {"schema": {"$ref": "http://example.com/x"}},
            "schema: expected a JSON schema that a reply can fit: ",
        ),
        ({"schema": "{"}, "schema: expected JSON, got 'Expecting property name"),
        ({"schema": "[" * 100_000}, "schema: expected JSON, got '"),
        ({"schema": "[1]"}, r"schema: expected an object or its JSON text, got \[1\]"),
        ({"schema": 5}, "schema: expected an object or its JSON text, got 5"),
        ({"schema": {"const": {1, 2}}}, "schema: expected what JSON can hold, got 'Object of type set"),
        ({"schema": {"const": float("nan")}}, "schema: expected what JSON can hold, got "),
        ({"schema": {"const": "\ud800"}}, "schema: expected JSON, got 'unexpected end of hex escape"),
    ),
    "several": (
        (
            {"regex": "a", "schema": {}},
            "regex: expected one of schema, regex and grammar, got schema and regex",
        ),
        (
            {"regex": "a", "grammar": "b"},
            "grammar: expected one of schema, regex and grammar, got regex and grammar",
        ),
        ({}, "constraint: expected one of schema, regex and grammar, got none"),
    ),
}


@pytest.mark.parametrize(("given", "message"), [case for cases in REFUSED.values() for case in cases])
def test_refusals(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Tokenizer(byte_level_gguf()).constraint(**given)


def test_a_schema_that_contains_itself() -> None:
    schema: dict[str, Any] = {}
    schema["items"] = schema
    with pytest.raises(ArgumentError, match="schema: expected what JSON can hold, got 'Circular"):
        Tokenizer(byte_level_gguf()).constraint(schema=schema)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(StateError, match=r'need llguidance: pip install "pyturbo-llm\[grammar\]"'):
        Tokenizer(byte_level_gguf()).constraint(regex="a")


@pytest.mark.parametrize(
    "text", ["name", '{"name": "', " and ", "日本語", "<|im_end|>", "</s>", "\x02", "ab\ncd"]
)
def test_texts_are_spelled_by_their_tokens(tokenizer: Tokenizer, text: str) -> None:
    tokens = GrammarTokens(tokenizer._vocabulary, tokenizer.vocab_size)
    ids = tokens(text)
    assert b"".join(tokens.tokens[token] for token in ids) == text.encode("utf-8")
    assert not set(ids) & set(tokens.special_token_ids)


def test_tokens_that_no_text_has() -> None:
    pieces = byte_level_gguf().tokens
    long = Tokenizer(byte_level_gguf(tokens=[*pieces, "x" * 2000], types=[]))
    tokens = GrammarTokens(long._vocabulary, long.vocab_size + 3)
    assert tokens.tokens[-4:] == [b"", b"", b"", b""]
    assert not any(0xFF in text for text in tokens.tokens)
    assert allowed(make(long, regex="x{2000}"))


def test_repr() -> None:
    constraint = Tokenizer(byte_level_gguf()).constraint(regex="a")
    assert repr(constraint) == "Constraint(regex)"
    constraint.accept(allowed(constraint)[0])
    assert repr(constraint) == "Constraint(regex, ended)"


@pytest.mark.parametrize("texts", [[""], [5]])
def test_refuses_breakers(texts: list[Any]) -> None:
    with pytest.raises(
        ArgumentError, match="breakers: texts: expected a list of texts that are not empty, got"
    ):
        Tokenizer(byte_level_gguf()).breakers(texts)


def test_breakers_are_tokens_that_contain_or_begin_them(tokenizer: Tokenizer) -> None:
    for text in ("\n", "the", "本", "x: y"):
        found = set(tokenizer.breakers([text]))
        wanted = text.encode("utf-8")
        for token in range(tokenizer.vocab_size):
            assert ((token,) in found) == (wanted in tokenizer._vocabulary.utf8(token))
        for first, *rest in found:
            if rest:
                begun = tokenizer._vocabulary.utf8(first)
                assert any(
                    begun.endswith(wanted[:n]) and spelled(tokenizer, rest) == wanted[n:]
                    for n in range(1, len(wanted))
                )


def test_a_token_by_its_text(tokenizer: Tokenizer) -> None:
    known = tokenizer.token("a")
    assert spelled(tokenizer, [known]) == b"a"
    with pytest.raises(ArgumentError, match="token: text: expected the text of one token, got 'many words'"):
        tokenizer.token("many words")
