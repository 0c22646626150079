"""``pyturbo pack``: write a checkpoint with experts so that they can be read from disk one by one."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict

from pyturbo.cli._output import byte_bar, note, print_json, size
from pyturbo.cli._signals import ended_by_signal
from pyturbo.cli._usage import path
from pyturbo.errors import TurboError
from pyturbo.files.replace import target_of, unfinished
from pyturbo.pack import EXPERT_BITS, pack

HELP = "pack a checkpoint with experts, so that they can be streamed from disk"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=path, help="a checkpoint directory or a .gguf file")
    parser.add_argument("target", type=path, help="directory to write, new or empty")
    parser.add_argument(
        "--expert-bits",
        type=int,
        choices=EXPERT_BITS,
        help="quantise experts again, to this many bits per weight (default: as they are)",
    )
    parser.add_argument(
        "--check", action="store_true", help="compare everything that was written with the source"
    )
    parser.add_argument("--force", action="store_true", help="replace a target that pack wrote")


def run(arguments: argparse.Namespace) -> None:
    begin = time.perf_counter()
    with _notes_on_failure(arguments.target), byte_bar("packing") as show, ended_by_signal(show) as progress:
        done = pack(
            arguments.source,
            arguments.target,
            expert_bits=arguments.expert_bits,
            force=arguments.force,
            check=arguments.check,
            progress=progress,
        )
    seconds = time.perf_counter() - begin
    if arguments.json:
        print_json(asdict(done) | {"path": str(done.path), "seconds": seconds})
        return
    if done.reused_bytes:
        note(f"{size(done.reused_bytes)} were finished before")
    note(
        f"{done.experts} experts of {done.layers} layers in {size(done.record_bytes)}, "
        f"other tensors in {size(done.resident_bytes)}, in {seconds:.1f} s"
    )
    for name, error in done.errors.items():
        note(f"relative error of {'all experts' if name == 'all' else name}: {error:.4f}")
    if done.compared:
        again = (
            f", requantised to {arguments.expert_bits} bits where it is of an expert" if done.errors else ""
        )
        note(f"every value equals that of the source{again}")


@contextmanager
def _notes_on_failure(target: str) -> Iterator[None]:
    """Tell what stays after an interrupt or an error of the system."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, OSError):
        with suppress(TurboError, OSError):
            for folder in unfinished(target_of("target", target)):
                note(f"finished files stay in {folder}; the same command continues from there")
        raise
