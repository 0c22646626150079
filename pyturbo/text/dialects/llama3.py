"""Calls of Llama 3: a reply that is a JSON object, or a JSON object after <|python_tag|>."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pyturbo.text.dialects.dialect import Dialect, compact
from pyturbo.text.dialects.grammar import Choice, Grammar, arguments_schema, either
from pyturbo.text.dialects.json_call import read_json_call
from pyturbo.text.dialects.reader import Reader, Step
from pyturbo.text.dialects.tools import Tool
from pyturbo.text.dialects.writer import Writer

_TAG = "<|python_tag|>"
_BETWEEN = ";"


class Llama3(Dialect):
    """Calls such as {"name": ..., "parameters": {...}}, several of them with semicolons between.

    An object without the tag is a call only if it names one of the parser's tools: any other is an answer in
    JSON. What follows the tag and is not JSON, such as Python code, is text, with the tag.
    """

    name: ClassVar[str] = "llama3"
    call_markers: ClassVar[tuple[str, ...]] = (_TAG,)

    def _openers(self, tools: Mapping[str, Tool]) -> Sequence[str]:
        return (_TAG,)

    def _read_unmarked_call(self, reader: Reader, writer: Writer, tools: Mapping[str, Tool]) -> Step[bool]:
        if not tools or not (yield from read_json_call(reader, writer, tools)):
            return False
        yield from _take_separator(reader)
        return True

    def _read_call(
        self, marker: str, reader: Reader, writer: Writer, tools: Mapping[str, Tool]
    ) -> Step[bool]:
        if not (yield from read_json_call(reader, writer)):
            return False
        yield from _take_separator(reader)
        return True

    def _written_calls(self, calls: Sequence[tuple[str, dict[str, Any]]], *, follow_text: bool) -> str:
        tag = _TAG if follow_text and calls else ""
        written = (f'{{"name": {compact(name)}, "parameters": {compact(values)}}}' for name, values in calls)
        return tag + f"{_BETWEEN} ".join(written)

    def _grammar(self, tools: Sequence[Tool], choice: Choice, grammar: Grammar, begun: str) -> str:
        bodies = [
            grammar.literal(f'{{"name": {compact(tool.name)}, "parameters": ')
            + f" {grammar.json(arguments_schema(tool), tool)} {grammar.literal('}')}"
            for tool in tools
        ]
        call = either(grammar, "call", bodies)
        calls = f"{call} ({grammar.literal(_BETWEEN + ' ')} {call})*" if choice == "required" else call
        if choice == "auto":
            grammar.rule("ANSWER", r"/([^{](.|\n)*)?/")
            calls = f"ANSWER | {call}"
        grammar.rule("start", calls)
        return str(grammar)


def _take_separator(reader: Reader) -> Step[None]:
    """Take a semicolon if another object follows it."""
    place = yield from reader.after_spaces()
    if (yield from reader.is_at(place, _BETWEEN)):
        following = yield from reader.after_spaces(place + len(_BETWEEN))
        if (yield from reader.is_at(following, "{")):
            reader.take(following)
