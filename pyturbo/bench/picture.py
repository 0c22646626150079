"""Files of plots. Only a plot of the same command is replaced."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyturbo.checkpoint.file import TensorFile
from pyturbo.errors import ArgumentError, FileError, StateError
from pyturbo.files.replace import new_file, target_of, writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STARTS = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml"}
_HEAD = 4096  # bytes that contain the name of the command


class Picture:
    """A plot that a command such as "bench kv" draws, as PNG or SVG by the ending of its path."""

    def __init__(self, command: str, path: Path) -> None:
        """Refuse a path that cannot be plotted to, before anything is measured."""
        self._command, self._path = command, path
        if path.suffix not in _STARTS:
            raise ArgumentError(f"plot: expected a name that ends in .png or .svg, got {path}")
        try:
            import matplotlib.figure  # noqa: F401
        except ImportError:
            raise StateError(f"{command}: --plot needs matplotlib: pip install 'pyturbo-llm[plot]'") from None
        with writing(path):
            self._check_replaceable(target_of("plot", path))

    def save(self, figure: Figure) -> None:
        mark = f"pyturbo {self._command}"
        kind = self._path.suffix[1:]
        metadata = {"Software": mark} if kind == "png" else {"Creator": mark, "Date": None}
        picture = io.BytesIO()
        figure.savefig(picture, format=kind, dpi=150, metadata=metadata)
        with (
            new_file(target_of("plot", self._path), self._check_replaceable) as descriptor,
            os.fdopen(descriptor, "wb", closefd=False) as file,
        ):
            file.write(picture.getbuffer())

    def _check_replaceable(self, path: Path) -> None:
        if not path.parent.is_dir():
            raise FileError(f"{path.parent}: expected a folder to write to, found none")
        if not os.path.lexists(path):
            return
        file = TensorFile(path)
        try:
            head = file.bytes(0, min(file.size, _HEAD))
        finally:
            file.close()
        ours = head.startswith(tuple(_STARTS.values())) and f"pyturbo {self._command}".encode() in head
        if head and not ours:
            raise FileError(
                f"{path}: exists and is not a plot of this command; delete it or name another file"
            )
