"""``pyturbo bench kv``: the options and the tables."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pyturbo._native import Device
from pyturbo.bench.kv import plot, quality, timing
from pyturbo.bench.kv.quality import Quality
from pyturbo.bench.kv.timing import Timing
from pyturbo.bench.peers.plan import Plan
from pyturbo.cli import _output
from pyturbo.cli._model import open_device
from pyturbo.cli._usage import UsageError, at_least_one, path
from pyturbo.errors import FileError
from pyturbo.layers.kv_cache import KV_SETTINGS
from pyturbo.model import load

if TYPE_CHECKING:
    from rich.table import Table

WINDOW = 1024  # tokens
_WINDOWS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--text",
        nargs="+",
        type=path,
        metavar="FILE",
        help="of kv: what to read; measures quality instead of time",
    )
    parser.add_argument(
        "--windows",
        type=int,
        help=f"of kv: how many times {WINDOW:,} tokens to read at most (default: {_WINDOWS})",
    )
    parser.add_argument("--plot", type=path, metavar="FILE", help="of kv: draw quality to a .png or .svg")


def run(arguments: argparse.Namespace) -> None:
    at_least_one("--windows", arguments.windows)
    if arguments.text is None and arguments.plot is not None:
        raise UsageError("--plot: expected --text beside it: quality is what is drawn")
    if arguments.text is None and arguments.windows is not None:
        raise UsageError("--windows: expected --text beside it, which is what is read")
    device = open_device(arguments)
    if arguments.text is None:
        timings = timing.measure(device, KV_SETTINGS, tell=_output.note)
        _output.show(arguments, [asdict(row) for row in timings], lambda: timing_table(timings))
        return
    picture = None if arguments.plot is None else Path(arguments.plot)
    if picture is not None:
        plot.check(picture)
    rows = _quality(arguments, device)
    _output.show(arguments, [asdict(row) for row in rows], lambda: quality_table(rows))
    if picture is not None:
        plot.draw(rows, picture)


def _quality(arguments: argparse.Namespace, device: Device) -> list[Quality]:
    path = Plan(model=None if arguments.file is None else Path(arguments.file)).gguf
    models = [load(path, device, kv) for kv in KV_SETTINGS]
    try:
        texts = [Path(name).read_text(encoding="utf-8") for name in arguments.text]
    except (OSError, ValueError) as error:
        raise FileError(f"bench kv: text: cannot be read: {error}") from error
    count = arguments.windows or _WINDOWS
    windows = quality.windows_of(models[0], texts, count, min(WINDOW, models[0].max_context))
    return quality.measure(models, windows, _output.note)


def quality_table(rows: list[Quality]) -> Table:
    columns = ("bytes per token", "perplexity", "change", "mean KL", "same token")
    out = _output.table("kv", *columns, right=columns)
    for row in rows:
        figures = (f"{row.perplexity:.3f}", f"{row.change:+.2%}", f"{row.divergence:.5f}")
        out.add_row(row.kv, f"{row.bytes_per_token:,}", *figures, f"{row.agreement:.1%}")
    out.caption, out.caption_justify = f"{rows[0].tokens:,} tokens predicted", "left"
    return out


def timing_table(rows: list[Timing]) -> Table:
    """One line for each shape and context, in microseconds."""
    settings = tuple(dict.fromkeys(row.kv for row in rows))
    out = _output.table("attention of one token, µs", "context", *settings, right=("context", *settings))
    lines: dict[tuple[str, int], list[str]] = {}
    for row in rows:
        lines.setdefault((str(row.shape), row.context), []).append(f"{row.microseconds:.0f}")
    for (shape, context), figures in lines.items():
        out.add_row(shape, f"{context:,}", *figures)
    return out
