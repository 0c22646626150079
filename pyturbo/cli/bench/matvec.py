"""``pyturbo bench matvec``: speed of 4-bit products of one token, as a share of the memory bandwidth."""

from __future__ import annotations

import argparse

from pyturbo.bench.memory import matvec
from pyturbo.cli.bench._tables import show_speeds

HELP = "speed of 4-bit products of one token, as a share of the memory bandwidth"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--formats", action="store_true", help="one shape in every format, instead of several in one"
    )


def run(arguments: argparse.Namespace) -> None:
    show_speeds(arguments, matvec(formats=arguments.formats))
