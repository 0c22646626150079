"""The interface of vocabularies, whatever files they come from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import index
from typing import Any, Protocol

from pyturbo._messages import shown
from pyturbo.errors import ArgumentError
from pyturbo.text.token_bound import TokenBound


class Vocabulary(Protocol):
    """A vocabulary: text to ids, and each id to its piece and to the bytes that it stands for."""

    size: int  # all ids are below it; some may have no token
    bos_id: int | None
    eos_ids: tuple[int, ...]
    leading_spaces: int  # spaces at the start of a decoded text that do not belong to it
    named_tokens: Mapping[str, str]  # bos_token, eos_token and others, for chat templates
    #: Texts of control tokens and of ends of a reply, which a message is never encoded to.
    special_texts: Collection[str]

    @property
    def bound(self) -> TokenBound | None:
        """What one token can stand for at most; None if that is not known."""

    def encode(self, text: str, special: bool) -> list[int]:
        """Return the ids of a text; `special` adds the tokens that begin and end one.

        In a `ChatText`, no token of `special_texts` spans a break.
        """

    def piece(self, token: int) -> str | None:
        """Return the token as the vocabulary spells it; None if there is none with this id."""

    def utf8(self, token: int) -> bytes:
        """Return the bytes that the token adds to a text, in UTF-8; a character may be incomplete."""

    def is_special(self, token: int) -> bool:
        """Return whether the token is left out of text that is shown."""


def token_id(what: str, value: Any) -> int:
    """Return an id that a caller gave as `what`; there need be no such token."""
    try:
        return index(value)
    except TypeError:
        raise ArgumentError(f"{what}: expected an integer, got {shown(value)}") from None
