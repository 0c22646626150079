"""Locks on files and folders that are being written. A lock ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def lock(descriptor: int, how: int) -> bool:
    """Take the lock; False where another has it, or where the file system knows no locks."""
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        return False
    return True


@contextmanager
def unlocked(path: Path) -> Iterator[bool]:
    """Hold the lock of a file or folder, if nobody else does; else, or where it is another thing, False."""
    descriptor = _opened(path)
    try:
        yield descriptor is not None and lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _opened(path: Path) -> int | None:
    """A descriptor that can be locked; None for what is neither a file nor a folder, or cannot be opened."""
    try:
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return None
        how = os.O_RDWR if stat.S_ISREG(mode) else os.O_RDONLY
        return os.open(path, how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
