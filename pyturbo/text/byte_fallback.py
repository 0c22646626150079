"""Pieces of a SentencePiece vocabulary that stand for one byte, such as <0x0A>."""

from __future__ import annotations

import re

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_of(piece: str) -> bytes | None:
    """Return the byte that a piece stands for, None if it stands for none."""
    match = _BYTE.fullmatch(piece)
    return bytes.fromhex(match[1]) if match else None
