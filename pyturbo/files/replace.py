"""Files and folders that replace others: written beside their target, then renamed into place.

What is being written has a name that ends in `.pyturbo-partial`, which readers refuse, and its writer holds a
lock on it. The lock ends with the process: what a killed writer left behind is removed by the next write to
the same target.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyturbo._arguments import path_of
from pyturbo.errors import FileError, TurboError
from pyturbo.files.lock import lock, unlocked
from pyturbo.files.publish import PREVIOUS, is_open_as, publish, remove_folder

SUFFIX = ".pyturbo-partial"

_LONGEST_NAME = 200  # bytes; most file systems allow 255 for the whole name
_ATTEMPTS = 100


def is_partial(path: Path) -> bool:
    """Tell whether a name is one that an unfinished file or folder has."""
    return path.name.endswith(SUFFIX)


def target_of(what: str, path: Any) -> Path:
    """Return the place that a path names after all symbolic links. It need not exist."""
    given = path_of(what, path)
    try:
        target = Path(os.path.realpath(given))
        if target.is_symlink():
            raise FileError(f"{given}: expected a file or folder, got a symbolic link that leads to itself")
    except (OSError, ValueError) as error:
        raise _told(given, error) from error
    if is_partial(target):
        raise FileError(f"{given}: expected another name: {SUFFIX} marks unfinished files")
    return target


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says while `path` is written into a FileError."""
    try:
        yield
    except TurboError:
        raise
    except OSError as error:
        raise _told(path, error) from error


@contextmanager
def new_file(target: Path, check: Callable[[Path], None], mode: int = 0o666) -> Iterator[int]:
    """Give a descriptor to write to; at the end that file has the name `target`, after an error nothing.

    `check` raises where `target` must not be replaced; it is asked before and after the writing. Owner, group
    and mode are those of a file that is replaced, as far as the system allows; else `mode` less the umask.
    """
    with writing(target):
        remove_leftovers(target)
        check(target)
        partial, descriptor = _claim(target, lambda path: os.open(path, _NEW, mode))
        try:
            try:
                yield descriptor
                _take_access(target, descriptor)
                sync(descriptor)
                check(target)
                partial.replace(target)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
        finally:
            os.close(descriptor)
        _sync_path(target.parent)


@contextmanager
def new_folder(target: Path, check: Callable[[Path], None]) -> Iterator[Path]:
    """Give an empty folder to write to; at the end it has the name `target`, after an error nothing has.

    `check` raises where `target` must not be replaced; it is asked before and after the writing, and once
    more of the old folder, which is deleted last. Owner, group and mode are kept as those of a file are.
    """
    with writing(target):
        remove_leftovers(target)
        check(target)
        partial, descriptor = _claim(target, _make_folder)
        try:
            yield partial
            for path in partial.iterdir():
                _sync_path(path)
            _sync_path(partial)
            check(target)
            _take_access(target, descriptor)
            publish(partial, target, descriptor, check)
        finally:
            if is_open_as(partial, descriptor):
                remove_folder(partial)
            os.close(descriptor)
        _sync_path(target.parent)


def remove_leftovers(target: Path) -> None:
    """Remove what writers of `target` that are no more have left beside it.

    Where one died between two renames, what it was about to replace has its name again.
    """
    name = re.compile(re.escape(_stem(target)) + r"\.[0-9a-f]{16}(?:\.pyturbo-partial|\.pyturbo-previous)")
    try:
        with os.scandir(target.parent) as entries:
            found = [Path(entry.path) for entry in entries if name.fullmatch(entry.name)]
    except PermissionError:  # a folder that may be written to, but not listed
        return
    for path in found:
        with unlocked(path) as free:
            if not free:
                continue
            if path.suffix == PREVIOUS and not os.path.lexists(target):
                path.rename(target)
            elif path.is_dir():
                remove_folder(path)
            else:
                path.unlink(missing_ok=True)


def sync(descriptor: int) -> None:
    """Make what was written survive a power cut, where the file system can."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise


def _sync_path(path: Path) -> None:
    """The same for a file, or for the names in a folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def _take_access(target: Path, descriptor: int) -> None:
    """Give what is being written the owner, group and mode of what it replaces, as far as the system allows.

    Where the group cannot be kept, its rights go with it: another group does not get them.
    """
    try:
        old = target.stat()
    except (FileNotFoundError, PermissionError):
        return
    for owner, group in ((-1, old.st_gid), (old.st_uid, -1)):
        with suppress(OSError):
            os.fchown(descriptor, owner, group)
    kept = os.fstat(descriptor).st_gid == old.st_gid
    with suppress(PermissionError):
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & (0o7777 if kept else 0o5707))


def _make_folder(path: Path) -> int:
    path.mkdir()
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _stem(target: Path) -> str:
    """What the names of unfinished files begin with; of a very long name, its hash."""
    name = os.fsencode(target.name)
    return f".{target.name if len(name) <= _LONGEST_NAME else hashlib.sha256(name).hexdigest()}"


def _claim(target: Path, make: Callable[[Path], int]) -> tuple[Path, int]:
    """Make a file or folder with a new name beside `target`, and lock it.

    Another process may take it for a leftover before it is locked: then it is gone, and one more is made.
    """
    failure: OSError = OSError(errno.EBUSY, "others remove what is being written")
    for _ in range(_ATTEMPTS):
        path = target.with_name(f"{_stem(target)}.{secrets.token_hex(8)}{SUFFIX}")
        try:
            descriptor = make(path)
        except FileNotFoundError as error:
            if not target.parent.is_dir():
                raise
            failure = error
            continue
        try:
            lock(descriptor, fcntl.LOCK_EX)
            if is_open_as(path, descriptor):
                return path, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise failure


def _told(path: Path, error: OSError | ValueError) -> FileError:
    """A path with a zero byte is a ValueError."""
    if isinstance(error, FileError):
        return error
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return FileError(f"{path}: cannot be written: {reason}")
