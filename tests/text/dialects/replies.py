"""Replies of every family: random messages, random soups of markers, and what a parser makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

from hypothesis import strategies as st

from pyturbo.text.dialects import Dialect, Message, Part, ToolCall, joined
from pyturbo.text.dialects.deepseek import DeepSeek
from pyturbo.text.dialects.harmony import Harmony
from pyturbo.text.dialects.llama3 import Llama3
from pyturbo.text.dialects.qwen_coder import QwenCoder
from pyturbo.text.dialects.tagged import Hermes

DIALECTS: dict[str, Dialect] = {
    "plain": Dialect(),
    "think": Dialect(thinks=True),
    "hermes": Hermes(),
    "hermes think": Hermes(thinks=True),
    "qwen_coder": QwenCoder(),
    "qwen_coder think": QwenCoder(thinks=True),
    "deepseek": DeepSeek(),
    "deepseek fenced think": DeepSeek(thinks=True, fenced=True),
    "llama3": Llama3(),
    "harmony": Harmony(),
}
CALLING = [name for name, dialect in DIALECTS.items() if dialect.call_markers]
THINKING = [name for name, dialect in DIALECTS.items() if dialect.thinks or name == "harmony"]

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a place.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "exact": {"type": "boolean"},
                    "unit": {"type": "string", "enum": ["C", "F"]},
                    "where": {"type": "object", "properties": {"lat": {"type": "number"}}},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "limit": {"type": ["integer", "null"]},
                },
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {}}},
]

#: Text without the characters that markers and JSON are made of, and without spaces at its ends.
PLAIN = st.text(st.sampled_from("aZ09 .,;:!?'\n\t日é🎂"), max_size=30).map(str.strip)
#: Text of the characters that JSON and tags are made of, and any text.
TRICKY = st.one_of(st.text(st.sampled_from('"\\{}[]<>/|a\n日'), max_size=20), st.text(max_size=20))
VALUES = st.fixed_dictionaries(
    {"city": TRICKY.filter(lambda text: "</parameter>" not in text)},
    optional={
        "days": st.integers(-(10**6), 10**6),
        "exact": st.booleans(),
        "unit": st.sampled_from(["C", "F"]),
        "where": st.fixed_dictionaries({"lat": st.floats(-90, 90)}),
        "tags": st.lists(TRICKY, max_size=3),
        "limit": st.one_of(st.none(), st.integers(0, 9)),
    },
)
CALLS = st.one_of(
    st.builds(lambda values: ToolCall("weather", json.dumps(values)), VALUES), st.just(ToolCall("now"))
)


def messages(name: str) -> st.SearchStrategy[Message]:
    """Messages that a reply of this dialect can have."""
    dialect = DIALECTS[name]
    thoughts = PLAIN if name in THINKING else st.just("")
    calls = st.lists(CALLS, max_size=3) if dialect.call_markers else st.just([])
    return st.builds(Message, PLAIN, thoughts, calls)


#: Pieces of replies in no good order.
PIECES = st.one_of(
    st.sampled_from(
        [
            *(marker for dialect in DIALECTS.values() for marker in dialect.markers),
            "<function=weather>",
            "<parameter=city>",
            "<parameter=days>",
            "</parameter>",
            "</function>",
            '{"name": "weather", "arguments": ',
            '{"name": "weather", "parameters": ',
            '{"arguments": {"city": "日"}, "name": "weather"}',
            '{"city": "Z\\"ü}rich"}',
            '{"city": ',
            '"',
            "\\",
            "{",
            "}",
            "}}",
            "```json\n",
            "```",
            "function",
            "weather",
            "now",
            "assistant",
            "analysis",
            "final",
            "commentary to=functions.now ",
            " to=python",
            "json",
            "\n",
            "  ",
            ";",
            "true",
        ]
    ),
    st.text(max_size=3),
)
SOUPS = st.lists(PIECES, max_size=14).map("".join)


def parts_of(dialect: Dialect, pieces: Sequence[str], **options: Any) -> list[Part]:
    """The parts of a reply that arrives in pieces, with calls named by their number."""
    numbers = count()
    parser = dialect.parser(new_id=lambda: f"#{next(numbers)}", **options)
    parts = [part for piece in pieces for part in parser.add(piece)]
    return joined([*parts, *parser.finish()])


def cut(text: str, places: Sequence[int]) -> list[str]:
    """The pieces of a text that is cut at these places."""
    ends = sorted({place % (len(text) + 1) for place in places})
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)])]


def everything(parts: Sequence[Part]) -> str:
    """All characters of the parts, in order."""
    texts = (getattr(part, field, "") for part in parts for field in ("name", "text", "fragment"))
    return "".join(texts)
