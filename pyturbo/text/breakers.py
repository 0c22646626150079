"""Texts at which the DRY penalty stops counting repetitions, as tokens."""

from __future__ import annotations

from collections.abc import Iterator

from pyturbo.text.spelling import tokens_inside
from pyturbo.text.vocabulary import Vocabulary

_LONGEST = 20  # tokens after the first


def breaker_tokens(vocabulary: Vocabulary, text: str) -> list[tuple[int, ...]]:
    """Return the sequences of tokens that a text is in, or that it begins in the first token of."""
    return sorted(
        {sequence for token in range(vocabulary.size) for sequence in _beginning(vocabulary, token, text)}
    )


def _beginning(vocabulary: Vocabulary, token: int, text: str) -> Iterator[tuple[int, ...]]:
    """Yield the sequences that begin with a token."""
    wanted, found = text.encode("utf-8"), vocabulary.utf8(token)
    if wanted in found:
        yield (token,)
        return
    for length in range(1, len(text)):
        if found.endswith(text[:length].encode("utf-8")):
            rest = tokens_inside(vocabulary, text[length:])
            if rest is not None:
                yield (token, *rest[:_LONGEST])
