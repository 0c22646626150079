"""A layer whose experts are brought into memory while a program runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyturbo import ops, recording
from pyturbo._host_loop import HostLoop
from pyturbo._native import Buffer


class ServedLayer:
    """The tables that kernels and host share for one layer, and the work of the host.

    Attributes:
        slots: The slot of each expert in the pass that runs, int32 [experts]; negative: not in this pass.
    """

    def __init__(self, table: Buffer, counts: Buffer, slots: Buffer, missing: Buffer, loop: HostLoop) -> None:
        """Take the layer's tables (`ops.find_slots` says what is in them)."""
        self.slots = slots
        self._table, self._counts, self._missing, self._loop = table, counts, missing, loop

    def request(self, ids: Any) -> None:
        """Record that these choices [tokens, k] are needed; what is recorded next runs meanwhile."""
        ops.find_slots(ids, self._table, self._counts, self.slots, self._missing)
        recording.ask(self._loop)

    @contextmanager
    def passes(self) -> Iterator[Buffer]:
        """Record the work with the experts, once for every group of them that has become ready."""
        with recording.passes():
            yield self.slots
