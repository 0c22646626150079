"""The folder of ``pyturbo pull --to``: new, empty, or of an earlier pull of the same model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyturbo._messages import shown
from pyturbo.checkpoint import json_file
from pyturbo.errors import FileError, FormatError
from pyturbo.files.replace import is_partial, new_file, target_of, writing

#: The file that names the repository of a folder; huggingface_hub keeps its own notes next to it.
_MARK = Path(".cache") / "pyturbo" / "pull.json"


@contextmanager
def claimed(path: str, repository: str) -> Iterator[None]:
    """Make or reuse a folder to download a repository to; FileError if it holds other files.

    A failure keeps what was downloaded for the next attempt; if that is nothing, the folder is removed.
    """
    folder = target_of("pull: to", path)
    with writing(folder):
        _check(folder, repository)
        made = _make(folder)
        with new_file(folder / _MARK, lambda mark: None) as descriptor:
            os.write(descriptor, json.dumps({"repository": repository}).encode())
    try:
        yield
    except BaseException:
        if [entry for entry in folder.rglob("*") if not entry.is_dir()] == [folder / _MARK]:
            (folder / _MARK).unlink(missing_ok=True)
            for each in (*_own_folders(folder), *reversed(made)):
                with suppress(OSError):  # not empty
                    each.rmdir()
        raise


def _own_folders(folder: Path) -> tuple[Path, ...]:
    """Return the folders that only the mark needs, innermost first."""
    return tuple(folder / each for each in _MARK.parents if each.name)


def _make(folder: Path) -> list[Path]:
    """Make the folder, its parents and the folders of the mark; return those made up to the folder."""
    missing = [each for each in reversed((folder, *folder.parents)) if not each.is_dir()]
    for each in (*missing, *reversed(_own_folders(folder))):
        each.mkdir(exist_ok=True)
    return missing


def _is_unused(folder: Path) -> bool:
    """Return whether a folder is empty but for what a pull leaves that was killed at its start."""
    own = _own_folders(folder)
    return not any(folder.iterdir()) or all(
        entry in own or (entry.parent == own[0] and is_partial(entry)) for entry in folder.rglob("*")
    )


def _check(folder: Path, repository: str) -> None:
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise FileError(f"pull: {folder}: expected a folder, got a file")
    if _is_unused(folder):
        return
    try:
        pulled = json_file.read_object(folder / _MARK).get("repository")
    except (FileError, FormatError):
        pulled = None
    if pulled != repository:
        what = f"the files of {shown(pulled)}" if isinstance(pulled, str) else "other files"
        raise FileError(
            f"pull: {folder}: expected an empty folder or an earlier pull of {repository}, got {what}; "
            "name another folder"
        )
