"""A budget of tokens for the thoughts of a reply."""

from __future__ import annotations

from collections.abc import Callable

from pyturbo.text import Tokenizer


class ThoughtBudget:
    """Follows a reply to a chat: how many more tokens of thoughts it may have, and what ends them.

    Tokens after the marker that begins thoughts count, up to the marker that ends them. Thoughts are not cut
    within a character, and a marker that the model has begun is completed. One thread at a time.
    """

    def __init__(self, tokenizer: Tokenizer, chat: str, most: int) -> None:
        """Take the rendered chat before the reply, which may have begun thoughts."""
        self._tokenizer, self._dialect = tokenizer, tokenizer.dialect
        self._parser = self._dialect.parser(prompt=chat)
        self._detokenizer = tokenizer.detokenizer(continues=True, markers=self._dialect.markers)
        self._left = most
        self._closed = False  # whether thoughts were cut
        self._text, self._tail = "", b""  # the end of the reply

    @property
    def spent(self) -> bool:
        """Whether the thoughts must end here."""
        return self._parser.thinking and self._left <= 0

    def accept(self, token: int) -> None:
        """Go on after a token of the reply."""
        thinking = self._parser.thinking
        text = self._detokenizer.add(token)
        self._parser.add(text)
        self._left -= thinking and self._parser.thinking
        self._text = (self._text + text)[-64:]
        self._tail = self._tail_with(token)

    def has_room(self, token: int) -> bool:
        """Return whether a token of thoughts leaves room for the rest of its last character."""
        if not self._parser.thinking or self._left > 3:
            return True
        return _lacking(self._tail_with(token)) < self._left

    def closing(self, accepts: Callable[[list[int]], bool] | None = None) -> list[int]:
        """Return the tokens that end the thoughts, the first that a constraint `accepts`; [] if none."""
        for text in self._dialect.closings(again=self._closed):
            for tokens in self._spellings(text):
                if accepts is None or accepts(tokens):
                    self._closed = True
                    return tokens
        return []

    def _spellings(self, closing: str) -> list[list[int]]:
        """Return the tokens of a text of which the reply may have the beginning already."""
        begun = next((n for n in range(len(closing) - 1, 0, -1) if self._text.endswith(closing[:n])), 0)
        return [self._tokenizer.encode_inside(closing[start:]) for start in dict.fromkeys((begun, 0))]

    def _tail_with(self, token: int) -> bytes:
        return (self._tail + self._tokenizer.token_bytes(token))[-3:]


def _lacking(tail: bytes) -> int:
    """Return how many bytes of UTF-8 the last character lacks."""
    for place, byte in enumerate(reversed(tail), 1):
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return max(0, length - place)
        if byte < 0x80:
            return 0
    return 0
