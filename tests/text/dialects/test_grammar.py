"""Grammars of calls, as llguidance follows them: all that they allow is parsed as calls of the tools."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from random import Random
from typing import Any

import llguidance
import numpy as np
import pytest
from hypothesis import given, settings

from pyturbo.errors import ArgumentError
from pyturbo.text.dialects import Dialect, Message, ToolCall
from pyturbo.text.dialects.deepseek import CALLS, DeepSeek
from pyturbo.text.dialects.harmony import Harmony
from pyturbo.text.dialects.llama3 import Llama3
from pyturbo.text.dialects.qwen_coder import QwenCoder
from pyturbo.text.dialects.tagged import Hermes
from text.dialects.replies import TOOLS, VALUES

PLAIN_TOKENS = ["<tool_call>", "</tool_call>", "</parameter>", "<think>", "</think>", CALLS]
SPECIAL_TOKENS = ["<|python_tag|>", *Harmony().call_markers]


class Tokens:
    """Every byte, and the markers as one token each: some of them are special tokens, the others text."""

    is_tokenizer_wrapper = True
    bos_token_id = None
    eos_token_id = 256

    def __init__(self, special: Sequence[str]) -> None:
        texts = ["<eos>", *PLAIN_TOKENS, *SPECIAL_TOKENS]
        self.tokens = [bytes([i]) for i in range(256)] + [text.encode() for text in texts]
        self.special = {text: 256 + i for i, text in enumerate(texts) if text in special}
        self.special_token_ids = [self.eos_token_id, *self.special.values()]
        self.for_package = llguidance.LLTokenizer(self)

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)

    def encode(self, text: str) -> list[int]:
        """The text with special tokens as such."""
        parts = re.split("|".join(map(re.escape, self.special)) or "$^", text)
        found = re.findall("|".join(map(re.escape, self.special)) or "$^", text)
        ids = list(parts[0].encode())
        for marker, part in zip(found, parts[1:]):
            ids += [self.special[marker], *part.encode()]
        return ids


WITH_SPECIAL, WITHOUT = Tokens(SPECIAL_TOKENS), Tokens([])
DIALECTS: dict[str, Dialect] = {
    "hermes": Hermes(),
    "hermes think": Hermes(thinks=True),
    "qwen_coder": QwenCoder(),
    "qwen_coder think": QwenCoder(thinks=True),
    "deepseek": DeepSeek(thinks=True),
    "deepseek fenced": DeepSeek(fenced=True),
    "llama3": Llama3(special=WITH_SPECIAL.special),
    "harmony": Harmony(special=WITH_SPECIAL.special),
    "harmony as text": Harmony(),
}
REFERRING = [
    {
        "type": "function",
        "function": {
            "name": "move",
            "parameters": {
                "type": "object",
                "properties": {"to": {"$ref": "#/$defs/point"}},
                "required": ["to"],
                "additionalProperties": False,
                "$defs": {
                    "point": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
                },
            },
        },
    }
]


def matcher(tokens: Tokens, grammar: str) -> Any:
    made = llguidance.LLMatcher(tokens.for_package, llguidance.LLMatcher.grammar_from_lark(grammar))
    assert not made.is_error(), f"{made.get_error()}\n{grammar}"
    return made


def tokens_of(dialect: Dialect) -> Tokens:
    return WITH_SPECIAL if dialect.special else WITHOUT


def accepts(dialect: Dialect, grammar: str, text: str) -> bool:
    made, ids = matcher(tokens_of(dialect), grammar), tokens_of(dialect).encode(text)
    return bool(made.validate_tokens(ids) == len(ids) and made.consume_tokens(ids) and made.is_accepting())


def walk(dialect: Dialect, grammar: str, random: Random, longest: int = 6000) -> str | None:
    """A random reply that the grammar allows; None if it takes too long."""
    tokens = tokens_of(dialect)
    made, text = matcher(tokens, grammar), b""
    words = np.zeros(-(-tokens.for_package.vocab_size // 32), np.uint32)
    for _ in range(longest):
        made.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")[: len(tokens.tokens)]
        allowed = [int(i) for i in np.flatnonzero(bits)]
        assert allowed, made.get_error()
        likely = [i for i in allowed if i > 255 or chr(i) in '"}],\n']
        token = random.choice(likely if likely and random.random() < 0.3 else allowed)
        if token == tokens.eos_token_id:
            return text.decode()
        assert made.consume_token(token)
        text += tokens.tokens[token]
    return None


@pytest.mark.parametrize("tools", [TOOLS, REFERRING], ids=["simple", "referring"])
@pytest.mark.parametrize("choice", ["required", "one"])
@pytest.mark.parametrize("name", DIALECTS)
def test_calls_that_a_grammar_allows_are_parsed(name: str, choice: str, tools: list[dict[str, Any]]) -> None:
    dialect, known = DIALECTS[name], {tool["function"]["name"]: tool["function"] for tool in tools}
    one = next(iter(known))
    grammar = dialect.grammar(tools, one if choice == "one" else choice)
    replies = [walk(dialect, grammar, Random(seed)) for seed in range(12)]
    finished = [reply for reply in replies if reply is not None]
    assert len(finished) >= 6, replies
    for reply in finished:
        message = dialect.parse(reply, tools)
        assert message.tool_calls, reply
        assert choice == "required" or [call.name for call in message.tool_calls] == [one]
        for call in message.tool_calls:
            assert call.complete, reply
            required = known[call.name]["parameters"].get("required", [])
            assert set(required) <= call.values().keys(), reply


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=15, deadline=None)
@given(values=VALUES.filter(lambda values: "\\x7f" not in repr(values)))
def test_a_grammar_accepts_what_is_composed(name: str, choice: str, values: dict[str, Any]) -> None:
    """But for U+007F, which the package wants escaped."""
    dialect = DIALECTS[name]
    order = TOOLS[0]["function"]["parameters"]["properties"]
    ordered = {key: values[key] for key in order if key in values}
    call = ToolCall("weather", json.dumps(ordered, ensure_ascii=False))
    reply = dialect.compose(Message("", "Hm." if dialect.thinks else "", [call]), TOOLS)
    assert accepts(dialect, dialect.grammar(TOOLS, choice), reply), reply


@pytest.mark.parametrize("name", DIALECTS)
def test_with_a_choice_of_its_own_a_reply_may_be_text(name: str) -> None:
    dialect = DIALECTS[name]
    answer = dialect.compose(Message("The sun shines.", "Hm." if dialect.thinks else ""))
    assert accepts(dialect, dialect.grammar(TOOLS), answer)
    assert not accepts(dialect, dialect.grammar(TOOLS, "required"), answer)


@pytest.mark.parametrize("name", [name for name, dialect in DIALECTS.items() if dialect.thinks])
def test_thoughts_that_the_prompt_began_are_ended(name: str) -> None:
    dialect = DIALECTS[name]
    grammar = dialect.grammar(TOOLS, "now", prompt="<|im_start|>assistant\n<think>\n")
    call = dialect.compose(Message(tool_calls=[ToolCall("now")]), TOOLS)
    assert accepts(dialect, grammar, "Well...\n</think>\n\n" + call)
    assert not accepts(dialect, grammar, call)


@pytest.mark.parametrize(
    ("tools", "choice", "message"),
    [
        ([], "auto", "grammar: tools: expected at least one, got none"),
        (TOOLS, "never", "grammar: choice: expected auto, required or a tool, got 'never'"),
        (TOOLS, {"function": {"name": "x"}}, "grammar: choice: expected auto, required or a tool, got"),
        (TOOLS, 3, "grammar: choice: expected auto, required or a tool, got 3"),
    ],
)
def test_wrong_choices_are_refused(tools: Any, choice: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Hermes().grammar(tools, choice)


def test_a_choice_may_be_a_mapping() -> None:
    named = {"type": "function", "function": {"name": "now"}}
    assert Hermes().grammar(TOOLS, named) == Hermes().grammar(TOOLS, "now")


def test_a_dialect_without_calls_has_no_grammar() -> None:
    with pytest.raises(ArgumentError, match="grammar: expected a model whose calls have a known format"):
        Dialect().grammar(TOOLS)


@pytest.mark.parametrize("name", DIALECTS)
def test_what_cannot_be_enforced_is_left_out_unless_a_tool_is_strict(name: str) -> None:
    """In XML calls each argument has a schema, and none has those keys."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "propertyNames": {"type": "string"}}
    for strict in (False, True):
        tool = {"name": "f", "parameters": schema, "strict": strict}
        lark = DIALECTS[name].grammar([{"type": "function", "function": tool}], "required")
        problem = llguidance.LLMatcher.validate_grammar(llguidance.LLMatcher.grammar_from_lark(lark))
        assert ("propertyNames" in problem) == (strict and not isinstance(DIALECTS[name], QwenCoder)), problem


def test_a_tool_without_parameters_takes_none() -> None:
    dialect, random = Hermes(), Random(1)
    lark = dialect.grammar([{"type": "function", "function": {"name": "now"}}], "now")
    assert walk(dialect, lark, random) == '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def with_argument(schema: dict[str, Any], strict: bool) -> list[dict[str, Any]]:
    parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return [{"type": "function", "function": {"name": "f", "parameters": parameters, "strict": strict}}]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("schema", "fits", "others"),
    [
        ({"pattern": "^[A-Z]{3}$"}, ["BER"], ["BE", "BERN", "ber", " BER"]),
        ({"pattern": "[0-9]"}, ["7", "a7b", "a\n7"], ["", "ab"]),
        ({"pattern": "^(a|b/c)+"}, ["a", "b/cx"], ["", "x", "b"]),
        ({"pattern": "cat|dog"}, ["a cat", "dogs"], ["cow"]),
        ({"pattern": r"^a\/b[$^|]\$"}, ["a/b$$", "a/b|$!"], ["a/b", "a/ba$"]),
        ({"pattern": "^a</parameter>|a\nb$"}, ["anything"], []),
        ({"pattern": r"^\(?[0-9]{2}\)?-\\b$"}, [r"(12)-\b", r"12-\b"], ["12-", "(a)-b"]),
        ({"pattern": "^a\\\n/b$"}, ["a\n/b"], ["a/b"]),
        ({"pattern": "^$"}, [""], ["a"]),
        ({"pattern": "$"}, ["", "a"], []),
        ({"minLength": 2}, ["ab", "a\n\u00e9"], ["", "a"]),
        ({"maxLength": 2, "description": "short"}, ["", "ab"], ["abc"]),
        ({"minLength": 2, "maxLength": 3, "pattern": "^a"}, ["ab", "abc"], ["a", "abcd", "bb"]),
        ({"format": "date"}, ["2026-11-18"], ["2026-13-18", "18.11.2026"]),
        ({"format": "date-time"}, ["2026-11-18T08:00:00Z"], ["2026-11-18"]),
        ({"const": "x"}, ["x"], ["y", '"x"']),
    ],
)
def test_texts_without_quotes_fit_their_schema(
    schema: dict[str, Any], fits: list[str], others: list[str], strict: bool
) -> None:
    dialect, tools = QwenCoder(), with_argument({"type": "string", **schema}, strict)
    if fits == ["anything"] and strict:  # alternatives with anchors
        with pytest.raises(ArgumentError, match="tools: pattern: expected what a text can be held to, got"):
            dialect.grammar(tools, "f")
        return
    grammar = dialect.grammar(tools, "f")
    for text in [*fits, *others]:
        reply = dialect.compose(Message(tool_calls=[ToolCall("f", json.dumps({"a": text}))]), tools)
        assert accepts(dialect, grammar, reply) == (text in fits), text


@pytest.mark.parametrize(
    "schema",
    [
        *({"pattern": each} for each in ("a(?=b)", "(", ")(", "a{99999999999}", r"\bx", "^{a}$", "(" * 3000)),
        *({"format": "hostname"}, {"maxLength": 10**8}, {"not": {}}),
    ],
)
def test_texts_that_cannot_be_held_to_their_schema(schema: dict[str, Any]) -> None:
    any_text = with_argument({"type": "string", **schema}, strict=False)
    reply = QwenCoder().compose(Message(tool_calls=[ToolCall("f", '{"a": "some text"}')]), any_text)
    assert accepts(QwenCoder(), QwenCoder().grammar(any_text, "f"), reply)
    (name,) = schema
    with pytest.raises(ArgumentError, match=f"tools: {name}: expected what a text can be held to"):
        QwenCoder().grammar(with_argument({"type": "string", **schema}, strict=True), "f")


def test_lengths_that_no_text_has() -> None:
    tools = with_argument({"type": "string", "minLength": 3, "maxLength": 2}, strict=False)
    with pytest.raises(ArgumentError, match="tools: minLength: expected at most maxLength, 2, got 3"):
        QwenCoder().grammar(tools, "f")


def test_texts_before_a_special_token_fit_their_schema() -> None:
    tokens = Tokens(["</parameter>"])
    dialect, tools = (
        QwenCoder(special=tokens.special),
        with_argument({"type": "string", "maxLength": 3}, True),
    )
    grammar = dialect.grammar(tools, "f")
    for text in ("", "ab", "a\nb", "abcd", "a\nbc"):
        made = matcher(tokens, grammar)
        reply = dialect.compose(Message(tool_calls=[ToolCall("f", json.dumps({"a": text}))]), tools)
        ids = tokens.encode(reply)
        assert tokens.special["</parameter>"] in ids
        fits = made.validate_tokens(ids) == len(ids) and made.consume_tokens(ids) and made.is_accepting()
        assert bool(fits) == (len(text) <= 3), text
