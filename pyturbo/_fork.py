"""Locks that a child of fork() finds open, whoever held them in the parent."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def open_in_children(kind: Callable[[], Any] = threading.Lock) -> Any:
    """Make such a lock. Data that it guards may be half changed in the child, and must tolerate that."""
    lock = kind()
    _locks.add(lock)
    return lock


def _open_all() -> None:
    for lock in _locks:  # as modules of the standard library do
        lock._at_fork_reinit()


os.register_at_fork(after_in_child=_open_all)
