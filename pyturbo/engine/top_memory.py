"""Where a program leaves the largest logits of its last tokens for the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyturbo import ops
from pyturbo._device import Device
from pyturbo._sampling import TopLogits
from pyturbo.layers.decoder import Decoder
from pyturbo.recording import Extent, Recorder, Tensor


class TopMemory:
    """Memory for `count` logits of each of `rows` tokens, which kernels and the host can both touch.

    A replay writes `used` of the rows: the first ones, or those from `first` on.
    """

    def __init__(
        self, device: Device, count: int, vocab: int, rows: int, used: Extent, first: Extent = 0
    ) -> None:
        self._count, self._vocab = count, vocab
        memory = device.shared(rows * (2 * count + 1))
        parts = (
            memory.view((rows, count)),
            memory.view((rows, count), np.int32, offset=4 * rows * count),
            memory.view(rows, offset=8 * rows * count),
        )
        self._tensors = [Tensor(part, part.shape, part.dtype).rows(first, used) for part in parts]
        self._values, self._tokens, self._totals = (part.numpy() for part in parts)

    def record(self, recorder: Recorder, logits: Any) -> tuple[Tensor, Tensor]:
        """Record the launches that find them; return the values and their tokens."""
        with recorder.into(*self._tensors):
            ops.top_logits(logits, self._count)
        return self._tensors[0], self._tensors[1]

    def read(self, row: int) -> TopLogits:
        """Return a copy of what the last replay found, after it is over."""
        return TopLogits(self._values[row], self._tokens[row], self._totals[row], self._vocab)


def finds_top(device: Device, network: Decoder) -> bool:
    """Return whether programs of the device find the largest logits."""
    return device.traits.top_logits > 0 and network.vocab <= ops.MAX_LOGITS


def top_memory(
    device: Device, network: Decoder, rows: int = 1, used: Extent | None = None
) -> TopMemory | None:
    """Return memory for the largest logits if programs of the device find them. `used` defaults to `rows`."""
    if not finds_top(device, network):
        return None
    count = min(device.traits.top_logits, network.vocab)
    return TopMemory(device, count, network.vocab, rows, rows if used is None else used)
