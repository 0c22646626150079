"""The tokens of a vocabulary, as the package llguidance takes them."""

from __future__ import annotations

from pyturbo._once import once
from pyturbo.text.spelling import tokens_inside
from pyturbo.text.vocabulary import Vocabulary

_SPECIAL = 0xFF  # no UTF-8 has this byte; the package puts it before the texts of special tokens
_LONGEST = 1000  # bytes; the package cannot take tokens of more than 1024


class GrammarTokens:
    """The bytes of every token, and texts as tokens. Special tokens and ends of a reply are not text.

    Attributes:
        tokens: The bytes by token, b"" for one that no text has.
        special_token_ids: Tokens that a grammar names by their text, such as <|im_start|>.
        ends: The tokens that end a reply.
        eos_token_id: One of them; None if there are none.
        bos_token_id: None; no text needs it.
        is_tokenizer_wrapper: True; the package asks for it.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, size: int) -> None:
        """Take the tokens below `size`, the number of logits."""
        self._vocabulary = vocabulary
        self.ends = [token for token in vocabulary.eos_ids if token < size]
        self.eos_token_id = self.ends[0] if self.ends else None
        special = {*self.ends, *filter(vocabulary.is_special, range(min(size, vocabulary.size)))}
        self.special_token_ids = sorted(special)
        self.tokens = [
            self._special_text(token) if token in special else self._text(token) for token in range(size)
        ]

    def _special_text(self, token: int) -> bytes:
        return (self._vocabulary.piece(token) or "").encode("utf-8")

    def _text(self, token: int) -> bytes:
        text = self._vocabulary.utf8(token) if token < self._vocabulary.size else b""
        return b"" if len(text) > _LONGEST or _SPECIAL in text else text

    def __call__(self, text: str) -> list[int]:
        """Return tokens that spell a text inside of a reply: those of the tokenizer, if they do."""
        ids = tokens_inside(self._vocabulary, text)
        if ids is None or not all(token < len(self.tokens) and self.tokens[token] for token in ids):
            return self._longest_first(text.encode("utf-8"))
        return ids

    def _longest_first(self, text: bytes) -> list[int]:
        """Return the longest token that the text begins with, then that of the rest, and so on."""
        ids, begin = [], 0
        while begin < len(text):
            ends = range(min(len(text), begin + _LONGEST), begin, -1)
            end = next((end for end in ends if text[begin:end] in self._by_text), None)
            if end is not None:
                ids.append(self._by_text[text[begin:end]])
            begin = begin + 1 if end is None else end  # a byte without a token is left out
        return ids

    @once
    def _by_text(self) -> dict[bytes, int]:
        special = set(self.special_token_ids)
        return {text: i for i, text in enumerate(self.tokens) if text and i not in special}
