"""Plot quality against memory."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path

from pyturbo.bench.kv.quality import Quality
from pyturbo.checkpoint.file import TensorFile
from pyturbo.errors import ArgumentError, FileError, StateError
from pyturbo.files.replace import new_file, target_of, writing

#: Metadata by format that marks our own plots: only those are replaced.
_MARK = "pyturbo bench kv"
_METADATA = {".png": {"Software": _MARK}, ".svg": {"Creator": _MARK, "Date": None}}
_STARTS = (b"\x89PNG\r\n\x1a\n", b"<?xml")
_HEAD = 4096  # bytes that contain the mark


def check(path: Path) -> None:
    """Refuse a path that cannot be plotted to, before anything is measured."""
    if path.suffix not in _METADATA:
        raise ArgumentError(f"plot: expected a name that ends in .png or .svg, got {path}")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise StateError("bench kv: --plot needs matplotlib: pip install 'pyturbo-llm[plot]'") from None
    with writing(path):
        _check_replaceable(target_of("plot", path))


def draw(rows: Sequence[Quality], path: Path) -> None:
    """Draw divergence against bytes per token, as PNG or SVG by the ending of `path`.

    Only an earlier plot of this function is replaced.
    """
    check(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    shown = [row for row in rows if row.divergence > 0]  # the first is the baseline
    axes.loglog(
        [row.bytes_per_token for row in shown], [row.divergence for row in shown], "o", color="tab:blue"
    )
    for row in shown:
        place = (row.bytes_per_token, row.divergence)
        axes.annotate(
            f"{row.kv}, {row.change:+.2%}", place, xytext=(6, 6), textcoords="offset points", fontsize=9
        )
    axes.margins(x=0.2, y=0.15)
    axes.set_xlabel("bytes of keys and values per token")
    axes.set_ylabel("mean KL divergence, nats")
    axes.set_title("Compressed keys and values: divergence, and change of perplexity", fontsize=11)
    axes.grid(visible=True, which="both", alpha=0.2)
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix[1:], dpi=150, metadata=_METADATA[path.suffix])
    with (
        new_file(target_of("plot", path), _check_replaceable) as descriptor,
        os.fdopen(descriptor, "wb", closefd=False) as file,
    ):
        file.write(picture.getbuffer())


def _check_replaceable(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileError(f"{path.parent}: expected a folder to write to, found none")
    if not os.path.lexists(path):
        return
    file = TensorFile(path)
    try:
        head = file.bytes(0, min(file.size, _HEAD))
    finally:
        file.close()
    if head and not (head.startswith(_STARTS) and _MARK.encode() in head):
        raise FileError(f"{path}: exists and is not a plot of this command; delete it or name another file")
