"""``pyturbo bench launch``: time of a kernel launch from Python, and of a switch between GPU threads."""

from __future__ import annotations

import argparse

from pyturbo.bench.launches import launch
from pyturbo.cli.bench._tables import show_timings

HELP = "time of a kernel launch from Python, and of a switch between GPU threads"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(arguments: argparse.Namespace) -> None:
    show_timings(arguments, launch())
