"""The journal of a packed checkpoint that is being written: which files are finished, with their checksums.

Its first line tells what is written: the source, the options and the layout of all files. An entry is added
when the data of a file has reached the disk, so a file whose entry is there can be kept after a crash. Lines
start with their own checksum; reading ends at the first line that is not whole.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from pyturbo.checkpoint.manifest import checksum
from pyturbo.files.replace import sync

NAME = "pack.journal"

_LONGEST = 1 << 30  # bytes; a larger file is not one of ours


class Journal:
    """The journal of one folder, open for adding. A context manager that closes it."""

    def __init__(self, folder: Path, key: str) -> None:
        """Read the entries if the journal has that key; otherwise begin a new one."""
        self.entries: dict[str, Any] = {}
        lines, end = _read(folder / NAME)
        if lines and lines[0] == {"key": key}:
            self.entries = {line["file"]: line for line in lines[1:]}
        else:
            end = 0
        self._file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.ftruncate(self._file, end)
        os.lseek(self._file, end, os.SEEK_SET)
        if not end:
            self._append({"key": key})

    def add(self, file: str, **facts: Any) -> None:
        """Record that a file is finished. Its data must have reached the disk."""
        self.entries[file] = {"file": file, **facts}
        self._append(self.entries[file])

    def _append(self, line: dict[str, Any]) -> None:
        text = json.dumps(line).encode()
        data = memoryview(checksum(text).encode() + b" " + text + b"\n")
        while data:
            data = data[os.write(self._file, data) :]
        sync(self._file)

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def resumes(folder: Path, key: str) -> bool:
    """Return whether a folder has a journal with that key and at least one finished file."""
    lines, _ = _read(folder / NAME)
    return len(lines) > 1 and lines[0] == {"key": key}


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the whole lines of a journal, and where they end."""
    lines: list[dict[str, Any]] = []
    end = 0
    try:
        if path.stat().st_size > _LONGEST:
            return [], 0
        data = path.read_bytes()
    except OSError:
        return [], 0
    for line in data.splitlines(keepends=True):
        known, _, text = line.removesuffix(b"\n").partition(b" ")
        if not line.endswith(b"\n") or known != checksum(text).encode():
            break
        lines.append(json.loads(text))
        end += len(line)
    return lines, end
