"""Calls between <tool_call> and </tool_call>, which Hermes and many Qwen models write as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pyturbo.text.dialects.dialect import Dialect, compact
from pyturbo.text.dialects.function_call import read_function_call
from pyturbo.text.dialects.grammar import Choice, Grammar, arguments_schema, either
from pyturbo.text.dialects.json_call import read_json_call, take_if
from pyturbo.text.dialects.reader import Reader, Step
from pyturbo.text.dialects.tools import Tool
from pyturbo.text.dialects.writer import Writer

_OPEN, _CLOSE, _FUNCTION = "<tool_call>", "</tool_call>", "<function="


class Hermes(Dialect):
    """JSON calls: <tool_call>{"name": ..., "arguments": {...}}</tool_call>.

    Either form of a call, this one or that of `QwenCoder`, is read, whichever the template shows.
    """

    name: ClassVar[str] = "hermes"
    call_markers: ClassVar[tuple[str, ...]] = (_OPEN, _CLOSE)
    verbatim: ClassVar[bool] = True

    def _openers(self, tools: Mapping[str, Tool]) -> Sequence[str]:
        return (_OPEN, *(f"{_FUNCTION}{name}>" for name in tools))

    def _read_call(
        self, marker: str, reader: Reader, writer: Writer, tools: Mapping[str, Tool]
    ) -> Step[bool]:
        if marker != _OPEN:  # models forget the tag around a function
            reader.text = marker + reader.text
        place = yield from reader.after_spaces()
        if (yield from reader.is_at(place, _FUNCTION)):
            found = yield from read_function_call(reader, writer, tools)
        else:
            found = yield from read_json_call(reader, writer)
        if found:
            yield from take_if(reader, _CLOSE)
        return found

    def _written_calls(self, calls: Sequence[tuple[str, dict[str, Any]]], *, follow_text: bool) -> str:
        text = "\n".join(f"{_OPEN}\n{self._written_call(name, values)}\n{_CLOSE}" for name, values in calls)
        return "\n" + text if text and follow_text else text

    def _written_call(self, name: str, values: dict[str, Any]) -> str:
        return f'{{"name": {compact(name)}, "arguments": {compact(values)}}}'

    def _grammar(self, tools: Sequence[Tool], choice: Choice, grammar: Grammar, begun: str) -> str:
        call = either(grammar, "call", [self._call_rule(grammar, i, tool) for i, tool in enumerate(tools)])
        rest = grammar.literal("\n") + f" {call} " + grammar.literal(f"\n{_CLOSE}")
        thoughts = self._thoughts(grammar, begun)
        if choice == "auto":
            head = grammar.until("before_call", _OPEN)
            grammar.rule("start", f"{thoughts} ({head} {rest})* TEXT")
        else:
            whole = grammar.rule("whole_call", f"{grammar.literal(_OPEN)} {rest}")
            more = f" ({grammar.literal(chr(10))} {whole})*" if choice == "required" else ""
            grammar.rule("start", f"{thoughts} {whole}{more}")
        return str(grammar)

    def _call_rule(self, grammar: Grammar, number: int, tool: Tool) -> str:
        """Return the body of a call of one tool."""
        head = grammar.literal(f'{{"name": {compact(tool.name)}, "arguments": ')
        return f"{head} {grammar.json(arguments_schema(tool), tool)} {grammar.literal('}')}"
