"""The block types of GGUF: rows are blocks, each with the codes and scales of its values."""

from __future__ import annotations

from typing import NamedTuple

from pyturbo._messages import shown
from pyturbo.errors import ArgumentError


class BlockType(NamedTuple):
    bits: int  # of a code
    values: int  # of a block
    bytes: int

    @property
    def alignment(self) -> int:
        """The bytes that the start of a matrix is a multiple of."""
        return next(size for size in (16, 4, 2, 1) if self.bytes % size == 0)


#: By the name that GGML gives the type.
GGUF_TYPES = {
    "Q4_0": BlockType(4, 32, 18), "Q4_1": BlockType(4, 32, 20), "Q5_0": BlockType(5, 32, 22),
    "Q5_1": BlockType(5, 32, 24), "Q8_0": BlockType(8, 32, 34), "Q2_K": BlockType(2, 256, 84),
    "Q3_K": BlockType(3, 256, 110), "Q4_K": BlockType(4, 256, 144), "Q5_K": BlockType(5, 256, 176),
    "Q6_K": BlockType(6, 256, 210), "IQ4_NL": BlockType(4, 32, 18), "IQ4_XS": BlockType(4, 256, 136),
    "MXFP4": BlockType(4, 32, 17),
}  # fmt: skip


def check_type(op: str, kind: str) -> BlockType:
    """Return the type of that name."""
    if not isinstance(kind, str) or kind not in GGUF_TYPES:
        raise ArgumentError(f"{op}: kind: expected one of {', '.join(GGUF_TYPES)}, got {shown(kind)}")
    return GGUF_TYPES[kind]
