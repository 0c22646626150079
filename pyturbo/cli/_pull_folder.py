"""The folder of ``pyturbo pull --to``: new, empty, or of an earlier pull of the same model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyturbo._replace import new_file, target_of, writing
from pyturbo.checkpoint import json_file
from pyturbo.errors import FileError, FormatError

#: Says what a folder was pulled for, beside where huggingface_hub keeps its own notes.
_MARK = Path(".cache") / "pyturbo" / "pull.json"


@contextmanager
def claimed(path: str, repository: str) -> Iterator[None]:
    """Make or take a folder to download a repository to; FileError where it holds other things.

    A failure leaves what was downloaded, for the next attempt; nothing where that is nothing.
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
        if [entry.name for entry in folder.rglob("*") if not entry.is_dir()] == [_MARK.name]:
            (folder / _MARK).unlink(missing_ok=True)
            for each in reversed(made):
                with suppress(OSError):  # not empty
                    each.rmdir()
        raise


def _make(folder: Path) -> list[Path]:
    """Make the folder of the mark and those around it; returns what was missing, outermost first."""
    missing = [each for each in reversed((folder / _MARK).parents) if not each.is_dir()]
    for each in missing:
        each.mkdir(exist_ok=True)
    return missing


def _check(folder: Path, repository: str) -> None:
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise FileError(f"pull: {folder}: expected a folder, got a file")
    if not any(folder.iterdir()):
        return
    try:
        pulled = json_file.read_object(folder / _MARK).get("repository")
    except (FileError, FormatError):
        pulled = None
    if pulled != repository:
        what = f"the files of {pulled}" if isinstance(pulled, str) else "other files"
        raise FileError(
            f"pull: {folder}: expected an empty folder or an earlier pull of {repository}, got {what}; "
            "name another folder"
        )
