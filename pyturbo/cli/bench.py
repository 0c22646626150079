"""``pyturbo bench``: what a model, or the runtime itself, does on this machine."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyturbo.bench import memory
from pyturbo.cli import _kv, _launch_times, _model_times, _output, _peers
from pyturbo.cli._model import add_model_arguments
from pyturbo.cli._usage import UsageError, at_least_one, counts, one_model, option, path

if TYPE_CHECKING:
    from rich.table import Table

HELP = "measure a model, or the runtime: launch, replay, bandwidth, matvec; peers; or kv"

_RUNTIME = {"launch": _launch_times.launch, "replay": _launch_times.replay}
_MEMORY = {"bandwidth": memory.bandwidth, "matvec": memory.matvec}
_WITH_FILE = {"peers": _peers.run, "kv": _kv.run}

_OF_A_MODEL = ("model", "device", "threads", "kv", "precision", "lengths", "tokens")

#: The options that each measurement uses; everything else is a model.
_USED = {
    "peers": ("model", "threads", "tokens", "rounds", "only"),
    "kv": ("model", "device", "threads", "precision", "text", "windows", "plot"),
    **dict.fromkeys((*_RUNTIME, *_MEMORY), ()),
}
_OPTIONS = tuple(dict.fromkeys((*_OF_A_MODEL, *_USED["peers"], *_USED["kv"])))

#: What options are where they are not given, if not None.
_USUAL = {"kv": "f16", "precision": "default"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, positional=True, threads=counts)
    parser.add_argument("file", nargs="?", type=path, help="after peers or kv: the GGUF file to measure with")
    parser.add_argument(
        "--lengths",
        type=counts,
        metavar="N,N,...",
        help="tokens of the prompts to read (default: 32,128,512, or what fits the model's context)",
    )
    parser.add_argument("--tokens", type=int, help="to write (default: 32, or what fits)")
    _peers.add_arguments(parser)
    _kv.add_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    what = arguments.named
    at_least_one("--tokens", arguments.tokens)
    used = _USED.get(what, _OF_A_MODEL)
    for name in _OPTIONS:
        if name not in used and getattr(arguments, name) != _USUAL.get(name):
            shown = what if what in _USED else "MODEL"
            raise UsageError(f"{option(name)}: `bench {shown}` does not use it")
    if what != "peers" and arguments.threads is not None:
        (arguments.threads, *more) = arguments.threads
        if more:
            raise UsageError("--threads: several counts are only valid with `peers`")
    if what in _WITH_FILE:
        arguments.file = one_model(arguments.file, arguments.model)
        _WITH_FILE[what](arguments)
        return
    if arguments.file is not None:
        raise UsageError(f"FILE is only valid with `peers` or `kv`, got {arguments.file}")
    if what in _MEMORY:
        _run_memory(arguments)
        return
    if what not in _RUNTIME:
        _model_times.run(arguments)
        return
    timings = _RUNTIME[what]()

    def table() -> Table:
        out = _output.table("what", "ns", "goal", right=("ns", "goal"))
        for timing in timings:
            goal = f"< {timing.goal:.0f}" if timing.goal else ""
            out.add_row(timing.what, f"{timing.nanoseconds:.1f}", goal)
        return out

    _output.show(arguments, [asdict(timing) for timing in timings], table)


def _run_memory(arguments: argparse.Namespace) -> None:
    speeds = _MEMORY[arguments.named]()

    def percent(share: float | None) -> str:
        return "" if share is None else f"{share:.0%}"

    def table() -> Table:
        out = _output.table("what", "threads", "precision", "GB/s", "of bandwidth", "goal")
        for speed in speeds:
            figures = (f"{speed.gigabytes:.1f}", percent(speed.share), percent(speed.goal))
            out.add_row(speed.what, str(speed.threads), speed.precision, *figures)
        return out

    _output.show(arguments, [asdict(speed) for speed in speeds], table)
