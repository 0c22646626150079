"""``pyturbo kernels``: list the kernels and their arguments."""

from __future__ import annotations

import argparse
from itertools import groupby
from typing import TYPE_CHECKING

import pyturbo
from pyturbo.cli import _output
from pyturbo.errors import ArgumentError

if TYPE_CHECKING:
    from rich.table import Table

HELP = "list the kernels and their arguments"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="", help="list only kernels whose name contains this")


def run(arguments: argparse.Namespace) -> None:
    manifest = {name: kernel for name, kernel in pyturbo.kernels().items() if arguments.name in name}
    if not manifest:
        raise ArgumentError(f"name: expected a part of a kernel's name, got {arguments.name}")

    def table() -> Table:
        from rich.markup import escape

        out = _output.table("kernel", "instances", "arguments", "what it does")
        for function, instances in groupby(manifest.values(), key=lambda kernel: kernel["function"]):
            named = list(instances)
            names = ", ".join(argument["name"] for argument in named[0]["arguments"])
            title = function if len(named) > 1 else named[0]["name"]
            out.add_row(title, str(len(named)), names, escape(next(iter(named[0]["comment"]), "")))
        return out

    _output.show(arguments, manifest, table)
