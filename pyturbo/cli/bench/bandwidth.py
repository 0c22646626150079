"""``pyturbo bench bandwidth``: speed at which memory is read."""

from __future__ import annotations

import argparse

from pyturbo.bench.memory import bandwidth
from pyturbo.cli.bench._tables import show_speeds

HELP = "speed at which memory is read"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(arguments: argparse.Namespace) -> None:
    show_speeds(arguments, bandwidth())
