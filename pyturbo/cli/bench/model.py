"""``pyturbo bench model``: loading, prefill and decode of a model."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyturbo.bench.model import Times, measure
from pyturbo.cli import _output
from pyturbo.cli._model import add_model_arguments, load_model
from pyturbo.cli._usage import at_least_one, counts, one_model
from pyturbo.model import default_model

if TYPE_CHECKING:
    from rich.table import Table

HELP = "load time, speeds, time by part of the network, and share of the memory bandwidth of a model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, positional=True)
    parser.add_argument(
        "--lengths",
        type=counts,
        metavar="N,N,...",
        help="lengths of the prompts to read (default: 32,128,512, or what fits the model's context)",
    )
    parser.add_argument("--tokens", type=int, help="number of tokens to write (default: 32, or what fits)")


def run(arguments: argparse.Namespace) -> None:
    at_least_one("--tokens", arguments.tokens)
    name = one_model(arguments.named, arguments.model) or str(default_model())
    times = measure(
        name,
        lambda: load_model(arguments, name),
        arguments.lengths,
        arguments.tokens,
        arguments.threads,
        _output.Waiting,
    )
    _output.show(arguments, asdict(times) | {"bandwidth_share": times.bandwidth_share}, lambda: _table(times))


def _table(times: Times) -> Table:
    out = _output.table("what", "", right=("",))
    out.add_row("load", f"{times.load_seconds:.2f} s")
    for length, speed in times.prefill.items():
        out.add_row(f"read {length} tokens", f"{speed:.1f} tok/s")
    out.add_row("write", f"{times.decode:.1f} tok/s")
    total = sum(times.kinds.values()) or 1.0
    for name, seconds in times.kinds.items():
        out.add_row(f"  of a token: {name}", f"{seconds * 1e3:.2f} ms  {seconds / total:4.0%}")
    out.add_row("weights read for a token", _output.size(times.bytes_per_token))
    out.add_row("memory bandwidth of this machine", f"{_output.size(times.bandwidth)}/s")
    out.add_row("share of it reached in writing", f"{times.bandwidth_share:.1%}")
    out.add_row("peak memory", _output.size(times.peak_memory))
    return out
