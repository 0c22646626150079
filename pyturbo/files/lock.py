"""Locks on files and folders that are being written. A lock ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def lock(descriptor: int, how: int) -> bool:
    """Take the lock; return False if another process has it, or if the file system has no locks."""
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        return False
    return True


@contextmanager
def unlocked(path: Path) -> Iterator[bool]:
    """Hold the lock of a file or folder; yield False if someone else holds it, or if it is neither."""
    descriptor = _opened(path)
    try:
        yield descriptor is not None and lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _opened(path: Path) -> int | None:
    """Open a file or folder to lock it; None if it is neither, or cannot be opened."""
    try:
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return None
        how = os.O_RDWR if stat.S_ISREG(mode) else os.O_RDONLY
        return os.open(path, how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
