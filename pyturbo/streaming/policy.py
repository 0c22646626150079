"""How experts are read: what `pyturbo probe` finds out about a disk, and what a caller may override."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from pyturbo._arguments import flag, index
from pyturbo._messages import shown
from pyturbo.errors import ArgumentError
from pyturbo.streaming.disk import DiskSpeed, ReadSpeed

_MOST_THREADS = 256
_PAGE = 4096  # bytes: parts of records start at multiples
_STAGING_SHARE = 8  # at most one in so many slots is for staging

#: Where experts are used from.
MODES = ("auto", "mapped", "stream")


@dataclass(frozen=True)
class Policy:
    """Settings of reads and of the replacement of experts; the defaults suit NVMe disks.

    Attributes:
        mode: "mapped" uses experts from their mapped files, which need memory for all of them, "stream" from
            slots in memory; "auto" maps if all weights fit into memory.
        threads: Reads under way at once, in both modes.
        direct: Whether reads bypass the system's cache of files, where the file system allows it.
        split: A record is read in parts of this many bytes; 0 reads it at once.
        half_life: Tokens after which a use of an expert counts half.
        staging: Slots for experts that are used less than those in memory, and are not kept; None: twice as
            many as threads. At most an eighth of all slots; none if there is a slot for every expert.
        ahead: Whether to read, while one layer works, the experts that the next layer's router would choose;
            only for single tokens.
    """

    mode: str = "auto"
    threads: int = 8
    direct: bool = True
    split: int = 1 << 20
    half_life: float = 32.0
    staging: int | None = None
    ahead: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that a store cannot have."""
        if self.mode not in MODES:
            raise ArgumentError(f"Policy: mode: expected one of {', '.join(MODES)}, got {shown(self.mode)}")
        if index("Policy: threads", self.threads, 1) > _MOST_THREADS:
            raise ArgumentError(f"Policy: threads: expected 1 to {_MOST_THREADS}, got {self.threads}")
        flag("Policy: direct", self.direct)
        flag("Policy: ahead", self.ahead)
        if index("Policy: split", self.split) % _PAGE:
            raise ArgumentError(f"Policy: split: expected a multiple of {_PAGE}, got {self.split}")
        if not isinstance(self.half_life, (int, float)) or not 0 < self.half_life < math.inf:
            raise ArgumentError(f"Policy: half_life: expected tokens above 0, got {shown(self.half_life)}")
        if self.staging is not None:
            index("Policy: staging", self.staging, bits=31)

    def staging_slots(self, slots: int, experts: int) -> int:
        """Return how many of so many slots, which so many experts share, are for those that are not kept."""
        wanted = 2 * self.threads if self.staging is None else self.staging
        return 0 if slots >= experts else min(wanted, slots // _STAGING_SHARE)

    @staticmethod
    def of(path: Path) -> Policy:
        """Return the policy for files at `path`: that of `pyturbo probe` for their disk, else the default."""
        speed = DiskSpeed.of(path)
        return Policy() if speed is None else Policy.reading(speed.best)

    @staticmethod
    def reading(way: ReadSpeed) -> Policy:
        """Return the policy that reads in a way that was measured."""
        return Policy(threads=way.threads, direct=way.direct, split=way.split)
