"""How experts are read: what `pyturbo probe` finds out about a disk, and what a caller may override."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyturbo.streaming.disk import DiskSpeed

#: Where experts are used from.
MODES = ("auto", "mapped", "stream")


@dataclass(frozen=True)
class Policy:
    """Settings of reads and of the replacement of experts; the defaults suit NVMe disks.

    Attributes:
        mode: "mapped" uses experts from their mapped files, "stream" from slots in memory; "auto" maps if all
            weights fit into memory.
        threads: Reads under way at once.
        direct: Whether reads bypass the system's cache of files, where the file system allows it.
        split: A record is read in parts of this many bytes; 0 reads it at once.
        half_life: Tokens after which a use of an expert counts half.
        staging: Slots for experts that are used less than those in memory, and are not kept; None: as many as
            threads, at most an eighth of all.
    """

    mode: str = "auto"
    threads: int = 8
    direct: bool = True
    split: int = 1 << 20
    half_life: float = 32.0
    staging: int | None = None

    @staticmethod
    def of(path: Path) -> Policy:
        """Return the policy for files at `path`: that of `pyturbo probe` for their disk, else the default."""
        speed = DiskSpeed.of(path)
        if speed is None:
            return Policy()
        best = speed.best
        return Policy(threads=best.threads, direct=best.direct, split=best.split)
