"""What was measured of a disk: how fast it reads records, by threads, parts and use of the page cache."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyturbo.files.cache import read_cached, write_cached

_VERSION = 1

#: Settings within this share of the fastest count as equally fast: short measurements vary by about that.
_EQUAL = 0.85


@dataclass(frozen=True)
class ReadSpeed:
    """The speed of one way to read records.

    Attributes:
        threads: Reads under way at once.
        direct: Whether they bypass the system's cache of files.
        split: Bytes of one read; 0: a whole record.
        bandwidth: Bytes per second.
    """

    threads: int
    direct: bool
    split: int
    bandwidth: float

    def __post_init__(self) -> None:
        """Refuse values that no probe saves."""
        whole = type(self.threads) is int and type(self.split) is int and type(self.direct) is bool
        if not whole or not 1 <= self.threads <= 256 or self.split < 0 or self.split % 4096:
            raise ValueError("threads, direct or split")
        if not isinstance(self.bandwidth, (int, float)) or not 0 < self.bandwidth < 1e15:
            raise ValueError("bandwidth")


@dataclass(frozen=True)
class DiskSpeed:
    """Speeds of a disk, the preferred setting first.

    Attributes:
        record: Bytes of the records that were read.
        at_once: How many of them were read at once.
        speeds: One of each setting that was tried.
    """

    record: int
    at_once: int
    speeds: tuple[ReadSpeed, ...]

    @property
    def best(self) -> ReadSpeed:
        """The first setting that is about as fast as the fastest."""
        most = max(speed.bandwidth for speed in self.speeds)
        return next(speed for speed in self.speeds if speed.bandwidth >= _EQUAL * most)

    @staticmethod
    def of(path: Path) -> DiskSpeed | None:
        """Return what was saved for the disk of a path; None if it was not probed."""
        try:
            found = read_cached(f"{disk_name(path)}.json")
            if found["version"] != _VERSION:
                return None
            speeds = tuple(ReadSpeed(**one) for one in found["speeds"])
            return DiskSpeed(int(found["record"]), int(found["at_once"]), speeds) if speeds else None
        except (OSError, KeyError, TypeError, ValueError):
            return None

    def save(self, path: Path) -> Path | None:
        """Save it for the disk of a path; return the file, None if nothing is kept."""
        content: dict[str, Any] = asdict(self)
        return write_cached(f"{disk_name(path)}.json", {"version": _VERSION} | content)


def disk_name(path: Path) -> str:
    """Return a name for the disk of a path: by its number, and its size."""
    place = os.statvfs(path)
    return f"disk-{path.stat().st_dev:x}-{place.f_blocks * place.f_frsize:x}"
