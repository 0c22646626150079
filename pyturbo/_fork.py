"""What a child of fork() finds: locks that are open, whoever held them, and threads that are gone."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from pyturbo.errors import StateError

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def open_in_children(kind: Callable[[], Any] = threading.Lock) -> Any:
    """Make such a lock. Data that it guards may be half changed in the child, and must tolerate that."""
    lock = kind()
    _locks.add(lock)
    return lock


class OwnProcess:
    """The process that made something which a child of fork() cannot use, such as a thread."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def __bool__(self) -> bool:
        return os.getpid() == self._process

    def require(self, what: str) -> None:
        """Raise a StateError in a child."""
        if not self:
            raise StateError(f"{what} was made before fork(): make one in the child process")


def _open_all() -> None:
    for lock in _locks:  # as modules of the standard library do
        lock._at_fork_reinit()


os.register_at_fork(after_in_child=_open_all)
