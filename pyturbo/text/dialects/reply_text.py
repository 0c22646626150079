"""The text of a reply that arrives while nobody may ask for its parts."""

from __future__ import annotations

from collections.abc import Iterator

from pyturbo.text.dialects.message import Message
from pyturbo.text.dialects.parser import ReplyParser
from pyturbo.text.dialects.parts import Part


class ReplyText:
    """Collects text, and takes it apart when somebody asks for parts or for the message."""

    def __init__(self, parser: ReplyParser) -> None:
        self._parser = parser
        self._texts: list[str] = []  # that were not taken apart
        self._parts: list[Part] = []  # that nobody has taken
        self._ended = False

    def add(self, text: str) -> None:
        """Append the next piece of the reply."""
        self._texts.append(text)

    def end(self) -> None:
        """Note that there is no more text."""
        self._ended = True

    def parts(self) -> Iterator[Part]:
        """Yield the parts that are certain and that were not yielded before."""
        self._parse()
        while self._parts:
            yield self._parts.pop(0)

    @property
    def message(self) -> Message:
        """The reply so far."""
        self._parse()
        return self._parser.message

    def _parse(self) -> None:
        texts, self._texts = self._texts, []
        if texts:
            self._parts += self._parser.add("".join(texts))
        if self._ended:
            self._parts += self._parser.finish()
