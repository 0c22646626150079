"""Decoding of tokens to text, one token at a time."""

from __future__ import annotations

import codecs
from collections.abc import Collection

from pyturbo.text.vocabulary import Vocabulary, token_id


class Detokenizer:
    """A decoder that returns each character as soon as it is complete.

    The results of `add` and `finish`, joined, are the text of all tokens. Bytes that are not UTF-8 become
    U+FFFD, one for each longest part that could begin a character. At most three bytes are held back.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        skip_special: bool = True,
        continues: bool = False,
        markers: Collection[str] = (),
    ) -> None:
        """Start a text. With `continues` it follows another text, and a leading space belongs to it.

        `markers` are texts of special tokens that are never left out.
        """
        self._vocabulary = vocabulary
        self._skip_special = skip_special
        self._markers = frozenset(markers)
        self._leading_spaces = 0 if continues else vocabulary.leading_spaces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """Return the text that this token completes."""
        token = token_id("token", token)
        if self._skip_special and self._vocabulary.is_special(token) and not self._is_marker(token):
            return ""
        return self._shown(self._decoder.decode(self._vocabulary.utf8(token)))

    def finish(self) -> str:
        """Return the rest of the text: U+FFFD for an incomplete character."""
        return self._shown(self._decoder.decode(b"", final=True))

    def _is_marker(self, token: int) -> bool:
        return bool(self._markers) and self._vocabulary.piece(token) in self._markers

    def _shown(self, text: str) -> str:
        while self._leading_spaces and text:
            if not text.startswith(" "):
                self._leading_spaces = 0
                break
            text = text[1:]
            self._leading_spaces -= 1
        return text
