"""How many tokens a text has at least, which is known before it is encoded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from string import ascii_letters
from typing import Any

import numpy as np

from pyturbo.text.byte_fallback import BYTE_PIECES
from pyturbo.text.byte_level import BYTE_OF_CHARACTER, piece_bytes

SPACE = "\u2581"  # SentencePiece writes this for a space

_WHITE, _LETTERS = b"\t\n\v\f\r ", ascii_letters.encode()
_SIGNS = bytes(byte for byte in range(128) if byte not in _WHITE + _LETTERS)
_IDEOGRAPHS = bytes(range(0xE4, 0xEA))  # first bytes of U+4000 to U+9FFF, which no normalisation changes
_OTHERS = bytes(byte for byte in range(128, 256) if byte not in _IDEOGRAPHS)

_CHARACTER = 4  # the most bytes of a character, which may be one unknown token


@dataclass(frozen=True)
class TokenBound:
    """What one token can stand for, at most.

    Attributes:
        most: For kinds of bytes, of which encoding loses none, the most of them in a token.
        composes: Whether characters are composed first (NFC). Ideographs and ASCII characters before other
            ASCII characters then stay as they are, and nothing else is counted.
    """

    most: Mapping[bytes, int]
    composes: bool = False

    @classmethod
    def of(
        cls, tokens: Iterable[bytes], lost: bytes, *, composes: bool = False, swallows: bool = False
    ) -> TokenBound:
        """Take what each token stands for, and the bytes that no token stands for.

        `swallows`: some tokens take the white space around them, too.
        """
        kinds = [_LETTERS, _SIGNS, _IDEOGRAPHS]
        if not swallows:
            kinds += [_WHITE] if composes else [_WHITE, _OTHERS]
        kinds = [kind.translate(None, lost) for kind in kinds]
        kinds.append(b"".join(kinds))
        others = [bytes(set(range(256)).difference(kind)) for kind in kinds]
        most = [_CHARACTER] * len(kinds)
        for token in tokens:
            if len(token) > min(most):
                most = [max(found, len(token.translate(None, rest))) for found, rest in zip(most, others)]
        return cls(dict(zip(kinds, most)), composes)

    def least(self, text: str) -> int:
        """Return a number of tokens that no encoding of the text is below."""
        data = text.encode("utf-8", "surrogatepass")
        if self.composes:
            values = np.frombuffer(data, np.uint8)
            stays = np.ones(len(values), bool)
            stays[:-1] = (values[:-1] >= 128) | (values[1:] < 128)
            data = values[stays].tobytes()
        return max(-(-_count(data, kind) // most) for kind, most in self.most.items())


def _count(data: bytes, kind: bytes) -> int:
    return len(data) - len(data.translate(None, kind))


def bound_of(
    pieces: Collection[str],
    whole: Iterable[str],
    hidden: Collection[str],
    *,
    byte_level: bool,
    unknown: bool = False,
    composes: bool = False,
    swallows: bool = False,
) -> TokenBound | None:
    """Return the bound of BPE; None if it leaves out whole characters for which it has no piece.

    `whole` are tokens that are found in a text before it is split, and `hidden` pieces that may not be used.
    `unknown`: a character without a piece is a token. The others are those of `TokenBound.of`.
    """
    tokens = {form for text in whole for form in _forms(text)}
    lost = b""
    if byte_level:
        lost = bytes(
            byte for piece, byte in BYTE_OF_CHARACTER.items() if piece not in pieces or piece in hidden
        )
        tokens.update(map(piece_bytes, pieces))
    elif unknown or all(piece in pieces and piece not in hidden for piece in BYTE_PIECES):
        tokens.update(form for text in pieces for form in _forms(text))
    else:
        return None
    return TokenBound.of(tokens, lost, composes=composes, swallows=swallows)


def _forms(text: str) -> tuple[bytes, bytes]:
    """Return what a token of SentencePiece stands for: its spaces are spaces, or written out in the text."""
    return text.encode(), text.replace(SPACE, " ").encode()


def bound_of_json(state: Mapping[str, Any], hidden: Collection[str]) -> TokenBound | None:
    """Return the bound of a tokenizer.json; None if it may leave out text, or has steps that are not known.

    `hidden` is that of `bound_of`.
    """
    model, added = state.get("model") or {}, state.get("added_tokens") or []
    normalizers = _steps(state.get("normalizer"), "normalizers")
    splits = _steps(state.get("pre_tokenizer"), "pretokenizers")
    kinds = [step.get("type") for step in splits]
    bpe = model.get("type") == "BPE" and not model.get("end_of_word_suffix")
    keeps_text = all(map(_normalizes_little, normalizers)) and all(map(_splits_only, splits))
    if not bpe or "ByteLevel" in kinds[:-1] or not keeps_text:
        return None
    byte_level, composes = kinds[-1:] == ["ByteLevel"], any(step["type"] == "NFC" for step in normalizers)
    if not byte_level and not model.get("byte_fallback"):
        hidden = {*hidden, *BYTE_PIECES}  # they are text like any other
    # A normalizer may put a space before the text of a token, too, and make ASCII of some characters.
    whole = [f" {token['content']}" for token in added]
    if composes:
        whole += [letter * len(text.encode()) for text in whole if not text.isascii() for letter in "a; "]
    return bound_of(
        model["vocab"],
        whole,
        hidden,
        byte_level=byte_level,
        unknown=not byte_level and model.get("unk_token") in model["vocab"] and not model.get("fuse_unk"),
        composes=composes,
        swallows=any(token.get("lstrip") or token.get("rstrip") for token in added),
    )


def _steps(part: Mapping[str, Any] | None, name: str) -> list[Mapping[str, Any]]:
    """Return the steps of a normalizer or of a pre-tokenizer."""
    if part is None:
        return []
    return (
        [step for each in part[name] for step in _steps(each, name)] if part["type"] == "Sequence" else [part]
    )


def _normalizes_little(step: Mapping[str, Any]) -> bool:
    """Return whether a normalizer leaves out no text, other than by composing characters."""
    if step.get("type") == "Replace":
        return step.get("pattern") == {"String": " "} and step.get("content") == SPACE
    return step.get("type") in ("NFC", "Prepend")


def _splits_only(step: Mapping[str, Any]) -> bool:
    """Return whether a pre-tokenizer leaves out no text."""
    kind = step.get("type")
    if kind == "Metaspace":
        return step.get("replacement") == SPACE
    if kind in ("Split", "Punctuation"):
        return step.get("behavior") != "Removed"
    return kind in ("ByteLevel", "Digits")
