"""``pyturbo bench replay``: time of a recorded launch in a replay."""

from __future__ import annotations

import argparse

from pyturbo.bench.launches import replay
from pyturbo.cli.bench._tables import show_timings

HELP = "time of a recorded launch in a replay"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(arguments: argparse.Namespace) -> None:
    show_timings(arguments, replay())
