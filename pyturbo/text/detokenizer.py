"""Tokens to text, one at a time."""

from __future__ import annotations

import codecs

from pyturbo.text.vocabulary import Vocabulary, token_id


class Detokenizer:
    """Gives out each character as soon as it is whole.

    What `add` and `finish` return, put together, is the text of all tokens. Bytes that are not UTF-8 become
    U+FFFD, one for each longest part that could begin a character. At most three bytes are held back.
    """

    def __init__(self, vocabulary: Vocabulary, skip_special: bool = True, continues: bool = False) -> None:
        """`continues`: the text goes on from another, so that a space in front of it is part of it."""
        self._vocabulary = vocabulary
        self._skip_special = skip_special
        self._leading_spaces = 0 if continues else vocabulary.leading_spaces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """The text that is complete with this token."""
        token = token_id("token", token)
        if self._skip_special and self._vocabulary.is_special(token):
            return ""
        return self._shown(self._decoder.decode(self._vocabulary.utf8(token)))

    def finish(self) -> str:
        """What is left: U+FFFD for a character that was begun and not ended."""
        return self._shown(self._decoder.decode(b"", final=True))

    def _shown(self, text: str) -> str:
        while self._leading_spaces and text:
            if not text.startswith(" "):
                self._leading_spaces = 0
                break
            text = text[1:]
            self._leading_spaces -= 1
        return text
