"""The files beside the tensors of a checkpoint that is written, and the room for all of them."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyturbo._messages import size
from pyturbo.checkpoint.file import TensorFile
from pyturbo.convert.target import COPIED
from pyturbo.errors import FileError

_CHUNK = 8 << 20  # bytes copied at a time


def copied_files(source: Path, opened: ExitStack) -> list[TensorFile]:
    """Open the files of a source that are copied as they are; `opened` closes them."""
    files = [TensorFile(path) for name in COPIED if (path := source / name).is_file()]
    for file in files:
        opened.callback(file.close)
    return files


def require_room(target: Path, folder: Path, nbytes: int) -> None:
    """Refuse to begin if the disk that holds `folder` has no room for the tensors."""
    free = shutil.disk_usage(folder).free
    if free < nbytes:
        raise FileError(f"{target}: expected room for {size(nbytes)}, found {size(free)} on the disk")


def copy_file(file: TensorFile, path: Path) -> None:
    with path.open("wb") as copy:
        for offset in range(0, file.size, _CHUNK):
            copy.write(file.bytes(offset, min(_CHUNK, file.size - offset)))


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=4) + "\n", encoding="utf-8")
