"""Rules for files and folders that are written: nothing is lost, whatever target a user names."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from pyturbo.errors import FileError
from pyturbo.files.replace import writing

#: Files that file managers put into folders.
HARMLESS = (".DS_Store",)

_MOUNTS = Path("/proc/self/mountinfo")  # Linux only
_HEAD = 4096  # bytes that tell what a file is

#: What is no regular file, by its mode.
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def require_replaceable(path: Path, is_ours: Callable[[bytes], bool], what: str) -> None:
    """Refuse to write over anything but an empty file or one of ours. The path is free of symbolic links.

    `is_ours` judges the first bytes of a file; messages call it `what`.
    """
    with writing(path):
        if not path.parent.is_dir():
            raise FileError(f"{path.parent}: expected a folder to write to, found none")
        if os.path.lexists(path):
            _require_ours(path, is_ours, what)
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise FileError(f"{path.parent}: cannot be written: it is read-only")


def _require_ours(path: Path, is_ours: Callable[[bytes], bool], what: str) -> None:
    if (kind := stat.S_IFMT(path.stat().st_mode)) != stat.S_IFREG:
        raise FileError(f"{path}: expected a file to write to, got {_KINDS.get(kind, 'something else')}")
    if not os.access(path, os.W_OK):
        raise FileError(f"{path}: cannot be written: it is read-only")
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head and not is_ours(head):
        raise FileError(f"{path}: exists and is not {what}; delete it or name another file")


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
