"""The channels of gpt-oss: each message of a reply has a header with its channel and recipient."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyturbo.text.dialects.dialect import Dialect, compact
from pyturbo.text.dialects.grammar import Choice, Grammar, arguments_schema, either
from pyturbo.text.dialects.json_call import copy_object
from pyturbo.text.dialects.message import Message
from pyturbo.text.dialects.reader import Reader, Step
from pyturbo.text.dialects.tools import Tool
from pyturbo.text.dialects.writer import Writer

_START, _CHANNEL, _CONSTRAIN, _MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
_END, _CALL, _RETURN = "<|end|>", "<|call|>", "<|return|>"
_ENDS = (_END, _CALL, _RETURN)
_BEGINNINGS = (_START, _CHANNEL)
_HEADER = re.compile(
    rf"""
    (?:{re.escape(_START)}assistant)? \s*
    (?:to=(?P<before>[^\s<]+))? \s*
    (?:{re.escape(_CHANNEL)} \s* (?P<channel>\w+) \s*
        (?:to=(?P<after>[^\s<]+))? \s* (?:\w+\s*)?
    )?
    (?:{re.escape(_CONSTRAIN)} \s* \w* \s*)?
    """,
    re.VERBOSE,
)
_NAMESPACE = "functions."
_AUDIENCE = (None, "user", "assistant", "all")  # recipients of what is no call
_CHANNELS = (None, "analysis", "commentary", "final")


@dataclass(frozen=True)
class _Header:
    channel: str | None
    function: str | None  # which a message calls


class Harmony(Dialect):
    """Messages with channels: "analysis" is reasoning; "final", and "commentary" to nobody, are text.

    A message to a function is a call, with its body as arguments. Calls of built-in tools, which have no
    "functions." before their name, are calls too; Python code is then an incomplete one, for it is no JSON.
    A header that cannot be read is text.
    """

    name: ClassVar[str] = "harmony"
    call_markers: ClassVar[tuple[str, ...]] = (*_BEGINNINGS, _CONSTRAIN, _MESSAGE, *_ENDS)

    @property
    def may_think(self) -> bool:
        return True

    def begun(self, prompt: str) -> str:
        """Return the header of the message that a prompt begins, if its text has begun."""
        header, message, body = prompt[max(0, prompt.rfind(_START)) :].partition(_MESSAGE)
        ended = any(end in body for end in _ENDS)
        return header + message if message and not ended and _header_of(header) else ""

    def _read(self, reader: Reader, writer: Writer, tools: Mapping[str, Tool]) -> Step[None]:
        while (yield from reader.has(0)):
            header = yield from _take_header(reader)
            if header is not None:
                writer.mark()
                yield from _read_body(header, reader, writer)
            else:
                for beginning in _BEGINNINGS:
                    if (yield from reader.is_at(0, beginning)):
                        writer.text(reader.take(len(beginning)))
                        break
                marker = yield from reader.copy_until(_BEGINNINGS, writer.text)
                reader.text = marker + reader.text

    def _written(self, message: Message, calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
        bodies = []
        if message.reasoning:
            bodies.append(f"{_CHANNEL}analysis{_MESSAGE}{message.reasoning}")
        if message.content:
            bodies.append(f"{_CHANNEL}{'commentary' if calls else 'final'}{_MESSAGE}{message.content}")
        bodies += [self._head(name) + compact(values) for name, values in calls]
        return f"{_END}{_START}assistant".join(bodies)

    def _head(self, name: str) -> str:
        return f"{_CHANNEL}commentary to={_NAMESPACE}{name} {_CONSTRAIN}json{_MESSAGE}"

    def around_answer(self, prompt: str = "") -> str | None:
        """Return the grammar of replies with their `@answer` in the final channel."""
        begun = self.begun(prompt)
        header = _header_of(begun.removesuffix(_MESSAGE))
        if begun and header is not None and header.channel != "analysis":
            return None  # the prompt has begun the answer
        grammar = Grammar(self.special)
        body, thoughts = self._analysis(grammar)
        final = grammar.literal(f"{_CHANNEL}final{_MESSAGE}")
        grammar.rule("start", f"{body if begun else ''} {thoughts}* {final} @answer")
        return str(grammar)

    def closings(self, *, again: bool = False) -> tuple[str, ...]:
        """Return the texts that end the analysis; what begins again after it is the answer."""
        closing = f"{_END}{_START}assistant"
        channels = (f"{_CHANNEL}final{_MESSAGE}", f"{_CHANNEL}commentary") if again else ()
        return (*(closing + channel for channel in channels), closing)

    def _analysis(self, grammar: Grammar) -> tuple[str, str]:
        """Return the rest of a message that begins another one, and the rule of thoughts."""
        body = f"{grammar.until('body', _END)} {grammar.literal(f'{_START}assistant')}"
        return body, grammar.rule("analysis", f"{grammar.literal(f'{_CHANNEL}analysis{_MESSAGE}')} {body}")

    def _grammar(self, tools: Sequence[Tool], choice: Choice, grammar: Grammar, begun: str) -> str:
        bodies = [
            f"{grammar.literal(self._head(tool.name))} {grammar.json(arguments_schema(tool), tool)}"
            for tool in tools
        ]
        call = either(grammar, "call", bodies)
        body, thoughts = self._analysis(grammar)
        rest = f"{thoughts}* {call}"
        if choice == "auto":
            header = grammar.literal(f"{_CHANNEL}commentary{_MESSAGE}")
            preamble = grammar.rule("preamble", f"{header} {body}")
            final = grammar.rule("final", f"{grammar.literal(f'{_CHANNEL}final{_MESSAGE}')} TEXT")
            rest = f"{thoughts}* ({final} | {preamble}? {call})"
        grammar.rule("start", f"{body} {rest}" if begun else rest)
        return str(grammar)


def _take_header(reader: Reader) -> Step[_Header | None]:
    """Take a header and the marker after it; None, and nothing taken, if there is none."""
    start = yield from reader.after_spaces()
    for beginning in (*_BEGINNINGS, _MESSAGE, "to="):
        if (yield from reader.is_at(start, beginning)):
            break
    else:
        return None
    place, marker = yield from reader.find((_MESSAGE, *_ENDS), start)
    header = _header_of(reader.text[start:place]) if marker == _MESSAGE else None
    if header is not None:
        reader.take(place + len(_MESSAGE))
    return header


def _header_of(text: str) -> _Header | None:
    match = _HEADER.fullmatch(text)
    if match is None or match["channel"] not in _CHANNELS:
        return None
    recipient = match["after"] or match["before"]
    function = None if recipient in _AUDIENCE else recipient.removeprefix(_NAMESPACE)
    return _Header(match["channel"], function)


def _read_body(header: _Header, reader: Reader, writer: Writer) -> Step[None]:
    """Take the text of a message, and the marker that ends it."""
    if header.function is None and header.channel == "analysis":
        writer.begin_thoughts()
        marker = yield from reader.copy_until((*_ENDS, *_BEGINNINGS), writer.reasoning)
        writer.end_thoughts()
    elif header.function is None:
        marker = yield from reader.copy_until((*_ENDS, *_BEGINNINGS), writer.text)
        writer.mark()
    else:
        writer.begin_call(header.function)
        marker = yield from _read_arguments(reader, writer)
        writer.end_call()
    if marker in _BEGINNINGS:
        reader.text = marker + reader.text


def _read_arguments(reader: Reader, writer: Writer) -> Step[str]:
    """Take the body of a call, and return the marker after it. An empty body stands for no arguments."""
    reader.take((yield from reader.after_spaces()))
    if (yield from reader.is_at(0, "{")):
        yield from copy_object(reader, writer)
    marker = yield from reader.copy_until((*_ENDS, *_BEGINNINGS), writer.arguments)
    if marker and not writer.has_arguments:
        writer.arguments("{}")
    return marker
