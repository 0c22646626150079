"""The memory that a model may take: what its experts get is what everything else leaves."""

from __future__ import annotations

import weakref
from typing import Any

from pyturbo._messages import size
from pyturbo.errors import AllocationError
from pyturbo.streaming import StreamedExperts


class Budget:
    """Bytes for a process that streams experts. States and programs come first, experts get the rest.

    Slots are resized only by `share`, which needs that no program is running.

    Attributes:
        total: All bytes that may be used.
        fixed: Bytes in use for as long as the model is: weights, and the process itself.
        experts: The slots.
    """

    def __init__(self, total: int, fixed: int, experts: StreamedExperts) -> None:
        self.total, self.fixed, self.experts = total, fixed, experts
        self._taken: dict[int, int] = {}  # bytes by number of the owner

    @property
    def left(self) -> int:
        """Bytes for slots of experts."""
        return self.total - self.fixed - sum(self._taken.copy().values())

    def take(self, what: str, nbytes: int, owner: Any) -> None:
        """Count `nbytes` for as long as `owner` lives. Too little for the experts is an AllocationError."""
        least = self.experts.least
        if self.left - nbytes < least:
            raise AllocationError(
                f"{what}: expected at most {size(max(0, self.left - least))}, which a memory of "
                f"{size(self.total)} leaves, got {size(nbytes)}"
            )
        number = id(owner)
        self._taken[number] = nbytes
        weakref.finalize(owner, self._taken.pop, number, None).atexit = False
        self.share()

    def share(self) -> None:
        """Give the experts what is left."""
        self.experts.resize(max(self.left, self.experts.least))
