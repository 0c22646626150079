"""``pyturbo bench encode``: time that the host needs to hand over a decode step."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyturbo._device import Device
from pyturbo.bench.encode import encode
from pyturbo.cli import _output
from pyturbo.cli._usage import usage

if TYPE_CHECKING:
    from rich.table import Table

HELP = "time that the host needs to hand over a decode step"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", default="metal", help="one of those that pyturbo devices lists (default: metal)"
    )


def run(arguments: argparse.Namespace) -> None:
    with usage("device"):
        device = Device(arguments.device)
    with device:
        found = encode(device)

    def table() -> Table:
        numbers = ("us", "least us", "goal", "ahead us", "command buffers", "longest ms")
        out = _output.table("device", "launches", "waits", *numbers, right=numbers)
        goal = f"< {found.goal:.0f}"
        figures = (f"{found.us:.0f}", f"{found.least_us:.0f}", goal, f"{found.ahead_us:.0f}")
        parts = ("", "")
        if found.longest_ms is not None:
            parts = (str(found.command_buffers), f"{found.longest_ms:.0f}")
        out.add_row(found.device, str(found.launches), str(found.waits), *figures, *parts)
        return out

    _output.show(arguments, asdict(found), table)
