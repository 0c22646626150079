"""Files and folders that replace others: written beside their target, then renamed into place.

An unfinished file or folder has a name that ends in `.pyturbo-partial`, which readers refuse, and its writer
holds a lock on it. The lock ends with the process: the next write to the same target removes leftovers of
killed writers.
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

_LONGEST_NAME = 200  # bytes of the stem; most file systems allow 255 for the whole name
_ATTEMPTS = 100


def is_partial(path: Path) -> bool:
    """Return whether a path is named like an unfinished file or folder."""
    return path.name.endswith(SUFFIX)


def target_of(what: str, path: Any) -> Path:
    """Return the place that a path leads to, with all symbolic links followed. It need not exist."""
    given = path_of(what, path)
    try:
        target = Path(os.path.realpath(given))
        if target.is_symlink():
            raise FileError(f"{given}: expected a file or folder, got a symbolic link that leads to itself")
    except (OSError, ValueError) as error:
        raise _file_error(given, error) from error
    if is_partial(target):
        raise FileError(f"{given}: expected another name: {SUFFIX} marks unfinished files")
    return target


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the system while `path` is written into a FileError."""
    try:
        yield
    except TurboError:
        raise
    except OSError as error:
        raise _file_error(path, error) from error


@contextmanager
def new_file(target: Path, check: Callable[[Path], None], mode: int = 0o666) -> Iterator[int]:
    """Yield a descriptor to write to; then rename that file to `target`, or delete it after an error.

    `check` raises if `target` must not be replaced; it is called before and after the writing. Owner, group
    and mode are kept if a file is replaced, as far as the system allows; otherwise `mode` less the umask.
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
        sync_path(target.parent)


@contextmanager
def new_folder(
    target: Path, check: Callable[[Path], None], resumes: Callable[[Path], bool] | None = None
) -> Iterator[Path]:
    """Yield an empty folder to write to; then rename it to `target`, or delete it after an error.

    `check` raises if `target` must not be replaced; it is called before and after the writing, and once more
    with the old folder, which is deleted last. Owner, group and mode are kept as those of a file are.

    `resumes` tells whether an unfinished folder can be continued. A leftover that can is yielded instead of
    an empty folder, and such a folder stays after an interrupt or an error of the system.
    """
    with writing(target):
        claimed = None if resumes is None else _claim_leftover(target, resumes)
        try:
            remove_leftovers(target)
            check(target)
        except BaseException:
            if claimed is not None:
                os.close(claimed[1])
            raise
        partial, descriptor = claimed or _claim(target, _make_folder)
        kept = False
        try:
            yield partial
            for path in partial.iterdir():
                sync_path(path)
            sync_path(partial)
            check(target)
            _take_access(target, descriptor)
            publish(partial, target, descriptor, check)
        except (KeyboardInterrupt, SystemExit, OSError):
            kept = resumes is not None and resumes(partial)
            raise
        finally:
            if is_open_as(partial, descriptor) and not kept:
                remove_folder(partial)
            os.close(descriptor)
        sync_path(target.parent)


def remove_leftovers(target: Path) -> None:
    """Remove the leftovers of dead writers of `target` beside it.

    If a writer died between two renames, the folder that it was about to replace gets its name back.
    """
    for path in _leftovers(target):
        with unlocked(path) as free:
            if not free:
                continue
            if path.suffix == PREVIOUS and not os.path.lexists(target):
                path.rename(target)
            elif path.is_dir():
                remove_folder(path)
            else:
                path.unlink(missing_ok=True)


def unfinished(target: Path) -> list[Path]:
    """List the folders that dead writers of `target` left, which nobody is writing to."""
    found = []
    for path in _leftovers(target):
        with unlocked(path) as free:
            if free and is_partial(path) and path.is_dir():
                found.append(path)
    return found


def _leftovers(target: Path) -> list[Path]:
    """List what writers of `target` have beside it, those at work too."""
    name = re.compile(re.escape(_stem(target)) + r"\.[0-9a-f]{16}(?:\.pyturbo-partial|\.pyturbo-previous)")
    try:
        with os.scandir(target.parent) as entries:
            return sorted(Path(entry.path) for entry in entries if name.fullmatch(entry.name))
    except PermissionError:  # the folder can be written to, but not listed
        return []


def _claim_leftover(target: Path, resumes: Callable[[Path], bool]) -> tuple[Path, int] | None:
    """Lock an unfinished folder of a dead writer that can be continued, if there is one."""
    for path in _leftovers(target):
        if not is_partial(path) or not path.is_dir() or path.is_symlink():
            continue
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        if lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB) and is_open_as(path, descriptor) and resumes(path):
            return path, descriptor
        os.close(descriptor)
    return None


def sync(descriptor: int) -> None:
    """Make written data survive a power cut, if the file system can."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise


def sync_path(path: Path) -> None:
    """Do the same for a file, or for the names in a folder."""
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
    """Copy owner, group and mode from the target that is replaced, as far as the system allows.

    If the group cannot be kept, its rights are dropped: another group does not get them.
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
    """Return the start of the names of unfinished files; for a very long name, its hash."""
    name = os.fsencode(target.name)
    return f".{target.name if len(name) <= _LONGEST_NAME else hashlib.sha256(name).hexdigest()}"


def _claim(target: Path, make: Callable[[Path], int]) -> tuple[Path, int]:
    """Create a file or folder with a new name beside `target`, and lock it.

    Another process may remove it as a leftover before it is locked; then another one is created.
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


def _file_error(path: Path, error: OSError | ValueError) -> FileError:
    """Return the FileError for an error of the system; a path with a zero byte is a ValueError there."""
    if isinstance(error, FileError):
        return error
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return FileError(f"{path}: cannot be written: {reason}")
