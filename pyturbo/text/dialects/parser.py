"""The parser of one reply."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count

from pyturbo._messages import shown
from pyturbo.errors import ArgumentError, StateError
from pyturbo.text.dialects.message import Message
from pyturbo.text.dialects.parts import Part
from pyturbo.text.dialects.reader import Reader, Step
from pyturbo.text.dialects.writer import Writer


def new_call_id() -> str:
    """Return a random name for a call."""
    return f"call_{os.urandom(8).hex()}"


def repeated_ids(ids: list[str]) -> Callable[[], str]:
    """Return what names calls as `ids` does, and adds new names to it: parsing again then gives the same."""
    places = count()

    def next_id() -> str:
        place = next(places)
        if place == len(ids):
            ids.append(new_call_id())
        return ids[place]

    return next_id


class ReplyParser:
    """Takes a reply apart while it arrives. `Dialect.parser` makes it.

    The parts do not depend on how the text is divided, apart from that of text into pieces.

    Examples:
        >>> from pyturbo.text.dialects import dialect_of
        >>> parser = dialect_of("<think>...</think>").parser()
        >>> parser.add("<think>Hm.</th"), parser.add("ink>Yes.")
        ([Reasoning(text='Hm.')], [Text(text='Yes.')])
        >>> parser.finish()
        []
        >>> parser.message
        Message(content='Yes.', reasoning='Hm.', tool_calls=[])
    """

    def __init__(
        self,
        read: Callable[[Reader, Writer], Step[None]],
        begun: str = "",
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        """Start with `read`, a generator, and with text of the prompt that belongs to the reply."""
        self._read: list[Part] = []
        self._reader = Reader(len(begun))
        self._writer = Writer(new_id, self._reader)
        self._steps = read(self._reader, self._writer)
        self.add(begun)

    def add(self, text: str) -> list[Part]:
        """Return the parts that the next piece of the reply makes certain."""
        if not isinstance(text, str):
            raise ArgumentError(f"add: text: expected text, got {shown(text)}")
        if self._reader.ended:
            raise StateError("add: the reply has ended")
        self._reader.add(text)
        return self._resume() if text else []

    def finish(self) -> list[Part]:
        """Return the parts that were held back, at the end of the reply."""
        if self._reader.ended:
            return []
        self._reader.ended = True
        self._resume_to_end()
        self._writer.finish()
        return self._taken()

    @property
    def message(self) -> Message:
        """What has been read so far."""
        return Message.of(self._read)

    @property
    def taken(self) -> int:
        """How many characters of the reply are parts or markers; what follows them is not known yet."""
        return self._reader.place

    @property
    def thinking(self) -> bool:
        """Whether the text so far ends within thoughts."""
        return self._writer.thinking

    def _resume(self) -> list[Part]:
        next(self._steps, None)
        return self._taken()

    def _resume_to_end(self) -> None:
        for _ in self._steps:
            pass

    def _taken(self) -> list[Part]:
        parts, self._writer.parts = self._writer.parts, []
        self._read += parts
        return parts
