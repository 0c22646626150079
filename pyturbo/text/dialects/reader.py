"""The text of a reply as it arrives, for parsers that are generators.

A generator yields wherever it needs more text, and is resumed when there is some or when the reply has ended.
It decides only what later text cannot change, so the result does not depend on how the text was divided.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import TypeVar

Result = TypeVar("Result")
#: A piece of a parser: it yields to ask for more text, and returns a result.
Step = Generator[None, None, Result]

#: What counts as white space around markers and in JSON.
SPACES = " \t\r\n"


class Reader:
    """Text that has arrived and is not taken yet. Places are counted from its start."""

    def __init__(self, begun: int = 0) -> None:
        """Take how many characters that arrive first are of the prompt."""
        self.text = ""
        self.ended = False  # whether this is all
        self._arrived = -begun

    @property
    def place(self) -> int:
        """How many characters of the reply were taken."""
        return self._arrived - len(self.text)

    def add(self, text: str) -> None:
        """Append text that has arrived."""
        self.text += text
        self._arrived += len(text)

    def take(self, count: int) -> str:
        """Remove text from the front."""
        taken, self.text = self.text[:count], self.text[count:]
        return taken

    def more(self) -> Step[bool]:
        """Wait for more text; False at the end of the reply."""
        before = len(self.text)
        while len(self.text) == before and not self.ended:
            yield
        return len(self.text) > before

    def has(self, place: int) -> Step[bool]:
        """Return whether there is a character at a place."""
        while len(self.text) <= place:
            if not (yield from self.more()):
                return False
        return True

    def after_spaces(self, place: int = 0) -> Step[int]:
        """Return the first place from `place` on that has no white space, or the end of the reply."""
        while (yield from self.has(place)) and self.text[place] in SPACES:
            place += 1
        return place

    def is_at(self, place: int, literal: str) -> Step[bool]:
        """Return whether a literal text stands at a place."""
        while True:
            found = self.text[place : place + len(literal)]
            if found == literal or not literal.startswith(found):
                return found == literal
            if not (yield from self.more()):
                return False

    def find(self, literals: Sequence[str], place: int = 0) -> Step[tuple[int, str]]:
        """Return the first place with one of the literals, and which; at the end of the reply that and ""."""
        longest = max(map(len, literals))
        while True:
            found, literal = first_of(self.text, literals, place)
            if literal:
                return found, literal
            place = max(place, len(self.text) - longest + 1)
            if not (yield from self.more()):
                return len(self.text), ""

    def copy_until(self, literals: Sequence[str], write: Callable[[str], None]) -> Step[str]:
        """Take text and write it, up to one of the literals, which is taken and returned; "" at the end."""
        while True:
            place, literal = first_of(self.text, literals)
            if literal:
                write(self.take(place))
                self.take(len(literal))
                return literal
            write(self.take(len(self.text) - _begun(self.text, literals)))
            if not (yield from self.more()):
                write(self.take(len(self.text)))
                return ""


def first_of(text: str, literals: Sequence[str], place: int = 0) -> tuple[int, str]:
    """Return the first place of any of the literals, and which; the length of the text and "" without one."""
    if not any(first in text for first in _firsts(tuple(literals))):
        return len(text), ""
    found = [(text.find(literal, place), literal) for literal in literals]
    return min(((at, literal) for at, literal in found if at >= 0), default=(len(text), ""))


def _begun(text: str, literals: Sequence[str]) -> int:
    """Return the length of the longest end of the text that may become one of the literals."""
    firsts = _firsts(tuple(literals))
    for place in range(max(0, len(text) - max(map(len, literals), default=1) + 1), len(text)):
        if text[place] in firsts and any(literal.startswith(text[place:]) for literal in literals):
            return len(text) - place
    return 0


@lru_cache(256)
def _firsts(literals: tuple[str, ...]) -> frozenset[str]:
    """Return the characters that the literals begin with: most pieces of text have none of them."""
    return frozenset(literal[0] for literal in literals)
