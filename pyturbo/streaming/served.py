"""A layer whose experts are brought into memory while a program runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from pyturbo import ops, recording
from pyturbo._buffer import Buffer
from pyturbo._host_loop import HostLoop


class Lookup(NamedTuple):
    """What `ops.find_slots` changes when it looks up experts in the table of a layer."""

    counts: Buffer
    slots: Buffer
    missing: Buffer


class ServedLayer:
    """The tables that kernels and host share for one layer, and the work of the host.

    Attributes:
        looks_ahead: Whether its host also reads what the next layer expects to need.
    """

    def __init__(
        self, table: Buffer, needed: Lookup, guessed: Lookup, loop: HostLoop, looks_ahead: bool
    ) -> None:
        """Take the slots of the experts, and where to note the experts that are needed and expected."""
        self.looks_ahead = looks_ahead
        self._table, self._needed, self._guessed, self._loop = table, needed, guessed, loop

    def expect(self, ids: Any) -> None:
        """Record that these choices [tokens, k] will probably be needed: the layer before has them read."""
        ops.find_slots(ids, self._table, *self._guessed)

    def request(self, ids: Any) -> None:
        """Record that these choices [tokens, k] are needed; what is recorded next runs meanwhile."""
        ops.find_slots(ids, self._table, *self._needed)
        recording.ask(self._loop)

    @contextmanager
    def passes(self) -> Iterator[Buffer]:
        """Record the work with the experts, once for every group of them that has become ready.

        Gives the slot of each expert in the pass that runs, int32 [experts]; negative: not in this pass.
        """
        with recording.passes():
            yield self._needed.slots
