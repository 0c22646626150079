"""Decoders of tokenizer.json, which turn pieces into text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyturbo._messages import shown
from pyturbo.errors import FormatError
from pyturbo.text import byte_level
from pyturbo.text.byte_fallback import byte_of

_ORDER = ("Replace", "ByteFallback", "Fuse", "Strip")


@dataclass(frozen=True)
class Decoding:
    """Decoding of byte-level pieces, or of SentencePiece: Replace, ByteFallback, Fuse, Strip, in this order.

    All bytes of a text are decoded together. If a run of byte tokens is not UTF-8, the package replaces every
    byte of the run; this class replaces only the wrong bytes, so that the run need not be held back.
    """

    byte_level: bool = False
    replacements: tuple[tuple[str, str], ...] = ()
    byte_fallback: bool = False
    leading_spaces: int = 0

    @classmethod
    def of(cls, decoder: dict[str, Any], where: str) -> Decoding:
        """Read the JSON of a decoder; messages start with `where`."""
        steps = decoder.get("decoders", []) if decoder.get("type") == "Sequence" else [decoder]
        if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
            raise FormatError(f"{where}: decoder: expected a list of objects, got {shown(steps)}")
        kinds = [step.get("type") for step in steps]
        if kinds == ["ByteLevel"]:
            return cls(byte_level=True)
        known = bool(kinds) and all(kind in _ORDER for kind in kinds)
        strips = [step for step in steps if step.get("type") == "Strip"]
        if (
            not known
            or kinds != sorted(kinds, key=_ORDER.index)
            or any(strip.get("content") != " " or strip.get("stop") for strip in strips)
            or (strips and (len(strips) > 1 or "Fuse" not in kinds))
        ):
            raise FormatError(
                f"{where}: decoder: expected ByteLevel, or Replace, ByteFallback, Fuse and Strip "
                f"of leading spaces, got {shown(kinds)}"
            )
        return cls(
            replacements=tuple(_replacement(step, where) for step in steps if step["type"] == "Replace"),
            byte_fallback="ByteFallback" in kinds,
            leading_spaces=strips[0].get("start", 0) if strips else 0,
        )

    def utf8(self, piece: str) -> bytes:
        """Return the bytes that a piece stands for."""
        if self.byte_level:
            return byte_level.piece_bytes(piece)
        for old, new in self.replacements:
            piece = piece.replace(old, new)
        byte = byte_of(piece) if self.byte_fallback else None
        return piece.encode("utf-8") if byte is None else byte


def _replacement(step: dict[str, Any], where: str) -> tuple[str, str]:
    pattern, new = step.get("pattern"), step.get("content")
    old = pattern.get("String") if isinstance(pattern, dict) else None
    if not old or not isinstance(old, str) or not isinstance(new, str):
        raise FormatError(f"{where}: decoder: expected to replace a text, got {shown(step)}")
    return old, new
