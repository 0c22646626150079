"""The ``pyturbo`` command. Exit status 0 on success, 2 for wrong usage, 1 with one line for anything else."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import pyturbo
from pyturbo import bench, bench_memory, cli_generate
from pyturbo.errors import ArgumentError, TurboError


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column)
    return table


def _show(arguments: argparse.Namespace, data: Any, table: Callable[[], Table]) -> None:
    """The same facts for a script or for a reader."""
    if arguments.json:
        print(json.dumps(data, indent=2))
    else:
        Console().print(table())


def _properties(name: str) -> dict[str, str]:
    try:
        with pyturbo.Device(name) as device:
            return device.properties
    except TurboError as error:
        return {"cannot be opened": str(error)}


def _devices(arguments: argparse.Namespace) -> None:
    devices = {name: _properties(name) for name in pyturbo.devices()}

    def table() -> Table:
        out = _table("device", "properties")
        for name, properties in devices.items():
            out.add_row(name, ", ".join(f"{key}: {value}" for key, value in properties.items()))
        return out

    _show(arguments, devices, table)


def _kernels(arguments: argparse.Namespace) -> None:
    manifest = {name: kernel for name, kernel in pyturbo.kernels().items() if arguments.name in name}
    if not manifest:
        raise ArgumentError(f"expected part of a kernel's name, got {arguments.name}; see pyturbo kernels")

    def table() -> Table:
        out = _table("kernel", "instances", "arguments", "what it does")
        for function, instances in groupby(manifest.values(), key=lambda kernel: kernel["function"]):
            named = list(instances)
            names = ", ".join(argument["name"] for argument in named[0]["arguments"])
            title = function if len(named) > 1 else named[0]["name"]
            out.add_row(title, str(len(named)), names, escape(next(iter(named[0]["comment"]), "")))
        return out

    _show(arguments, manifest, table)


def _bench(arguments: argparse.Namespace) -> None:
    if arguments.what in ("bandwidth", "matvec"):
        _bench_memory(arguments)
        return
    timings = {"launch": bench.launch, "replay": bench.replay}[arguments.what]()

    def table() -> Table:
        out = _table("what", "ns", "goal")
        for timing in timings:
            out.add_row(
                timing.what, f"{timing.nanoseconds:.1f}", f"< {timing.goal:.0f}" if timing.goal else ""
            )
        return out

    _show(arguments, [asdict(timing) for timing in timings], table)


def _bench_memory(arguments: argparse.Namespace) -> None:
    speeds = {"bandwidth": bench_memory.bandwidth, "matvec": bench_memory.matvec}[arguments.what]()

    def percent(share: float | None) -> str:
        return "" if share is None else f"{share:.0%}"

    def table() -> Table:
        out = _table("what", "threads", "precision", "GB/s", "of bandwidth", "goal")
        for speed in speeds:
            figures = (f"{speed.gigabytes:.1f}", percent(speed.share), percent(speed.goal))
            out.add_row(speed.what, str(speed.threads), speed.precision, *figures)
        return out

    _show(arguments, [asdict(speed) for speed in speeds], table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pyturbo", description=pyturbo.__doc__)
    parser.add_argument("--version", action="version", version=f"pyturbo {pyturbo.__version__}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def command(name: str, run: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--json", action="store_true", help="for scripts")
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
        sub.set_defaults(run=run)
        return sub

    command("devices", _devices, "list the devices of this machine, best first")
    kernels = command("kernels", _kernels, "list the kernels and their arguments")
    kernels.add_argument("name", nargs="?", default="", help="only kernels whose name contains this")
    generate = command("generate", cli_generate.run, "write the reply of a model to a prompt")
    cli_generate.add_arguments(generate)
    measure = command("bench", _bench, "measure the runtime on this machine")
    choices = ["launch", "replay", "bandwidth", "matvec"]
    measure.add_argument("what", nargs="?", default="launch", choices=choices, help="default: %(default)s")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # text of a model may be more than the terminal can show
    try:
        arguments.run(arguments)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except (TurboError, OSError) as error:
        if arguments.debug:
            raise
        print(f"pyturbo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
