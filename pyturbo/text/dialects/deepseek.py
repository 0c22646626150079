"""Calls of DeepSeek's V3, R1 and V3.1, between tokens of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyturbo.text.dialects.dialect import Dialect, compact
from pyturbo.text.dialects.grammar import Choice, Grammar, arguments_schema, either, repeated
from pyturbo.text.dialects.json_call import copy_object, take_if
from pyturbo.text.dialects.reader import Reader, Step
from pyturbo.text.dialects.tools import Tool
from pyturbo.text.dialects.writer import Writer

CALLS, CALLS_END, CALL, CALL_END, SEPARATOR = (
    f"<\uff5ctool\u2581{name}\uff5c>"
    for name in ("calls\u2581begin", "calls\u2581end", "call\u2581begin", "call\u2581end", "sep")
)
_FENCE = "```"


@dataclass(frozen=True)
class DeepSeek(Dialect):
    """Calls whose arguments are JSON: after the name, or (V3 and R1) fenced as a block of code below it.

    Both forms are read.

    Attributes:
        fenced: Whether arguments are fenced in replies and grammars that are made here.
    """

    name: ClassVar[str] = "deepseek"
    call_markers: ClassVar[tuple[str, ...]] = (CALLS, CALLS_END, CALL, CALL_END, SEPARATOR)

    fenced: bool = False

    def _openers(self, tools: Mapping[str, Tool]) -> Sequence[str]:
        return (CALLS, CALL)

    def _read_call(
        self, marker: str, reader: Reader, writer: Writer, tools: Mapping[str, Tool]
    ) -> Step[bool]:
        start = 0
        if marker == CALLS:
            start = yield from reader.after_spaces()
            if not (yield from reader.is_at(start, CALL)):
                return False
            start += len(CALL)
        if not (yield from _read_one(reader, writer, start)):
            return False
        yield from take_if(reader, CALLS_END)
        return True

    def _written_calls(self, calls: Sequence[tuple[str, dict[str, Any]]], *, follow_text: bool) -> str:
        between = "\n" if self.fenced else ""
        texts = [self._head(name) + compact(values) + self._tail() for name, values in calls]
        return CALLS + between.join(texts) + CALLS_END if texts else ""

    def _head(self, name: str) -> str:
        if self.fenced:
            return f"{CALL}function{SEPARATOR}{name}\n{_FENCE}json\n"
        return f"{CALL}{name}{SEPARATOR}"

    def _tail(self) -> str:
        return f"\n{_FENCE}{CALL_END}" if self.fenced else CALL_END

    def _grammar(self, tools: Sequence[Tool], choice: Choice, grammar: Grammar, begun: str) -> str:
        bodies = [
            f"{grammar.literal(self._head(tool.name))} {grammar.json(arguments_schema(tool), tool)} "
            f"{grammar.literal(self._tail())}"
            for tool in tools
        ]
        call = either(grammar, "call", bodies)
        thoughts = self._thoughts(grammar, begun)
        more = f"{call} ({grammar.literal(chr(10))}? {call})*" if self.fenced else f"{call}+"
        if choice == "auto":
            head = grammar.until("before_calls", CALLS)
            grammar.rule("start", f"{thoughts} (TEXT | {head} {more} {grammar.literal(CALLS_END)})")
        else:
            inner = more if choice == "required" else repeated(call, choice)
            grammar.rule("start", f"{thoughts} {grammar.literal(CALLS)} {inner} {grammar.literal(CALLS_END)}")
        return str(grammar)


def _read_one(reader: Reader, writer: Writer, start: int) -> Step[bool]:
    """Take the call at a place after its opening token, and what is before it; False if there is none."""
    place, marker = yield from reader.find((SEPARATOR, CALL_END, CALL, CALLS_END), start)
    if marker != SEPARATOR:
        return False
    name = reader.text[start:place].strip()
    place = yield from reader.after_spaces(place + len(SEPARATOR))
    fenced = not (yield from reader.is_at(place, "{"))
    if fenced:  # the text before the separator is the kind of tool
        line_end, found = yield from reader.find(("\n", CALL_END, CALL), place)
        name = reader.text[place:line_end].strip()
        place = yield from reader.after_spaces(line_end)
        if found != "\n" or not (yield from reader.is_at(place, _FENCE)):
            return False
        place += len(_FENCE)
        if (yield from reader.is_at(place, "json")):
            place += len("json")
        place = yield from reader.after_spaces(place)
        if not (yield from reader.is_at(place, "{")):
            return False
    if not name:
        return False
    writer.begin_call(name)
    reader.take(place)
    yield from copy_object(reader, writer)
    writer.end_call()
    if fenced:
        yield from take_if(reader, _FENCE)
    yield from take_if(reader, CALL_END)
    return True
