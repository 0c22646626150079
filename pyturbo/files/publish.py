"""Renaming of a written folder into place; the folder that it replaces is deleted last."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pyturbo.files.exchange import exchange
from pyturbo.files.lock import unlocked

#: Suffix of a folder that is being replaced, if two names cannot be exchanged.
PREVIOUS = ".pyturbo-previous"

_log = logging.getLogger("pyturbo.files")


def publish(partial: Path, target: Path, descriptor: int, check: Callable[[Path], None]) -> None:
    """Rename the folder `partial`, which `descriptor` is open on, to `target`; delete the old target.

    `check` is called once more with the old folder, when it can no longer be reached under that name. After
    any exception, even an interrupt, both names lead to what they led to before.
    """
    if not target.exists() or not any(target.iterdir()):
        partial.rename(target)  # fails if something has been put into the target since
        return
    previous = partial.with_suffix(PREVIOUS)
    with unlocked(target):  # otherwise another process could take the old folder for a leftover
        try:
            old = partial
            if not exchange(partial, target):
                old = previous
                target.rename(previous)
                partial.rename(target)
            check(old)
        except BaseException:
            _undo(partial, target, previous, descriptor)
            check(target)  # its message has the name that the caller knows
            raise
        remove_folder(old)


def is_open_as(path: Path, descriptor: int) -> bool:
    """Return whether a path leads to what a descriptor is open on."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def remove_folder(path: Path) -> None:
    """Delete a folder, even if it is read-only. If something cannot be deleted, log a warning."""
    with suppress(OSError):
        path.chmod(0o700)
    try:
        shutil.rmtree(path, ignore_errors=True)  # deletes as much as possible
        if os.path.lexists(path):
            shutil.rmtree(path)  # raises the reason
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
