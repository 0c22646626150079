"""Pieces of byte-level BPE: every byte of UTF-8 is written as one printable character.

Bytes that are printable in Latin-1 stand for themselves; the others, in order, are U+0100 and following.
"""

from __future__ import annotations

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = sorted(set(range(256)) - set(_PRINTABLE))

BYTE_OF_CHARACTER = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + place): byte for place, byte in enumerate(_OTHERS)
}


def piece_bytes(piece: str) -> bytes:
    """Return the bytes that a piece stands for; a piece with any other character stands for itself."""
    try:
        return bytes(BYTE_OF_CHARACTER[character] for character in piece)
    except KeyError:
        return piece.encode("utf-8")
