"""Where the state of a conversation lies in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pyturbo._buffer import Buffer, host_empty
from pyturbo._device import Device
from pyturbo._machine import machine_memory
from pyturbo.errors import AllocationError
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.step import KvFormat, Piece
from pyturbo.recording import Tensor
from pyturbo.symbols import Place

_ALIGNMENT = 256  # of each piece of a conversation's state


class Layout:
    """Where each piece of a conversation's state lies in its one block of memory.

    Attributes:
        context: How many tokens there is room for.
        pieces: Offset, shape and type of each piece, by name.
        nbytes: Bytes of the block.
    """

    def __init__(self, context: int, pieces: dict[str, Piece]) -> None:
        self.context = context
        self.pieces: dict[str, tuple[int, tuple[int, ...], np.dtype[Any]]] = {}
        self.nbytes = 0
        self._axes = {name: piece.axis for name, piece in pieces.items()}
        self._recent = {name for name, piece in pieces.items() if piece.recent}
        for name, (shape, dtype, *_) in pieces.items():
            self.pieces[name] = (self.nbytes, shape, np.dtype(dtype))
            nbytes = math.prod(shape) * np.dtype(dtype).itemsize
            self.nbytes += -(-nbytes // _ALIGNMENT) * _ALIGNMENT

    def __repr__(self) -> str:
        return f"Layout(pieces={len(self.pieces)}, nbytes={self.nbytes})"

    @staticmethod
    def of(network: Decoder, context: int, chunk: int, kv: KvFormat) -> Layout:
        """Lay out `context` tokens, the logits of the last one, and what the layers keep for them.

        Up to `chunk` tokens are read at once.
        """
        pieces: dict[str, Piece] = {
            "tokens": Piece((context,), np.int32, axis=0),
            "logits": Piece((1, network.vocab), np.float32),
        }
        return Layout(context, pieces | network.state(context, chunk, kv))

    @property
    def cache_bytes(self) -> int:
        """The bytes of the cache of all layers: rows of keys and values, or of latents."""
        names = (name for name, axis in self._axes.items() if axis is not None and name != "tokens")
        return sum(math.prod(self._grid(name)) for name in names)

    def allocate(self, device: Device) -> Buffer:
        """Return a block of zeros, unless it is more than there is memory for."""
        own = device.memory
        most, where = machine_memory(), "the memory of this machine"
        if own is not None:
            most, where = own.free, "the memory of the device now"
        if device.working_set is not None and device.working_set < most:
            most, where = device.working_set, "the working set of the device"
        if self.nbytes > most:
            raise AllocationError(
                f"context: expected a conversation of at most {most} bytes, {where}, got "
                f"{self.nbytes} for {self.context} tokens"
            )
        return device.empty(self.nbytes, np.uint8)

    def tensors(self, block: str) -> dict[str, Tensor]:
        """Return the pieces as a program records them: places in the block of that name."""
        return {
            name: Tensor(Place(block, offset, math.prod(shape) * dtype.itemsize, dtype), shape, dtype)
            for name, (offset, shape, dtype) in self.pieces.items()
        }

    def piece(self, block: Buffer, name: str) -> Buffer:
        """Return one piece of a block."""
        offset, shape, dtype = self.pieces[name]
        return block.view(shape, dtype, offset=offset)

    def used_bytes(self, position: int) -> int:
        """Count the bytes that `used` gives."""
        total = 0
        for name in self.pieces:
            (outer, _, row), rows = self._grid(name), self._used_rows(name, position)
            total += outer * rows * row
        return total

    def used(self, block: Buffer, position: int) -> Iterator[Buffer]:
        """Yield the bytes in use after `position` tokens, without rows that no token has reached."""
        for name in self.pieces:
            rows = self._used_rows(name, position)
            for part in self._rows(block, name):
                yield part.view(rows * part.shape[1])

    def fill(self, block: Buffer, other: Layout, position: int, read: Callable[[Buffer], None]) -> None:
        """Write a state of another layout, after `position` tokens, into a block of this one.

        `read` fills buffers with the bytes that `other.used` gives, in that order. Contexts may differ, and
        rows of windows; the context of this one is at least `position`.
        """
        for name in self.pieces:
            (_, ring, row), rows = other._grid(name), other._used_rows(name, position)
            for part in self._rows(block, name):
                # A token is in the same row here and there, unless just one of two rings has gone round.
                room = part.shape[0]
                if rows <= room and (rows < ring or ring in (position, room)):
                    read(part.view(rows * row))
                    continue
                source = host_empty((rows, row), np.uint8)
                read(source.view(rows * row))
                tokens = np.arange(max(0, position - min(ring, room)), position)
                values = part.read()
                values[tokens % room] = source.numpy()[tokens % ring]
                part.write(values)

    def take(self, block: Buffer, other: Layout, state: Buffer, position: int) -> None:
        """Copy a state of another layout, after `position` tokens, into a block of this one; see `fill`."""
        stretches = other.used(state, position)
        self.fill(block, other, position, lambda target: target.write(next(stretches)))

    def can_be_cut(self, position: int) -> bool:
        """Return whether a state after `position` tokens holds every earlier one too.

        Rows of later tokens are then only in the way. What is not kept by token has no earlier state, nor has
        a ring that has gone round, unless its rows may be missing.
        """
        kept = (name for name in self.pieces if name != "logits" and name not in self._recent)
        return all(self._axes[name] is not None and position <= self._grid(name)[1] for name in kept)

    def clear(self, block: Buffer) -> None:
        """Make a block that of a conversation without tokens."""
        for name in self.pieces:
            if self._axes[name] is None:
                self.piece(block, name).clear()

    def _grid(self, name: str) -> tuple[int, int, int]:
        """See a piece as [outer, rows, bytes of a row]; one that does not grow with tokens is one row."""
        _, shape, dtype = self.pieces[name]
        axis = self._axes[name]
        if axis is None:
            return 1, 1, math.prod(shape) * dtype.itemsize
        return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]) * dtype.itemsize

    def _used_rows(self, name: str, position: int) -> int:
        return 1 if self._axes[name] is None else min(position, self._grid(name)[1])

    def _rows(self, block: Buffer, name: str) -> list[Buffer]:
        """Return the parts of a piece along its outer axis, each uint8 [rows, bytes of a row]."""
        (outer, rows, row), offset = self._grid(name), self.pieces[name][0]
        return [block.view((rows, row), np.uint8, offset=offset + part * rows * row) for part in range(outer)]
