"""Files of plots. Only a plot of the same command is replaced."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyturbo.errors import ArgumentError, StateError
from pyturbo.files.replace import new_file, target_of
from pyturbo.files.target import require_replaceable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STARTS = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml"}


class _Plot:
    """A file that a command such as "bench kv" draws."""

    def __init__(self, command: str, path: Path, option: str, endings: tuple[str, ...]) -> None:
        """Refuse a path that cannot be plotted to, before anything is measured."""
        self._mark, self._path = f"pyturbo {command}", path
        if path.suffix not in endings:
            raise ArgumentError(f"{option}: expected a name that ends in {' or '.join(endings)}, got {path}")
        self._require_replaceable(target_of(option, path))

    def _write(self, data: bytes | memoryview) -> None:
        with (
            new_file(target_of("plot", self._path), self._require_replaceable) as descriptor,
            os.fdopen(descriptor, "wb", closefd=False) as file,
        ):
            file.write(data)

    def _require_replaceable(self, path: Path) -> None:
        require_replaceable(path, self._is_ours, "a plot of this command")

    def _is_ours(self, head: bytes) -> bool:
        return head.startswith(tuple(_STARTS.values())) and self._mark.encode() in head


class Picture(_Plot):
    """A plot of matplotlib's, as PNG or SVG by the ending of its path."""

    def __init__(self, command: str, path: Path) -> None:
        super().__init__(command, path, "plot", tuple(_STARTS))
        try:
            import matplotlib.figure  # noqa: F401
        except ImportError:
            raise StateError(f"{command}: --plot needs matplotlib: pip install 'pyturbo-llm[plot]'") from None

    def save(self, figure: Figure) -> None:
        kind = self._path.suffix[1:]
        metadata = {"Software": self._mark} if kind == "png" else {"Creator": self._mark, "Date": None}
        picture = io.BytesIO()
        figure.savefig(picture, format=kind, dpi=150, metadata=metadata)
        self._write(picture.getbuffer())


class Drawing(_Plot):
    """An SVG that is drawn here; `option` names the argument that its path was given with."""

    def __init__(self, command: str, path: Path, option: str) -> None:
        super().__init__(command, path, option, (".svg",))

    def save(self, svg: str) -> None:
        """Write an `<svg>` element."""
        self._write(f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {self._mark} -->\n{svg}'.encode())
