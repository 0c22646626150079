"""Fingerprints of checkpoints: the name, type and shape of every tensor, and bytes from all over them.

Every byte of a small checkpoint counts. Of a larger one, small tensors count whole and the others by samples
that are spread over them, so that the cost is bounded: of 200 GB about 40,000 pages are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from pyturbo._fork import open_in_children
from pyturbo.checkpoint.file import TensorFile
from pyturbo.checkpoint.tensors import TensorInfo, Tensors
from pyturbo.errors import StateError

WHOLE = 64 << 20  # bytes: a checkpoint up to this size is read whole
SMALL = 16 << 10  # bytes: a tensor up to this size is read whole
SAMPLE = 512  # bytes of one sample, all in one page
SAMPLES = 16384  # of a checkpoint, spread by size; each tensor has one, and each matrix of a stack

_AHEAD = 1024  # reads that the system is told of in advance


class Identity:
    """A hash over the tensors of a checkpoint, computed when it is first asked for.

    It depends on the bytes in the files alone, not on their distribution over shards. Until it is computed,
    the files stay open, even if the checkpoint is closed. Several threads may ask for it.
    """

    def __init__(self, checkpoint: Tensors) -> None:
        self._lock = open_in_children()
        self._digest: bytes | None = None
        self._infos = sorted(checkpoint.all_tensors(), key=lambda info: info.name)
        self._files: dict[int, TensorFile] = {}
        try:
            for info in self._infos:
                if id(info.file) not in self._files:
                    self._files[id(info.file)] = info.file.duplicate()
        except OSError:  # too many open files
            self._files = {id(info.file): info.file for info in self._infos}
            self.digest()

    def digest(self) -> bytes:
        with self._lock:
            if self._digest is None:
                if not self._files:
                    raise StateError("the model is closed")
                self._digest = self._compute()
                self._close_files()
            return self._digest

    def close(self) -> None:
        """Close the files. A digest that was not computed before is lost."""
        with self._lock:
            self._close_files()

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()
        self._infos, self._files = [], {}

    def _compute(self) -> bytes:
        total = sum(info.nbytes for info in self._infos)
        reads = [(info, *place) for info in self._infos for place in _places(info, total)]
        digest, last = hashlib.sha256(), None
        for first in range(0, len(reads), _AHEAD):
            batch = reads[first : first + _AHEAD]
            for info, offset, count in batch:
                self._files[id(info.file)].will_need(offset, count)
            for info, offset, count in batch:
                if info is not last:
                    digest.update(f"{info.name}\0{info.dtype}\0{info.shape}\0".encode(errors="replace"))
                    last = info
                digest.update(self._files[id(info.file)].bytes(offset, count))
        return digest.digest()


def _places(info: TensorInfo, total: int) -> Iterator[tuple[int, int]]:
    """Return offsets in the file and numbers of bytes to read; a stack has at least one for each matrix.

    Scales and biases of a stack have fewer, in proportion to their size.
    """
    if total <= WHOLE or info.nbytes <= SMALL:
        yield info.offset, info.nbytes
        return
    stacked = len(info.shape) > 2 and not info.name.endswith((".scales", ".biases"))
    matrices = info.shape[0] if stacked else 1
    each = max(1, SAMPLES * info.nbytes // (total * matrices))
    count = min(matrices * each, info.nbytes // SAMPLE)
    for i in range(count):
        start, end = info.nbytes * i // count, info.nbytes * (i + 1) // count - SAMPLE
        # The places vary between stretches: a fixed one could be the same column of each row.
        place = info.offset + start + ((end - start) * (i * 40503 % 65536) >> 16)
        yield max(info.offset + start, place - place % SAMPLE), SAMPLE
