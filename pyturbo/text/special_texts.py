"""Search for the texts of special tokens in messages."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from pyturbo.text.chat_text import ChatText


class SpecialTexts:
    """The texts of a vocabulary's special tokens, except those of a single character."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._by_first: dict[str, tuple[str, ...]] = {}
        for text in sorted({text for text in texts if len(text) > 1}, key=len, reverse=True):
            self._by_first[text[0]] = (*self._by_first.get(text[0], ()), text)
        firsts = "".join(map(re.escape, self._by_first))
        self._first = re.compile(f"[{firsts}]") if firsts else None

    def plain(self, text: str) -> ChatText:
        """Return a text without special tokens: each one that it spells has a break in it."""
        return ChatText(text, (start + 1 for start in self._starts(text)))

    def in_any(self, value: Any) -> bool:
        """Return whether nested lists and mappings spell one anywhere."""
        if isinstance(value, str):
            return any(True for _ in self._starts(value))
        if isinstance(value, Mapping):
            return any(self.in_any(key) or self.in_any(entry) for key, entry in value.items())
        return isinstance(value, (list, tuple)) and (
            any(map(self.in_any, value)) or bool(self._joints(value))
        )

    def mark(self, value: Any, marker: str) -> Any:
        """Return a copy of nested lists and mappings with a marker at each break, other objects unchanged."""
        if isinstance(value, str):
            return self.plain(value).marked(marker)
        if isinstance(value, Mapping):
            return {self.mark(key, marker): self.mark(entry, marker) for key, entry in value.items()}
        if not isinstance(value, (list, tuple)):
            return value
        entries = [self.mark(entry, marker) for entry in value]
        for i in self._joints(value):
            text = text_of(entries[i]) or ""
            place = len(text.rstrip())
            entries[i] = with_text(entries[i], text[:place] + marker + text[place:])
        return entries

    def _starts(self, text: str) -> Iterator[int]:
        if self._first is not None:
            for match in self._first.finditer(text):
                if text.startswith(self._by_first[match[0]], match.start()):
                    yield match.start()

    def _joints(self, parts: Sequence[Any]) -> list[int]:
        """Return the parts of a message that end in the middle of a special text."""
        texts = [(text_of(part) or "").strip() for part in parts]
        if sum(map(bool, texts)) < 2:
            return []
        joined, ends = "".join(texts), list(accumulate(map(len, texts)))
        starts, furthest = [0], [0]  # starts of special texts, and the furthest end so far
        for start in self._starts(joined):
            longest = next(t for t in self._by_first[joined[start]] if joined.startswith(t, start))
            starts.append(start)
            furthest.append(max(furthest[-1], start + len(longest)))
        return [i for i, end in enumerate(ends) if texts[i] and furthest[bisect_left(starts, end) - 1] > end]


def text_of(part: Any) -> str | None:
    """Return the text of a part of a message: the part itself, or its entry of that name."""
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else None


def with_text(part: Any, text: str) -> Any:
    """Return the part with another text."""
    return {**part, "text": text} if isinstance(part, Mapping) else text


def strings(value: Any) -> Iterator[str]:
    """Yield all text in nested lists and mappings, including keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from strings(key)
            yield from strings(entry)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from strings(entry)
