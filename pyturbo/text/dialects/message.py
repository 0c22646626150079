"""A whole reply: its answer, its thoughts and its calls."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pyturbo._messages import shown
from pyturbo.errors import FormatError
from pyturbo.text.dialects.parts import (
    Part,
    Reasoning,
    Text,
    ToolCallArguments,
    ToolCallBegin,
)


@dataclass
class ToolCall:
    """A call of a function.

    Attributes:
        name: The function.
        arguments: Its arguments, a JSON object.
        id: The name of the call, which the message with its result repeats.
        complete: Whether the arguments are a whole JSON object. If not, it was cut off or is malformed.

    Examples:
        >>> from pyturbo.text.dialects import ToolCall
        >>> ToolCall("weather", '{"city": "Bern"}').values()
        {'city': 'Bern'}
    """

    name: str
    arguments: str = "{}"
    id: str = ""
    complete: bool = True

    def values(self) -> dict[str, Any]:
        """Return the arguments by name. FormatError if they are incomplete."""
        values = json_object(self.arguments)
        if values is None:
            raise FormatError(
                f"{self.name}: expected a JSON object of arguments, got {shown(self.arguments)}"
            )
        return values


@dataclass
class Message:
    """What the assistant said.

    Attributes:
        content: The answer, without thoughts and calls.
        reasoning: The thoughts.
        tool_calls: The calls, in order. Some may be incomplete, see `ToolCall`.

    Examples:
        >>> from pyturbo.text.dialects import Message, ToolCall
        >>> Message(tool_calls=[ToolCall("now", "{}", "call_1")]).to_dict()
        ... # doctest: +NORMALIZE_WHITESPACE
        {'role': 'assistant', 'content': None, 'tool_calls':
            [{'id': 'call_1', 'type': 'function', 'function': {'name': 'now', 'arguments': '{}'}}]}
    """

    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)

    @classmethod
    def of(cls, parts: Iterable[Part]) -> Message:
        """Return the message that has these parts."""
        texts: dict[type, list[str]] = {Text: [], Reasoning: []}
        calls: list[ToolCall] = []
        fragments: list[list[str]] = []
        for part in parts:
            if isinstance(part, (Text, Reasoning)):
                texts[type(part)].append(part.text)
            elif isinstance(part, ToolCallBegin):
                calls.append(ToolCall(part.name, "", part.id, complete=False))
                fragments.append([])
            elif isinstance(part, ToolCallArguments):
                fragments[part.index].append(part.fragment)
            else:
                calls[part.index].complete = part.complete
        for call, pieces in zip(calls, fragments):
            call.arguments = "".join(pieces)
        return cls("".join(texts[Text]), "".join(texts[Reasoning]), calls)

    def to_dict(self) -> dict[str, Any]:
        """Return the message as chat templates and OpenAI's interface take it, without incomplete calls."""
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in self.tool_calls
            if call.complete
        ]
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if calls and not self.content:
            message["content"] = None
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if calls:
            message["tool_calls"] = calls
        return message


def _finite(text: str) -> float:
    """Return a number; one that is too large for a float is the largest, so that it can be written again."""
    value = float(text)
    return value if math.isfinite(value) else math.copysign(sys.float_info.max, value)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is, which may have line breaks in its strings; None for others."""
    try:
        value = json.loads(text, strict=False, parse_float=_finite, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
