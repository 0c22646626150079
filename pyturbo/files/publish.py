"""A written folder gets its name, and the folder that had it is deleted."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pyturbo.files.exchange import exchange
from pyturbo.files.lock import unlocked

#: Of a folder that is being replaced, where two names cannot change places.
PREVIOUS = ".pyturbo-previous"

_log = logging.getLogger("pyturbo.files")


def publish(partial: Path, target: Path, descriptor: int, check: Callable[[Path], None]) -> None:
    """Give the folder `partial`, on which `descriptor` is open, the name `target`; delete what had it.

    `check` is asked once more of the folder that had the name, when nobody can reach it by that any longer.
    After any exception, also an interrupt, both names lead to what they led to before.
    """
    if not target.exists() or not any(target.iterdir()):
        partial.rename(target)  # fails where something has come into the target since
        return
    previous = partial.with_suffix(PREVIOUS)
    with unlocked(target):  # so that no other process takes the old folder for a leftover
        try:
            old = partial
            if not exchange(partial, target):
                old = previous
                target.rename(previous)
                partial.rename(target)
            check(old)
        except BaseException:
            _undo(partial, target, previous, descriptor)
            check(target)  # whose message has the name that the caller knows
            raise
        remove_folder(old)


def is_open_as(path: Path, descriptor: int) -> bool:
    """Tell whether a path leads to what a descriptor is open on."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def remove_folder(path: Path) -> None:
    """Delete a folder, even if it is read-only. What cannot be deleted is logged as a warning."""
    with suppress(OSError):
        path.chmod(0o700)
    try:
        shutil.rmtree(path, ignore_errors=True)  # as much as can be
        if os.path.lexists(path):
            shutil.rmtree(path)  # for the reason
    except OSError as error:
        _log.warning("%s: is no longer needed and cannot be deleted: %s", path, error.strerror or error)


def _undo(partial: Path, target: Path, previous: Path, descriptor: int) -> None:
    renamed = is_open_as(target, descriptor)
    if os.path.lexists(previous):
        if renamed:
            target.rename(partial)
        previous.rename(target)
    elif renamed:
        exchange(partial, target)
