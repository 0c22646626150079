"""The parts of a reply, in the order in which they arrive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Text:
    """Text for the reader of the reply.

    Attributes:
        text: The next piece of it.
        span: Where it begins and ends in the reply, in characters.
    """

    text: str
    span: tuple[int, int] = field(default=(0, 0), repr=False, compare=False)


@dataclass(frozen=True)
class Reasoning:
    """Thoughts that come before an answer or a call.

    Attributes:
        text: The next piece of them.
    """

    text: str


@dataclass(frozen=True)
class ToolCallBegin:
    """The beginning of a call.

    Attributes:
        index: The number of the call in its reply, from 0.
        name: The function.
        id: A new name for the call, for the message with its result.
    """

    index: int
    name: str
    id: str


@dataclass(frozen=True)
class ToolCallArguments:
    """Arguments of a call.

    Attributes:
        index: The number of the call.
        fragment: The next piece of them, as JSON.
    """

    index: int
    fragment: str


@dataclass(frozen=True)
class ToolCallEnd:
    """The end of a call.

    Attributes:
        index: The number of the call.
        complete: Whether its arguments are a whole JSON object. If not, it was cut off or is malformed.
    """

    index: int
    complete: bool


Part = Text | Reasoning | ToolCallBegin | ToolCallArguments | ToolCallEnd


def joined(parts: Iterable[Part]) -> list[Part]:
    """Return the parts with neighbouring pieces of the same kind as one.

    Examples:
        >>> from pyturbo.text.dialects import Text, joined
        >>> joined([Text("Hel"), Text("lo")])
        [Text(text='Hello')]
    """
    result: list[Part] = []
    for part in parts:
        last = result[-1] if result else None
        if isinstance(part, Text) and isinstance(last, Text):
            result[-1] = Text(last.text + part.text, (last.span[0], part.span[1]))
        elif isinstance(part, Reasoning) and isinstance(last, Reasoning):
            result[-1] = Reasoning(last.text + part.text)
        elif isinstance(part, ToolCallArguments) and isinstance(last, ToolCallArguments):
            result[-1] = ToolCallArguments(part.index, last.fragment + part.fragment)
        else:
            result.append(part)
    return result
