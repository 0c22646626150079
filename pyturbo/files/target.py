"""Rules for folders that are written: nothing is lost, whatever target a user names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from pyturbo.errors import FileError

#: Files that file managers put into folders.
HARMLESS = (".DS_Store",)

_MOUNTS = Path("/proc/self/mountinfo")  # Linux only


def check_target(
    target: Path, source: Path, force: bool, writer: str, foreign: Callable[[Path], str | None]
) -> None:
    """Refuse a target where something could be lost. Both paths are free of symbolic links.

    `foreign` returns the name of something in a folder that the command `writer` did not write, or None.
    """
    for inner, outer in ((target, source), (source, target)):
        if any(_same(folder, outer) for folder in (inner, *inner.parents)):
            raise FileError(
                f"{target}: expected a folder apart from the source {source}, got "
                + ("the source itself" if _same(target, source) else "one that lies in the other")
            )
    if not target.parent.is_dir():
        raise FileError(f"{target.parent}: expected a folder to write to, found none")
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise FileError(f"{target}: expected a folder to write, got a file; delete it or name another")
    if _same(target, Path()):
        raise FileError(f"{target}: expected a folder that can be renamed, got the current one; name another")
    if _is_mount_point(target):
        raise FileError(
            f"{target}: expected a folder that can be renamed, got a mount point; name a new folder in it"
        )
    if not os.access(target, os.W_OK):
        raise FileError(f"{target}: cannot be written: it is read-only")
    if not any(target.iterdir()):
        return
    if (name := foreign(target)) is not None:
        raise FileError(
            f"{target}: already exists and holds {name}, which this {writer} did not write; "
            "delete the folder yourself or name another"
        )
    if not force:
        raise FileError(f"{target}: already exists; --force, or force=True, replaces it")


def _same(one: Path, other: Path) -> bool:
    return one == other or (one.exists() and other.exists() and one.samefile(other))


def _is_mount_point(folder: Path) -> bool:
    """Return whether something is mounted there, even a folder of the same file system."""
    if os.path.ismount(folder):
        return True
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return False
    name = re.sub(rb"[ \t\n\\]", lambda match: b"\\%03o" % ord(match[0]), os.fsencode(folder))
    return any(line.split(b" ")[4:5] == [name] for line in lines)
