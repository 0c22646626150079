"""``pyturbo bench stream``: speeds of a packed model with memory for a part of its experts."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyturbo.bench.picture import Drawing, Picture
from pyturbo.bench.stream import hits, synthetic, timeline
from pyturbo.bench.stream.measure import Details, Point, measure, needed_tokens
from pyturbo.bench.stream.plot import draw
from pyturbo.bench.text import text_ids
from pyturbo.checkpoint import open_checkpoint
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.cli import _output
from pyturbo.cli._model import add_device_arguments, open_device
from pyturbo.cli._usage import (
    UsageError,
    add_model_name,
    at_least_one,
    counts,
    one_model,
    option,
    path,
    usage,
)
from pyturbo.describe import survey
from pyturbo.engine import trace_file
from pyturbo.errors import FileError
from pyturbo.streaming.disk import DiskSpeed
from pyturbo.streaming.disk_probe import probe_reads
from pyturbo.streaming.policy import Policy
from pyturbo.text import Tokenizer

if TYPE_CHECKING:
    from rich.table import Table

HELP = "speeds of a packed MODEL (default: a random one of 35B) with memory for a part of its experts"

_COMMAND = "bench stream"
_DRAWINGS = ("hits", "timeline")  # options
_TRACED = 4  # tokens of a trace
_RESERVE = 2 << 30  # bytes of the disk that the random model leaves free


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_name(parser, positional=True)
    add_device_arguments(parser)
    parser.add_argument(
        "--shares",
        type=counts,
        default=(5, 10, 25, 50, 75, 100),
        metavar="N,N,...",
        help="percent of the experts that fit into memory (default: 5,10,25,50,75,100)",
    )
    parser.add_argument("--prompt", type=int, default=512, help="tokens to read (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=32, help="tokens to write (default: %(default)s)")
    parser.add_argument(
        "--ahead",
        action="store_true",
        help="read, while one layer works, the experts that the next layer's router would choose",
    )
    parser.add_argument(
        "--layers", type=int, help="layers of the random model (default: 40, or what fits the disk)"
    )
    parser.add_argument(
        "--folder", type=path, help="where to write the random model (default: a temporary one)"
    )
    parser.add_argument("--plot", type=path, metavar="FILE", help="draw the speeds as .png or .svg")
    parser.add_argument(
        "--hits", type=path, metavar="FILE", help="with one share: draw hits by layer and expert as .svg"
    )
    parser.add_argument(
        "--trace",
        type=path,
        metavar="FILE",
        help=f"with one share: write a timeline of {_TRACED} more tokens, which Perfetto opens",
    )
    parser.add_argument(
        "--timeline", type=path, metavar="FILE", help="with one share: draw the last of these tokens as .svg"
    )


def run(arguments: argparse.Namespace) -> None:
    for flag, value in (("--prompt", arguments.prompt), ("--tokens", arguments.tokens)):
        at_least_one(flag, value)
    at_least_one("--layers", arguments.layers)
    _check_files(arguments)
    if max(arguments.shares) > 100:
        raise UsageError(f"--shares: expected 1 to 100 percent, got {max(arguments.shares)}")
    with usage("plot", *_DRAWINGS):
        picture = None if arguments.plot is None else Picture(_COMMAND, Path(arguments.plot))
        drawings = _drawings(arguments)
    if arguments.trace is not None:
        trace_file.check(arguments.trace)
    details = Details(_traced(arguments))
    device = open_device(arguments)
    with _model(arguments) as folder:
        ids = _ids(arguments, folder)
        disk = _disk(folder)
        policy = replace(Policy.reading(disk.best), ahead=arguments.ahead)
        points = [
            measure(
                folder,
                share / 100,
                ids,
                arguments.prompt,
                arguments.tokens,
                policy,
                device,
                _output.note,
                details,
            )
            for share in arguments.shares
        ]
    if picture is not None:
        draw(points, picture)
    if "hits" in drawings and details.use is not None:
        drawings["hits"].save(hits.draw(details.use, arguments.tokens, points[0].share))
    if details.profile is not None:
        if arguments.trace is not None:
            details.profile.save_trace(arguments.trace)
        if "timeline" in drawings:
            drawings["timeline"].save(timeline.draw(details.profile.timeline))
    facts = {"disk_bytes_per_second": disk.best.bandwidth, "points": [asdict(point) for point in points]}
    _output.show(arguments, facts, lambda: _table(points, disk))


def _check_files(arguments: argparse.Namespace) -> None:
    """Refuse files that cannot all be written, or would not show what was measured."""
    files = {name: getattr(arguments, name) for name in ("plot", *_DRAWINGS, "trace")}
    given = {option(name): file for name, file in files.items() if file is not None}
    places: dict[str, str] = {}
    for name, file in given.items():
        other = places.setdefault(os.path.realpath(file), name)
        if other != name:
            raise UsageError(f"{name}: expected a file other than that of {other}, got {file}")
    detailed = [name for name in given if name != "--plot"]
    if detailed and len(arguments.shares) > 1:
        raise UsageError(f"{detailed[0]}: expected one share, as in --shares 10, got {len(arguments.shares)}")
    if arguments.ahead and arguments.hits is not None:
        raise UsageError("--hits: cannot be combined with --ahead, whose reads are not all misses")


def _drawings(arguments: argparse.Namespace) -> dict[str, Drawing]:
    """Return the pictures that are asked for, by option."""
    asked = {name: getattr(arguments, name) for name in _DRAWINGS}
    return {name: Drawing(_COMMAND, Path(file), name) for name, file in asked.items() if file is not None}


def _traced(arguments: argparse.Namespace) -> int:
    """Return how many tokens are timed launch by launch."""
    return 0 if arguments.trace is None and arguments.timeline is None else _TRACED


def _needed(arguments: argparse.Namespace) -> int:
    return needed_tokens(arguments.prompt, arguments.tokens, _traced(arguments))


@contextmanager
def _model(arguments: argparse.Namespace) -> Iterator[Path]:
    """Give the folder of the model: the one that is named, or a random one that is removed afterwards."""
    named = one_model(arguments.named, arguments.model)
    if named is not None:
        if arguments.layers is not None or arguments.folder is not None:
            raise UsageError("--layers and --folder are only valid without MODEL")
        with open_checkpoint(named) as checkpoint:
            if not isinstance(checkpoint, PackedCheckpoint):
                raise UsageError(f"{named}: expected a packed model, which `pyturbo pack` writes")
            _require_context(arguments, survey(checkpoint).network.context)
            place = checkpoint.path
        yield place
        return
    _require_context(arguments, synthetic.SHAPE.context)
    if arguments.folder is not None and not Path(arguments.folder).is_dir():
        raise UsageError(f"--folder: expected a folder that exists, got {arguments.folder}")
    with tempfile.TemporaryDirectory(prefix="pyturbo-bench-", dir=arguments.folder) as folder:
        free = shutil.disk_usage(folder).free - _RESERVE
        each = synthetic.expert_bytes(synthetic.SHAPE)
        layers = arguments.layers or max(4, min(synthetic.SHAPE.layers, free // each - 4))
        if (layers + 4) * each > free:
            need = (layers + 4) * each
            raise FileError(f"{folder}: expected room for {_output.size(need)}, found {_output.size(free)}")
        place = Path(folder) / "model"
        with _output.byte_bar("writing a random model") as progress:
            synthetic.write(place, replace(synthetic.SHAPE, layers=layers), progress)
        yield place


def _require_context(arguments: argparse.Namespace, context: int) -> None:
    """Refuse more tokens than the context of the model."""
    need, traced = _needed(arguments), _traced(arguments)
    if need > context:
        half = arguments.tokens // 2
        raise UsageError(
            f"--prompt and --tokens: expected up to {context} tokens, the context of the model, got {need} "
            f"with the {half} before those that are measured"
            + (f" and the {traced} of the timeline" if traced else "")
        )


def _ids(arguments: argparse.Namespace, folder: Path) -> NDArray[np.int64]:
    """Return the tokens to read: the random model has a text of its own."""
    if one_model(arguments.named, arguments.model) is None:
        return synthetic.text(_needed(arguments))
    with open_checkpoint(folder) as checkpoint:
        tokenizer = Tokenizer(checkpoint.tokenizer) if checkpoint.tokenizer.found else None
        return text_ids(tokenizer, survey(checkpoint).network.vocab, _needed(arguments))


def _disk(folder: Path) -> DiskSpeed:
    """Measure the disk of the model now."""
    with open_checkpoint(folder) as checkpoint:
        assert isinstance(checkpoint, PackedCheckpoint)
        return probe_reads(checkpoint.record_files(), seconds=5)


def _table(points: Sequence[Point], disk: DiskSpeed) -> Table:
    columns = (
        "experts",
        "slots",
        "prompt",
        "reads per expert",
        "disk busy, prompt",
        "decode",
        "hits",
        "read per token",
        "waits",
        "disk busy, decode",
        "of disk speed",
    )
    out = _output.table(*columns, right=columns)
    for point in points:
        out.add_row(
            f"{point.share:.0%}",
            _output.size(point.slot_bytes),
            f"{point.prefill:.1f} tok/s",
            f"{point.prefill_reads:.2f}",
            f"{point.prefill_busy:.0%}",
            f"{point.decode:.2f} tok/s",
            f"{point.hit_rate:.1%}",
            _output.size(point.token_bytes),
            f"{point.wait_seconds * 1e3:.0f} ms",
            f"{point.busy:.0%}",
            f"{point.read_rate / disk.best.bandwidth:.0%}",
        )
    return out
