"""The tables of layers that kernels and an expert store share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyturbo._buffer import Buffer
from pyturbo._device import Device
from pyturbo._experts import ExpertStore
from pyturbo.streaming.served import Lookup, ServedLayer

_ROWS = ("table", "counts", "slots", "missing", "guesses")
_LINE = 16  # int32 values of a cache line


class ExpertTables:
    """The tables of the layers of one store, each of which has so many experts.

    Attributes:
        buffer: All of them: int32 [layers, rows, padded].
    """

    def __init__(self, device: Device, experts: Sequence[int]) -> None:
        self._experts = tuple(experts)
        width = -(-max(experts) // _LINE) * _LINE
        self.buffer = device.shared((len(experts), len(_ROWS), width), np.int32)
        self._unused = device.empty((2, width), np.int32)

    def layer(
        self, store: ExpertStore, number: int, following: int | None = None, guesses_ahead: bool = False
    ) -> ServedLayer:
        """Return a layer, whose host may read experts of the layer `following` while it works.

        It does if a chunk of tokens needs most experts, and with `guesses_ahead` what is expected of it.
        """
        experts = self._experts[number]
        table, slots = (self._row(number, name, experts, np.int32) for name in ("table", "slots"))
        counts, guesses = (self._row(number, name, experts, np.uint32) for name in ("counts", "guesses"))
        missing = self._row(number, "missing", 1, np.uint32)
        nowhere = self._unused.view((experts,)), self._unused.view((1,), np.uint32, self._unused.nbytes // 2)
        return ServedLayer(
            table,
            Lookup(counts, slots, missing),
            Lookup(guesses, *nowhere),
            store.loop(number, following),
            looks_ahead=guesses_ahead and following is not None,
        )

    def counts(self, number: int) -> NDArray[np.uint32]:
        """Return a copy of the counts of a layer."""
        row = self._row(number, "counts", self._experts[number], np.uint32)
        counts: NDArray[np.uint32] = row.numpy().copy()
        return counts

    def _row(self, number: int, name: str, extent: int, dtype: Any) -> Buffer:
        """Return one table of a layer."""
        width = self.buffer.shape[2]
        offset = (number * len(_ROWS) + _ROWS.index(name)) * width * np.dtype(np.int32).itemsize
        return self.buffer.view((extent,), dtype, offset)
