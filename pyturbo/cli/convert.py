"""``pyturbo convert``: quantise a checkpoint into an MLX directory."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict

from pyturbo.checkpoint.config import MODES
from pyturbo.cli._output import byte_bar, note, print_json, size
from pyturbo.cli._signals import ended_by_signal
from pyturbo.cli._usage import UsageError, path
from pyturbo.convert import DTYPES, convert
from pyturbo.ops.affine_format import BITS, GROUP_SIZES

HELP = "quantise a Hugging Face checkpoint into an MLX directory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=path, help="directory with config.json and float safetensors")
    parser.add_argument("target", type=path, help="directory to write, new or empty")
    parser.add_argument(
        "--mode", default="affine", choices=MODES, help="format of the weights (default: %(default)s)"
    )
    parser.add_argument("--bits", type=int, choices=BITS, help="bits per weight in affine mode (default: 4)")
    parser.add_argument(
        "--group-size", type=int, choices=GROUP_SIZES, help="weights per group in affine mode (default: 64)"
    )
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        help="type of scales and of tensors that are not quantised (default: from config.json)",
    )
    parser.add_argument("--force", action="store_true", help="replace a target that convert wrote")


def run(arguments: argparse.Namespace) -> None:
    _check(arguments)
    begin = time.perf_counter()
    with byte_bar("converting") as show, ended_by_signal(show) as progress:
        done = convert(
            arguments.source,
            arguments.target,
            arguments.bits,
            arguments.group_size,
            arguments.dtype,
            mode=arguments.mode,
            force=arguments.force,
            progress=progress,
        )
    seconds = time.perf_counter() - begin
    if arguments.json:
        print_json(asdict(done) | {"path": str(done.path), "seconds": seconds})
        return
    files = "1 file" if done.files == 1 else f"{done.files} files"
    bits = done.nbytes * 8 / done.parameters
    note(
        f"{size(done.source_bytes)} became {size(done.nbytes)} in {files}, {bits:.2f} bits per parameter, "
        f"in {seconds:.1f} s ({size(done.source_bytes / seconds)}/s)"
    )


def _check(arguments: argparse.Namespace) -> None:
    """Refuse bits and group sizes that the mode does not have; the affine mode has all of them."""
    bits, group_size = MODES[arguments.mode]
    for flag, own, given in (
        ("--bits", bits, arguments.bits),
        ("--group-size", group_size, arguments.group_size),
    ):
        if arguments.mode != "affine" and given not in (None, own):
            raise UsageError(f"{flag}: expected {own} for {arguments.mode}, got {given}")
