"""What was measured of a disk: how fast it reads records, by threads, parts and use of the page cache."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyturbo.files.cache import read_cached, write_cached

_VERSION = 1
_CLASSES = range(12, 33)  # powers of two: sizes of records, 4 KiB to 4 GiB

#: Bytes of a record where nothing says how long they are; most experts are about that long.
RECORD = 2 << 20

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
        """Return what was saved for the disk of a path; None if it was not probed.

        Of several sizes of records, the one nearest to those of the packed model at `path` counts; if there
        is no model, to RECORD.
        """
        wanted = _size_class(_record_bytes(path))
        for size_class in sorted(_CLASSES, key=lambda one: (abs(one - wanted), one)):
            found = _saved(path, size_class)
            if found is not None:
                return found
        return None

    def save(self, path: Path) -> Path | None:
        """Save it for the disk of a path and records of about this size.

        Return the file, None if nothing is kept.
        """
        content: dict[str, Any] = asdict(self)
        return write_cached(_name(path, _size_class(self.record)), {"version": _VERSION} | content)


def disk_name(path: Path) -> str:
    """Return a name for the disk of a path: by its number, and its size."""
    place = os.statvfs(path)
    return f"disk-{path.stat().st_dev:x}-{place.f_blocks * place.f_frsize:x}"


def _size_class(record: int) -> int:
    """Return the power of two that is nearest to a number of bytes."""
    return min(max(round(math.log2(max(1, record))), _CLASSES[0]), _CLASSES[-1])


def _record_bytes(path: Path) -> int:
    """Return the bytes of the largest records of the packed model in a folder; RECORD if there is none."""
    try:
        layers = json.loads((path / "packed.json").read_bytes())["layers"]
        return max(int(layer["stride"]) for layer in layers)
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        return RECORD


def _name(path: Path, size_class: int) -> str:
    return f"{disk_name(path)}-records-{1 << size_class:x}.json"


def _saved(path: Path, size_class: int) -> DiskSpeed | None:
    try:
        found = read_cached(_name(path, size_class))
        if found["version"] != _VERSION:
            return None
        speeds = tuple(ReadSpeed(**one) for one in found["speeds"])
        return DiskSpeed(int(found["record"]), int(found["at_once"]), speeds) if speeds else None
    except (OSError, KeyError, TypeError, ValueError):
        return None
