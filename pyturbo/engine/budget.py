"""The memory that a model may take: what its experts get is what everything else leaves."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

from pyturbo._machine import resident_memory
from pyturbo._messages import least_size, size
from pyturbo.errors import AllocationError
from pyturbo.streaming import StreamedExperts

#: Bytes that stay free for what Python and the system allocate between two looks at the process.
HEADROOM = 32 << 20

_STEP = 4 << 20  # bytes: smaller changes of a process do not move slots


class Budget:
    """Bytes for a process. States and programs come first; experts get the rest, if they are streamed.

    Memory that nobody has announced is found by looking at the process, and taken from the experts. Slots are
    resized only by `take` and `share`, which need that no program is running.

    Attributes:
        total: All bytes that may be used.
        fixed: Bytes in use for as long as the model is: weights, and the process itself.
        experts: The slots; None if all weights are in memory.
    """

    def __init__(self, total: int, fixed: int, experts: StreamedExperts | None = None) -> None:
        self.total, self.fixed, self.experts = total, fixed, experts
        self._taken: dict[int, int] = {}  # bytes by number of the owner
        self._numbers = itertools.count()
        self._excess = 0  # bytes of the process that nobody has announced

    @property
    def left(self) -> int:
        """Bytes for slots of experts, or for more states and programs."""
        return self.total - HEADROOM - self._announced() - self._excess

    @property
    def most(self) -> int:
        """Bytes for states and programs if nobody else takes any."""
        return self.total - HEADROOM - self.fixed - self._excess - self._least

    @property
    def _least(self) -> int:
        """Bytes that slots of experts take at least."""
        return 0 if self.experts is None else self.experts.least

    def room(self, freed: int = 0) -> int:
        """Return how many bytes `take` accepts once `freed` bytes that others have now are freed."""
        self._look()
        return self.left + freed - self._least

    def _announced(self) -> int:
        return self.fixed + sum(self._taken.copy().values())

    def take(self, what: str, nbytes: int, owner: Any) -> None:
        """Count `nbytes` for as long as `owner` lives. Too little for the experts is an AllocationError."""
        self.require(what, nbytes)
        number = next(self._numbers)
        self._taken[number] = nbytes
        weakref.finalize(owner, self._taken.pop, number, None).atexit = False
        self.share()

    def require(self, what: str, nbytes: int, freed: int = 0) -> None:
        """Raise an AllocationError unless `nbytes` fit, once `freed` bytes that others have now are freed."""
        room = self.room(freed)
        if nbytes > room:
            raise AllocationError(
                f"{what}: expected at most {size(max(0, room))}, which a memory of {size(self.total)} "
                f"leaves, got {size(nbytes)}; it takes a memory of {least_size(self.total + nbytes - room)}"
            )

    def share(self) -> None:
        """Give the experts what is left."""
        if self.experts is None:
            return
        self._look()
        self.experts.resize(max(self.left, self.experts.least))

    def _look(self) -> None:
        """Find out what the process has in memory beyond what was announced; little changes do not count."""
        used = resident_memory()
        if used is None or self.experts is None:
            return
        found = max(0, used - self.experts.filled_bytes - self._announced())
        found = -(-found // _STEP) * _STEP
        if not self._excess - 2 * _STEP < found <= self._excess:
            self._excess = found

    def close(self) -> None:
        """Give back the slots, and close the files of experts."""
        if self.experts is not None:
            self.experts.close()
