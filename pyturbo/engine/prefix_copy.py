"""What a file has of the nodes of a prefix store, or will have once it is written."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyturbo.engine.prefix_file import Stored
from pyturbo.engine.prefix_parts import Block, Bytes
from pyturbo.errors import FileError

_NOTHING = Block(np.empty(0, np.uint8), None)


class DiskCopy:
    """Rows of a run of tokens, and perhaps the rest of the state after them, which a file has or will have.

    Until they are on disk they stay in memory, so that nobody waits for a disk.

    Attributes:
        start: Tokens before the first one.
        tokens: The run; it may be empty, if there is a rest only.
        before: What has the token before the first one; None at the beginning, and once it is on disk.
        stored: The file, once it is there.
        gone: Whether it was deleted, turned out to be damaged, or could not be written.
    """

    def __init__(
        self,
        start: int,
        tokens: NDArray[np.int32],
        before: DiskCopy | None,
        rows: Block | None,
        rest: Block | None,
    ) -> None:
        self.start, self.tokens, self.before = start, tokens, before
        self.stored: Stored | None = None
        self.gone = False
        self._unwritten: tuple[Block, Block] | None = (rows or _NOTHING, rest or _NOTHING)

    @classmethod
    def of(cls, stored: Stored) -> DiskCopy:
        """Return what a file has that was found."""
        copy = cls(stored.start, stored.tokens, None, None, None)
        copy.settle(stored)
        return copy

    def settle(self, stored: Stored | None) -> None:
        """Note that it was written, or could not be, and give its memory back."""
        self.stored, self.gone = stored, stored is None
        self._unwritten = self.before = None

    @property
    def end(self) -> int:
        """Tokens up to its last one."""
        return self.start + len(self.tokens)

    def rows(self) -> Bytes:
        """Return the rows; FormatError if they are not what was written, FileError if the file is gone."""
        unwritten = self._unwritten
        return self._file().rows() if unwritten is None else unwritten[0].data

    def rest(self) -> Bytes:
        """Return the rest, in the same way."""
        unwritten = self._unwritten
        return self._file().rest() if unwritten is None else unwritten[1].data

    def _file(self) -> Stored:
        if self.stored is None:
            raise FileError("a file of a prefix store could not be written")
        return self.stored
