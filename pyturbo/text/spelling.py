"""Texts in the middle of another, as tokens."""

from __future__ import annotations

from pyturbo.errors import FormatError
from pyturbo.text.vocabulary import Vocabulary

_MARK = "\x02"  # stands before a text whose first token would otherwise begin with a space


def tokens_inside(vocabulary: Vocabulary, text: str) -> list[int] | None:
    """Return the tokenizer's tokens of a text that follows another; None if they do not spell it.

    Special tokens are no spelling of their texts.
    """
    for before in ("", _MARK):
        ids = _after(vocabulary, before, _encoded(vocabulary, before + text))
        if _spelled(vocabulary, ids) == text.encode("utf-8") and not any(map(vocabulary.is_special, ids)):
            return ids
    return None


def _encoded(vocabulary: Vocabulary, text: str) -> list[int]:
    try:
        return vocabulary.encode(text, special=False)
    except FormatError:
        return []


def _spelled(vocabulary: Vocabulary, ids: list[int]) -> bytes:
    return b"".join(map(vocabulary.utf8, ids))


def _after(vocabulary: Vocabulary, mark: str, ids: list[int]) -> list[int]:
    """Return the tokens after those that spell the mark, perhaps with a space before it."""
    if not mark:
        return ids
    ends = (n for n in range(1, len(ids) + 1) if _spelled(vocabulary, ids[:n]).lstrip() == mark.encode())
    end = next(ends, None)
    return [] if end is None else ids[end:]
