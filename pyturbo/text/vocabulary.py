"""What a tokenizer needs to know of a vocabulary, wherever that comes from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import index
from typing import Any, Protocol

from pyturbo._messages import shown
from pyturbo.errors import ArgumentError


class Vocabulary(Protocol):
    """Text to ids, and each id to its piece and to the bytes that it stands for."""

    size: int  # all ids are below it; some may have no token
    bos_id: int | None
    eos_ids: tuple[int, ...]
    leading_spaces: int  # so many spaces at the start of a decoded text are not part of it
    named_tokens: Mapping[str, str]  # bos_token, eos_token and others, for chat templates
    special_texts: Collection[str]  # what a message may not be encoded as: control tokens, ends of a reply

    def encode(self, text: str, special: bool) -> list[int]:
        """Ids of a text; `special` adds the tokens that begin and end one.

        In a `ChatText` no token of `special_texts` comes out of what has a break in it.
        """

    def piece(self, token: int) -> str | None:
        """The token as the vocabulary spells it; None where there is none with this id."""

    def utf8(self, token: int) -> bytes:
        """What the token adds to a text, in UTF-8; it may hold a part of a character."""

    def is_special(self, token: int) -> bool:
        """Whether the token is left out of a text that people read."""


def token_id(what: str, value: Any) -> int:
    """Return an id that a caller gave as `what`; there need be no such token."""
    try:
        return index(value)
    except TypeError:
        raise ArgumentError(f"{what}: expected an integer, got {shown(value)}") from None
