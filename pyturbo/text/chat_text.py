"""The text of a chat, which knows where the text of a message spells a special token."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from operator import index
from typing import SupportsIndex

from pyturbo._messages import shown
from pyturbo.errors import ArgumentError

#: Noncharacters, which Unicode reserves for use inside a program.
_MARKERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]


class ChatText(str):
    """A text with places that no special token may span; `Tokenizer.encode` respects them.

    Slices and sums keep the places; the other methods of str return ordinary text.

    Attributes:
        breaks: The places, in order, each before the character at that index. Places at the ends of the text
            are left out, because nothing spans them.

    Examples:
        >>> from pyturbo.text import ChatText
        >>> text = ChatText("<user>A <user> is a person.", breaks=[9])  # within the second <user>
        >>> text[8:], text[8:].breaks
        ('<user> is a person.', (1,))
    """

    __slots__ = ("breaks",)

    breaks: tuple[int, ...]

    def __new__(cls, text: str, breaks: Iterable[int] = ()) -> ChatText:
        if not isinstance(text, str):
            raise ArgumentError(f"ChatText: text: expected text, got {shown(text)}")
        self = super().__new__(cls, text)
        self.breaks = _places(breaks, len(text))
        return self

    def __getnewargs__(self) -> tuple[str, tuple[int, ...]]:  # type: ignore[override]
        return str(self), self.breaks

    def __getitem__(self, key: SupportsIndex | slice) -> ChatText:
        text = super().__getitem__(key)
        if not isinstance(key, slice) or key.indices(len(self))[2] != 1:
            return ChatText(text)
        start = key.indices(len(self))[0]
        return ChatText(text, (place - start for place in self.breaks if start < place < start + len(text)))

    def __add__(self, other: str) -> ChatText:
        breaks = other.breaks if isinstance(other, ChatText) else ()
        return ChatText(super().__add__(other), (*self.breaks, *(place + len(self) for place in breaks)))

    def __radd__(self, other: str) -> ChatText:
        return ChatText(other) + self if isinstance(other, str) else NotImplemented

    def begins_with(self, other: ChatText) -> bool:
        """Return whether the text starts with another one, and with the same places in it."""
        return self.startswith(other) and self[: len(other)].breaks == other.breaks

    def marked(self, marker: str) -> str:
        """Return the text with a marker at each place."""
        text, edges = str(self), (0, *self.breaks, len(self))
        return marker.join(text[start:stop] for start, stop in pairwise(edges))

    @classmethod
    def unmarked(cls, text: str, marker: str) -> ChatText:
        """Return the ChatText of a text from `marked`."""
        parts = text.split(marker)
        return cls("".join(parts), accumulate(map(len, parts[:-1])))


def _places(breaks: Iterable[int], length: int) -> tuple[int, ...]:
    """Return the places in a text of this length, sorted and without duplicates."""
    places = set()
    try:
        for place in breaks:
            if not 0 <= index(place) <= length:
                raise TypeError
            places.add(index(place))
    except TypeError:
        wrong = breaks if isinstance(breaks, (list, tuple)) else [breaks]
        raise ArgumentError(
            f"ChatText: breaks: expected places from 0 to {length}, got {shown(wrong)}"
        ) from None
    return tuple(sorted(places.difference((0, length))))


def unused_markers(texts: Iterable[str], count: int = 1) -> list[str]:
    """Return characters that occur in none of the texts, neither as such nor as an escape of JSON."""
    everything = "\n".join(texts).lower()
    free = [
        marker for marker in _MARKERS if marker not in everything and f"{ord(marker):x}" not in everything
    ]
    if len(free) < count:
        raise ArgumentError("chat: expected text without noncharacters, got all of U+FDD0 to U+FDEF in it")
    return free[:count]
