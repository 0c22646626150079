"""The vocabulary of a tokenizer.json, with the settings of tokenizer_config.json."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tokenizers

from pyturbo._messages import shown
from pyturbo._once import once
from pyturbo.checkpoint import json_file
from pyturbo.checkpoint.tokenizer import TokenizerSource
from pyturbo.errors import FormatError
from pyturbo.text.chat_text import ChatText, unused_markers
from pyturbo.text.decoding import Decoding
from pyturbo.text.guarded_tokenizer import GuardedTokenizer
from pyturbo.text.package import encoded, is_encodable, package_errors
from pyturbo.text.token_bound import TokenBound, bound_of_json


class HuggingFaceVocabulary:
    """A vocabulary that encodes with the `tokenizers` package, and decodes as its decoder describes."""

    def __init__(self, source: TokenizerSource) -> None:
        if source.path is None:
            raise FormatError("tokenizer: expected a tokenizer.json beside the weights, found none")
        #: All of tokenizer.json: the file may be gone or replaced when it is needed again.
        self._content = json_file.read_bytes(source.path)
        self._tokenizer, decoder = _parsed(self._content, source.path)
        self._decoding = Decoding.of(decoder, str(source.path))
        self.leading_spaces = self._decoding.leading_spaces
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = {token for token, entry in added.items() if entry.special}
        self.size = max(self._tokenizer.get_vocab().values(), default=-1) + 1
        if not self.size:
            raise FormatError(f"{source.path}: expected a vocabulary, got an empty one")
        self.named_tokens: Mapping[str, str] = named_tokens(source.settings)
        bos, eos = (self._id(name) for name in ("bos_token", "eos_token"))
        self.bos_id = source.bos_id if bos is None else bos
        ends = (*source.eos_ids, *(() if eos is None else (eos,)))
        self.eos_ids = tuple(dict.fromkeys(ends))
        self._around = _around(source.settings, bos, eos)
        hidden = {*self._special, *self.eos_ids, self.bos_id}
        self.special_texts: Collection[str] = {
            entry.content for token, entry in added.items() if token in hidden
        }
        #: Whether normalisation may turn a text without special tokens into one with them.
        self._normalizes = self._tokenizer.normalizer is not None and any(
            entry.normalized for entry in added.values() if entry.content in self.special_texts
        )
        self._guarded: dict[str, GuardedTokenizer] = {}  # tokenizers by their marker
        self._utf8: dict[int, bytes] = {}

    def encode(self, text: str, special: bool) -> list[int]:
        if isinstance(text, ChatText) and (text.breaks or self._normalizes):
            before, after = self._added() if special else ([], [])
            return [*before, *self._encode_guarded(text), *after]
        if self._around is None:
            return encoded(self._tokenizer, text, special)
        ids = encoded(self._tokenizer, text)
        before, after = self._around if special else ([], [])
        return before + ids + after

    def _encode_guarded(self, text: ChatText) -> list[int]:
        (marker,) = unused_markers([text])
        if marker not in self._guarded:
            with package_errors("a text that spells special tokens cannot be encoded"):
                state = json_file.parse_object(self._content, "tokenizer.json")
                self._guarded[marker] = GuardedTokenizer(self._tokenizer, state, self.special_texts, marker)
        return self._guarded[marker].encode(text.marked(marker))

    def _added(self) -> tuple[list[int], list[int]]:
        """Return the tokens added before and after a text."""
        if self._around is not None:
            return self._around
        encoding = self._tokenizer.encode("a", add_special_tokens=True)
        inside = [i for i, added in enumerate(encoding.special_tokens_mask) if not added] or [0]
        return encoding.ids[: inside[0]], encoding.ids[inside[-1] + 1 :]

    @once
    def bound(self) -> TokenBound | None:
        return bound_of_json(json_file.parse_object(self._content, "tokenizer.json"), self.special_texts)

    def piece(self, token: int) -> str | None:
        return self._tokenizer.id_to_token(token) if 0 <= token < self.size else None

    def utf8(self, token: int) -> bytes:
        known = self._utf8.get(token)
        if known is None:
            known = self._utf8[token] = self._decoding.utf8(self.piece(token) or "")
        return known

    def is_special(self, token: int) -> bool:
        return token in self._special

    def _id(self, name: str) -> int | None:
        text = self.named_tokens.get(name)
        return None if text is None else self._tokenizer.token_to_id(text)


def named_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return bos_token, eos_token and others, each given as text or as an object with that content."""
    named = {}
    for name, value in settings.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            if not is_encodable(text):
                raise FormatError(
                    f"tokenizer_config.json: {shown(name)}: expected whole characters, got {shown(text)}"
                )
            named[name] = text
    return named


def _parsed(content: bytes, path: Path) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    """Return the tokenizer, and the decoder as it is in the file."""
    data = json_file.parse_object(content, str(path))
    model, decoder = (data[name] if isinstance(data.get(name), dict) else {} for name in ("model", "decoder"))
    if model.get("continuing_subword_prefix"):  # this may make the package abort the process
        raise FormatError(f"{path}: expected a model without continuing_subword_prefix")
    with package_errors(f"{path}: not a tokenizer"):
        tokenizer = tokenizers.Tokenizer.from_buffer(content)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode("a")
    return tokenizer, decoder


def _around(
    settings: Mapping[str, Any], bos: int | None, eos: int | None
) -> tuple[list[int], list[int]] | None:
    """Return the tokens before and after a text; None leaves them to the post-processor of tokenizer.json."""
    flags = [settings.get(name) for name in ("add_bos_token", "add_eos_token")]
    if not any(isinstance(flag, bool) for flag in flags):
        return None
    before, after = ([token] if flag and token is not None else [] for flag, token in zip(flags, (bos, eos)))
    return before, after
