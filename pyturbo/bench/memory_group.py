"""A control group of Linux: a limit on the memory of a process, with the files that it has read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from pyturbo._messages import size
from pyturbo.errors import StateError

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_PATIENCE = 5.0  # seconds until a process that has ended is out of its group


class MemoryGroup:
    """A group for one process, made below the groups of this one; a StateError if that is not allowed."""

    def __init__(self, nbytes: int) -> None:
        failures = ["no control group for memory was found"]
        for parent, limit in _parents():
            self.path = parent / f"pyturbo-bench-{os.getpid()}-{id(self):x}"
            try:
                self.path.mkdir()
            except OSError as error:
                failures.append(str(error))
                continue
            try:
                _write(self.path / limit, nbytes)
            except OSError as error:
                failures.append(str(error))
                self.path.rmdir()
                continue
            with suppress(OSError):
                _write(self.path / "memory.swap.max", 0)
            return
        raise StateError(f"no limit of {size(nbytes)}: {failures[-1]}")

    def __enter__(self) -> MemoryGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, process: int) -> None:
        _write(self.path / "cgroup.procs", process)

    def close(self) -> None:
        """Remove the group, whose process has ended."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                self.path.rmdir()
                return
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)


def _write(path: Path, number: int) -> None:
    """Write to a file of a group. In a folder that is no group there is none, and none is made."""
    with path.open("rb+", buffering=0) as file:
        file.write(str(number).encode())


def drop_cached(files: Iterable[Path]) -> None:
    """Write files to their disk, and forget what the page cache has of them."""
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _parents() -> list[tuple[Path, str]]:
    """List groups that may hold another one, the innermost first, with the file that limits memory."""
    found = []
    lines = _OWN.read_text().splitlines() if _OWN.exists() else []
    for line in lines:
        _, controllers, own = line.split(":", 2)
        if "memory" in controllers.split(","):
            root, limit = _ROOT / "memory", "memory.limit_in_bytes"
        elif not controllers:
            root, limit = _ROOT, "memory.max"
        else:
            continue
        group = root / own.lstrip("/")
        found += [(folder, limit) for folder in (group, *group.parents) if folder.is_relative_to(root)]
    return found
