"""Checksums of ranges of files, and how many records to process at once."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import xxhash

from pyturbo.checkpoint.file import TensorFile

_CHUNK = 4 << 20  # bytes read at a time
_MEMORY = 512 << 20  # bytes that all records in work may take together
_BLOCK_MEMORY = 24 << 20  # what one record takes for its blocks, when values are quantised


def chunks(file: TensorFile, offset: int, nbytes: int) -> Iterator[memoryview]:
    """Read a range of a file in parts, each of which is valid until the next is read."""
    buffer = np.empty(min(nbytes, _CHUNK), np.uint8)
    while nbytes:
        part = buffer[: min(nbytes, _CHUNK)]
        file.fill(part, offset)
        yield part.data
        offset, nbytes = offset + len(part), nbytes - len(part)


def range_checksum(file: TensorFile, offset: int, nbytes: int) -> str:
    """Return the checksum of a range of a file."""
    state = xxhash.xxh3_64()
    for chunk in chunks(file, offset, nbytes):
        state.update(chunk)
    return state.hexdigest()


def workers(work: int = 0) -> int:
    """Return how many records to process at once, if each takes `work` bytes beside its blocks."""
    return max(1, min(os.cpu_count() or 1, _MEMORY // (_BLOCK_MEMORY + work)))
