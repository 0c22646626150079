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

    A replay writes the first `used` rows.
    """

    def __init__(self, device: Device, count: int, vocab: int, rows: int, used: Extent) -> None:
        self._count, self._vocab = count, vocab
        memory = device.shared(rows * (2 * count + 1))
        parts = (
            memory.view((rows, count)),
            memory.view((rows, count), np.int32, offset=4 * rows * count),
            memory.view(rows, offset=8 * rows * count),
        )
        self._tensors = [Tensor(part, (used, *part.shape[1:]), part.dtype) for part in parts]
        self._values, self._tokens, self._totals = (part.numpy() for part in parts)

    def record(self, recorder: Recorder, logits: Any) -> None:
        """Record the launches that find them."""
        with recorder.into(*self._tensors):
            ops.top_logits(logits, self._count)

    def read(self, row: int) -> TopLogits:
        """Return a copy of what the last replay found, after it is over."""
        return TopLogits(self._values[row], self._tokens[row], self._totals[row], self._vocab)


def top_memory(
    device: Device, network: Decoder, rows: int = 1, used: Extent | None = None
) -> TopMemory | None:
    """Return memory for the largest logits if programs of the device find them; `used` defaults to `rows`."""
    count = min(device.traits.top_logits, network.vocab)
    if not count or network.vocab > ops.MAX_LOGITS:
        return None
    return TopMemory(device, count, network.vocab, rows, rows if used is None else used)
