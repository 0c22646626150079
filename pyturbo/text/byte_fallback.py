"""Pieces of a SentencePiece vocabulary that stand for one byte, such as <0x0A>."""

from __future__ import annotations

import re

#: The pieces of all bytes, as the `tokenizers` package looks for them.
BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(256))

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_of(piece: str) -> bytes | None:
    """Return the byte that a piece stands for, None if it stands for none."""
    match = _BYTE.fullmatch(piece)
    return bytes.fromhex(match[1]) if match else None
