"""``pyturbo bench replay``: time of a recorded launch in a replay."""

from __future__ import annotations

import argparse

from pyturbo.bench.launches import replay
from pyturbo.cli._usage import usage
from pyturbo.cli.bench._tables import show_timings

HELP = "time of a recorded launch in a replay"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help="one of those that pyturbo devices lists (default: cpu:reference)")


def run(arguments: argparse.Namespace) -> None:
    with usage("device"):
        timings = replay(arguments.device)
    show_timings(arguments, timings)
