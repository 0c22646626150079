"""How states are taken apart to be kept: rows that belong to tokens, and what there is once."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyturbo.engine.layout import Layout
from pyturbo.engine.state import State
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.step import KvFormat

Bytes = NDArray[np.uint8]


class Block(NamedTuple):
    """Bytes in memory, which `owner` counts for as long as it lives."""

    data: Bytes
    owner: Any


class StateParts:
    """The parts of the states of one model, whatever their context.

    *Rows* belong to one token each: keys, values, latents. A state after fewer tokens has the first of them.
    The *rest* is valid after a number of tokens only: the memory of delta nets, rings of windows, the exact
    rows of the last tokens beside compressed ones, and logits.

    Attributes:
        row_bytes: Bytes of the rows of one token.
        needs_rest: Whether a state cannot do without the rest. If it can, only logits are missing, which
            reading the last token once more gives.
        digest: A hash of names, types and sizes of all parts.
    """

    def __init__(self, network: Decoder, chunk: int, kv: KvFormat) -> None:
        self.context, self.vocab = int(network.context), int(network.vocab)
        largest = Layout.of(network, self.context, chunk, kv)
        grids = {name: largest._grid(name) for name in largest.pieces if name != "tokens"}
        #: Where the rows of a piece begin among those of a token, as [outer, bytes of a row].
        self._rows: dict[str, tuple[int, int, int]] = {}
        #: The rest: outer parts, the most rows that are kept, and bytes of a row.
        self._rest: dict[str, tuple[int, int, int]] = {}
        self.row_bytes = 0
        for name, (outer, rows, row) in grids.items():
            if largest._axes[name] is not None and name not in largest._recent and rows == self.context:
                self._rows[name] = (self.row_bytes, outer, row)
                self.row_bytes += outer * row
            else:
                self._rest[name] = (outer, rows, row)
        self.needs_rest = list(self._rest) != ["logits"]
        kinds = [(name, largest.pieces[name][2].str, *grid) for name, grid in grids.items()]
        self.digest = hashlib.sha256(repr((kinds, self.context, self.vocab)).encode()).hexdigest()

    def rows(self, state: State, first: int, count: int) -> Bytes:
        """Copy the rows of `count` tokens, from `first` on."""
        copy = np.empty(count * self.row_bytes, np.uint8)
        for name, row, parts in self._parts(copy, count):
            for part, target in zip(state.layout._rows(state.block, name), parts):
                part.view(count * row, offset=first * row).read(target)
        return copy

    def put_rows(self, state: State, first: int, rows: Bytes, total: int, count: int) -> None:
        """Write the first `count` of the rows of `total` tokens into a state, from token `first` on."""
        for name, row, parts in self._parts(rows, total):
            for part, source in zip(state.layout._rows(state.block, name), parts):
                part.view(count * row, offset=first * row).write(source[: count * row])

    def cut(self, rows: Bytes, total: int, first: int, count: int) -> Bytes:
        """Copy the rows of `count` of `total` tokens, from `first` on."""
        copy = np.empty(count * self.row_bytes, np.uint8)
        for (_, row, source), (*_, target) in zip(self._parts(rows, total), self._parts(copy, count)):
            target[:] = source[:, first * row : (first + count) * row]
        return copy

    def equal_rows(self, rows: Bytes, total: int, first: int, others: Bytes, count: int) -> int:
        """Return how many of `count` tokens have the same rows in `others`, and in `rows` from `first` on."""
        equal = count
        for (_, row, mine), (*_, theirs) in zip(self._parts(rows, total), self._parts(others, count)):
            one = mine.reshape(len(mine), total, row)[:, first : first + equal]
            other = theirs.reshape(len(mine), count, row)[:, :equal]
            if not np.array_equal(one, other):
                equal = int((one != other).any(axis=(0, 2)).argmax())
        return equal

    def _parts(self, rows: Bytes, count: int) -> list[tuple[str, int, Bytes]]:
        """See the rows of `count` tokens as [outer, bytes] for each piece, with the bytes of one row."""
        return [
            (name, row, rows[count * begin : count * (begin + outer * row)].reshape(outer, count * row))
            for name, (begin, outer, row) in self._rows.items()
        ]

    def rest_bytes(self, position: int) -> int:
        """Return the bytes of the rest of a state after `position` tokens."""
        return sum(outer * self._kept(name, position) * row for name, (outer, _, row) in self._rest.items())

    def rest(self, state: State, position: int) -> Bytes:
        """Copy the rest of a state after `position` tokens; rings begin with their oldest token."""
        copy = np.empty(self.rest_bytes(position), np.uint8)
        for name, part, target in self._rest_parts(state, copy, position):
            where = self._places(name, part.shape[0], position)
            if where is None:
                part.view(target.size).read(target.reshape(-1))
            else:
                target[:] = part.read()[where]
        return copy

    def put_rest(self, state: State, rest: Bytes, position: int) -> None:
        """Write the rest into a state after `position` tokens."""
        for name, part, source in self._rest_parts(state, rest, position):
            where = self._places(name, part.shape[0], position)
            if where is None:
                part.view(source.size).write(source.reshape(-1))
            else:
                values = part.read()
                values[where] = source
                part.write(values)

    def _kept(self, name: str, position: int) -> int:
        """Return the rows of a piece of the rest that are in use; one without rows for tokens is one row."""
        rows = self._rest[name][1]
        return min(position, rows) if self._is_ring(name) else rows

    def _is_ring(self, name: str) -> bool:
        return self._rest[name][1] > 1

    def _places(self, name: str, rows: int, position: int) -> Any:
        """Return where the last tokens are in a ring of `rows` rows, from old to new; None: it is no ring."""
        if not self._is_ring(name):
            return None
        return np.arange(position - self._kept(name, position), position) % rows

    def _rest_parts(self, state: State, rest: Bytes, position: int) -> list[tuple[str, Any, Bytes]]:
        """Return the parts of the rest along outer axes: in a state, and here as [rows, bytes of a row]."""
        found, begin = [], 0
        for name, (outer, _, row) in self._rest.items():
            rows = self._kept(name, position)
            for part in state.layout._rows(state.block, name)[:outer]:
                found.append((name, part, rest[begin : begin + rows * row].reshape(rows, row)))
                begin += rows * row
        return found
