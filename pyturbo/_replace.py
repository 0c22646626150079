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
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyturbo._convert import path_of
from pyturbo._exchange import exchange
from pyturbo.errors import FileError, TurboError

SUFFIX = ".pyturbo-partial"
_PREVIOUS = ".pyturbo-previous"  # of a folder that is being replaced where two names cannot change places

_LONGEST_NAME = 200  # bytes; most file systems allow 255 for the whole name
_ATTEMPTS = 100


def is_partial(path: Path) -> bool:
    """Tell whether a name is one that an unfinished file or folder has."""
    return path.name.endswith(SUFFIX)


def target_of(what: str, path: Any) -> Path:
    """Return the place that a path names, behind all symbolic links. It need not exist."""
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

    `check` raises where `target` must not be replaced; it is asked before and after the writing. The mode is
    that of a file that is replaced, else `mode` less the umask.
    """
    with writing(target):
        remove_leftovers(target)
        check(target)
        partial, descriptor = _claim(target, lambda path: os.open(path, _NEW, mode))
        try:
            try:
                yield descriptor
                _take_mode(target, descriptor)
                os.fsync(descriptor)
                check(target)
                partial.replace(target)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
        finally:
            os.close(descriptor)
        _sync(target.parent)


@contextmanager
def new_folder(target: Path, check: Callable[[Path], None]) -> Iterator[Path]:
    """Give an empty folder to write to; at the end it has the name `target`, after an error nothing has.

    `check` raises where `target` must not be replaced; it is asked before and after the writing. A folder
    that is replaced is deleted last. The mode is that of a folder that is replaced.
    """
    with writing(target):
        remove_leftovers(target)
        check(target)
        partial, descriptor = _claim(target, _make_folder)
        try:
            yield partial
            for path in partial.iterdir():
                _sync(path)
            _sync(partial)
            check(target)
            _take_mode(target, descriptor)
            _publish(partial, target)
        finally:
            # After an exchange this is the folder that was replaced.
            shutil.rmtree(partial, ignore_errors=True)
            os.close(descriptor)
        _sync(target.parent)


def _publish(partial: Path, target: Path) -> None:
    """Give a folder its name, and the one that had it, if it is not empty, another."""
    if not target.exists() or not any(target.iterdir()):
        partial.rename(target)
    elif not exchange(partial, target):
        previous = partial.with_suffix(_PREVIOUS)
        with _unlocked(target):
            target.rename(previous)
            try:
                partial.rename(target)
            except OSError:
                previous.rename(target)
                raise
        shutil.rmtree(previous, ignore_errors=True)


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
        with _unlocked(path) as free:
            if not free:
                continue
            if path.suffix == _PREVIOUS and not os.path.lexists(target):
                path.rename(target)
            elif path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut, where the file system can."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise
    finally:
        os.close(descriptor)


_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def _take_mode(target: Path, descriptor: int) -> None:
    """Give what is being written the mode of what it replaces, where the file system has modes."""
    with suppress(FileNotFoundError, PermissionError):
        os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))


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
    for _ in range(_ATTEMPTS):
        path = target.with_name(f"{_stem(target)}.{secrets.token_hex(8)}{SUFFIX}")
        try:
            descriptor = make(path)
        except FileNotFoundError:
            if not target.parent.is_dir():
                raise
            continue
        try:
            _lock(descriptor, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor)):
                return path, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise OSError(errno.EBUSY, "others remove what is being written")


def _lock(descriptor: int, how: int) -> bool:
    """Take the lock; False where another has it, or where the file system knows no locks."""
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        return False
    return True


@contextmanager
def _unlocked(path: Path) -> Iterator[bool]:
    """Hold the lock of a file or folder, if nobody else does; else, or where it is another thing, False."""
    descriptor = _opened(path)
    try:
        yield descriptor is not None and _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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


def _told(path: Path, error: OSError | ValueError) -> FileError:
    """A path with a zero byte is a ValueError."""
    if isinstance(error, FileError):
        return error
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return FileError(f"{path}: cannot be written: {reason}")
