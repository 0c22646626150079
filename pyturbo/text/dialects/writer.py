"""Collection of the parts of a reply."""

from __future__ import annotations

from collections.abc import Callable

from pyturbo.text.dialects.message import json_object
from pyturbo.text.dialects.parts import (
    Part,
    Reasoning,
    Text,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
)
from pyturbo.text.dialects.reader import SPACES, Reader

_BETWEEN = "\n\n"  # stands between two stretches of text, or of thoughts, that something else separated


class Writer:
    """Makes parts. White space next to markers is left out; all other text arrives unchanged.

    Attributes:
        parts: Those that nobody has taken.
        thinking: Whether thoughts have begun that have not ended.
    """

    def __init__(self, new_id: Callable[[], str], reader: Reader) -> None:
        """Take what names calls, and the reader from which text was taken just before it is written."""
        self.parts: list[Part] = []
        self.thinking = False
        self._new_id, self._reader = new_id, reader
        self._calls = 0
        self._arguments: list[str] = []  # of the call that is being written
        self._kind: type[Text] | type[Reasoning] = Text  # of the text written last
        self._written: set[type] = set()
        self._spaces = ""  # not written until it is known that no marker follows
        self._blank = True  # whether there is no text since the last marker
        self._marked = False  # whether there was a marker

    def text(self, piece: str) -> None:
        self._write(Text, piece)

    def reasoning(self, piece: str) -> None:
        self._write(Reasoning, piece)

    def mark(self) -> None:
        """Note that a marker was read here."""
        self._spaces, self._blank, self._marked = "", True, True

    def begin_thoughts(self) -> None:
        self.mark()
        self.thinking = True

    def end_thoughts(self) -> None:
        self.mark()
        self.thinking = False

    def begin_call(self, name: str) -> None:
        self.mark()
        self.parts.append(ToolCallBegin(self._calls, name, self._new_id()))
        self._arguments = []

    def arguments(self, fragment: str) -> None:
        if fragment:
            self.parts.append(ToolCallArguments(self._calls, fragment))
            self._arguments.append(fragment)

    @property
    def has_arguments(self) -> bool:
        """Whether the call has any arguments so far."""
        return bool(self._arguments)

    def end_call(self) -> None:
        """End the call. It is complete if its arguments are a JSON object."""
        self.parts.append(ToolCallEnd(self._calls, json_object("".join(self._arguments)) is not None))
        self._calls += 1
        self.mark()

    def finish(self) -> None:
        """End the reply, whose last spaces no marker follows."""
        if self._spaces:
            self._add(self._kind, self._spaces, len(self._spaces), self._reader.place)
            self._spaces = ""

    def _write(self, kind: type[Text] | type[Reasoning], piece: str) -> None:
        after_marker = self._blank and self._marked
        text = self._spaces + piece
        shown = text.rstrip(SPACES)
        self._spaces = "" if after_marker and not shown else text[len(shown) :]
        if not shown:
            return
        end = self._reader.place - len(text) + len(shown)
        if after_marker:
            shown = shown.lstrip(SPACES)
        between = _BETWEEN if after_marker and kind in self._written else ""
        self._add(kind, between + shown, len(shown), end)
        self._written.add(kind)
        self._kind, self._blank = kind, False

    def _add(self, kind: type[Text] | type[Reasoning], text: str, length: int, end: int) -> None:
        """Add a part that is `length` characters of the reply, up to `end`."""
        self.parts.append(Text(text, (end - length, end)) if kind is Text else Reasoning(text))
