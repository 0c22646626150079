"""Tables that two measurements share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyturbo.bench.launches import Timing
from pyturbo.bench.memory import Speed
from pyturbo.cli import _output

if TYPE_CHECKING:
    from rich.table import Table


def show_timings(arguments: argparse.Namespace, timings: Sequence[Timing]) -> None:
    def table() -> Table:
        out = _output.table("what", "ns", "goal", right=("ns", "goal"))
        for timing in timings:
            goal = f"< {timing.goal:.0f}" if timing.goal else ""
            out.add_row(timing.what, f"{timing.nanoseconds:.1f}", goal)
        return out

    _output.show(arguments, [asdict(timing) for timing in timings], table)


def show_speeds(arguments: argparse.Namespace, speeds: Sequence[Speed]) -> None:
    def percent(share: float | None) -> str:
        return "" if share is None else f"{share:.0%}"

    def table() -> Table:
        columns = ("threads", "GB/s", "of bandwidth", "goal")
        out = _output.table("what", "threads", "precision", "GB/s", "of bandwidth", "goal", right=columns)
        for speed in speeds:
            figures = (f"{speed.gigabytes:.1f}", percent(speed.share), percent(speed.goal))
            out.add_row(speed.what, str(speed.threads), speed.precision, *figures)
        return out

    _output.show(arguments, [asdict(speed) for speed in speeds], table)
