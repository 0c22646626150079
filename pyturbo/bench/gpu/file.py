"""Files with the figures of a device. Only a file of this kind is replaced."""

from __future__ import annotations

import os
from pathlib import Path

from pyturbo.files.replace import new_file, target_of
from pyturbo.files.target import require_replaceable

_START = b"pyturbo bench gpu\n"


class ReportFile:
    """A text file that can be written several times."""

    def __init__(self, path: Path) -> None:
        """Refuse a path that cannot be written to, before anything is measured."""
        self._path = path
        _require_replaceable(target_of("report", path))

    def write(self, text: str) -> None:
        """Write the whole text. There is always a complete file under that name, or none."""
        with (
            new_file(target_of("report", self._path), _require_replaceable) as descriptor,
            os.fdopen(descriptor, "wb", closefd=False) as file,
        ):
            file.write(_START + text.encode())


def _require_replaceable(path: Path) -> None:
    require_replaceable(path, lambda head: head.startswith(_START), "a report of this command")
