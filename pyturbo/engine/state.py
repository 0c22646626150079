"""The state of one conversation: a block of memory of the device, and what the host sees of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyturbo._buffer import Buffer
from pyturbo._sampling import TopLogits
from pyturbo.engine.layout import Layout


class Mirror:
    """An array on the host with the values of a buffer: a view, or a copy if the host cannot touch that.

    A copy is brought up to date by `pull`, and its changes reach the buffer by `push`; for a view both do
    nothing.
    """

    def __init__(self, buffer: Buffer) -> None:
        self.array = buffer.numpy() if buffer.on_host else np.zeros(buffer.shape, buffer.dtype)
        self._buffer = None if buffer.on_host else buffer

    def pull(self) -> None:
        """Copy all values of the buffer."""
        if self._buffer is not None:
            self._buffer.read(self.array)

    def push(self, first: int, count: int) -> None:
        """Copy `count` values of one axis to the buffer, from `first` on."""
        if self._buffer is not None:
            part = self._buffer.view(count, offset=first * self.array.itemsize)
            part.write(self.array[first : first + count])


class State:
    """The block of a conversation, laid out by `layout`. Tokens and logits can be seen by the host.

    Attributes:
        layout: Where the pieces lie.
        block: The memory.
        tokens: int32 [context]: the tokens that have been read, and those that the next replay reads.
        top: The largest logits, if a replay has found them and nobody was given all logits, to change them.
    """

    def __init__(self, layout: Layout, block: Buffer) -> None:
        self.layout, self.block = layout, block
        self._tokens = Mirror(layout.piece(block, "tokens"))
        self._logits = Mirror(layout.piece(block, "logits"))
        self._fresh = True  # the logits on the host are those of the block
        self.tokens: NDArray[np.int32] = self._tokens.array
        self.top: TopLogits | None = None

    def put(self, first: int, ids: NDArray[np.int32]) -> None:
        """Set the tokens from position `first` on."""
        self.tokens[first : first + len(ids)] = ids
        self._tokens.push(first, len(ids))

    def changed(self) -> None:
        """Note that a replay has changed the logits."""
        self._fresh, self.top = False, None

    def logits(self) -> NDArray[np.float32]:
        """Return the logits of the last token, float32 [vocab]: an array that later calls change."""
        self.top = None
        if not self._fresh:
            self._logits.pull()
            self._fresh = True
        logits: NDArray[np.float32] = self._logits.array[0]
        return logits

    def views(self) -> dict[str, NDArray[Any]]:
        """Return every piece by name; those that the host cannot touch as copies."""
        self.top = None
        return {name: self.layout.piece(self.block, name).numpy() for name in self.layout.pieces}

    def copy(self, other: State, position: int) -> None:
        """Take over the state of another conversation after `position` tokens; the layouts may differ."""
        if self.layout.pieces == other.layout.pieces:
            self.block.write(other.block)
        else:
            self.layout.take(self.block, other.layout, other.block, position)
        self.refresh()
        self.top = other.top

    def clear(self) -> None:
        """Make it that of a conversation without tokens."""
        self.layout.clear(self.block)
        self.changed()

    def refresh(self) -> None:
        """Bring what the host sees up to date after the block was written."""
        self._tokens.pull()
        self.changed()
