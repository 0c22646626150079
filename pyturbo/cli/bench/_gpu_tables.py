"""Tables of ``pyturbo bench gpu``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyturbo.bench.gpu.kernels import KernelRow
from pyturbo.bench.gpu.model import ModelReport, StepRow
from pyturbo.bench.gpu.report import Report
from pyturbo.cli import _output

if TYPE_CHECKING:
    from rich.table import Table

_MET = {True: "yes", False: "no", None: ""}


def tables(report: Report, part: str) -> Iterator[Table]:
    """Yield the tables of one part, or one with the reason why it failed."""
    if part in report.errors:
        out = _output.table(part, "error")
        out.add_row("", report.errors[part])
        yield out
    elif part == "kernels":
        yield _kernels(report.kernels)
    elif part == "replay":
        yield _replays(report)
    elif report.model is not None:
        yield _steps(report.model)
        for row in report.model.rows:
            if row.kernels:
                yield _shares(row)


def facts_text(report: Report) -> str:
    """Return what the figures depend on, a line each."""
    took = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in report.seconds.items())
    return "\n".join([*(f"{name}: {value}" for name, value in report.facts.items()), f"took: {took}"])


def _kernels(rows: list[KernelRow]) -> Table:
    right = ("us", "GB/s", "of read", "TFLOP/s", "launches", "torch us", "goal us")
    out = _output.table("kernel", *right, "met", right=right)
    for row in rows:
        if row.error:
            out.add_row(row.case, "error")
            out.add_row(f"  {row.error}")
            continue
        out.add_row(
            row.case,
            _number(row.us, 1),
            _number(row.gigabytes, 0),
            _percent(row.read_share),
            _number(row.teraflops, 1),
            str(row.launches),
            _number(row.torch_us, 1),
            _number(row.goal_us, 1),
            _MET[row.met],
        )
        if row.torch_error:
            out.add_row(f"  torch: {row.torch_error}")
    return out


def _replays(report: Report) -> Table:
    right = ("launches", "us a launch", "host us")
    out = _output.table("replay of small launches", *right, right=right)
    for row in report.replays:
        out.add_row(row.what, str(row.launches), f"{row.us:.3f}", f"{row.host_us:.1f}")
    return out


def _steps(model: ModelReport) -> Table:
    right = (
        *("tok/s", "goal", "launches", "waits", "step us", "host us", "90 % us", "ahead us", "in a row us"),
    )
    out = _output.table(model.model, *right, right=right)
    for row in model.rows:
        if row.error:
            out.add_row(row.work, "error")
            out.add_row(f"  {row.error}")
            continue
        out.add_row(
            row.work,
            _number(row.speed, 1),
            _number(row.goal, 0),
            str(row.launches),
            str(row.waits),
            _number(row.step_us, 0),
            _number(row.host_us, 0),
            _number(row.host_us_90, 0),
            _number(row.ahead_us, 0),
            _number(row.device_us, 0),
        )
    out.add_row(f"ready after {model.load_seconds:.1f} s")
    return out


def _shares(row: StepRow) -> Table:
    """Return the kernels of a step that take longest."""
    right = ("launches", "us", "us a launch")
    out = _output.table(f"{row.work}: launches timed one by one", *right, right=right)
    for share in row.kernels:
        out.add_row(share.kernel, str(share.launches), f"{share.us:.1f}", f"{share.us / share.launches:.2f}")
    return out


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
