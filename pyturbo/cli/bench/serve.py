"""``pyturbo bench serve``: a server with several clients, beside the model alone and llama-cpp-python's."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyturbo.bench.gguf import gguf_file
from pyturbo.bench.serve import PRECISIONS, ServeReport, measure
from pyturbo.cli import _output
from pyturbo.cli._usage import at_least_one

if TYPE_CHECKING:
    from rich.table import Table

HELP = (
    "speed of `pyturbo serve` with several clients of SmolLM2, what HTTP costs, and what overload does; "
    "beside the server of llama-cpp-python if it is installed"
)

_TIMES = ("first token", "between tokens", "of a reply per token")  # each has a median and a percentile
_COLUMNS = ("server", "clients", "tok/s", *(name for time in _TIMES for name in (time, "99 %")))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, default=2, help="of each server (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=32, help="of a reply (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="of one client beside the model alone (default: %(default)s)"
    )
    parser.add_argument(
        "--slots", type=int, help="replies that our server has at work at once (default: as many as clients)"
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, help="of our server (default: both, one after the other)"
    )


def run(arguments: argparse.Namespace) -> None:
    for name in ("threads", "tokens", "rounds"):
        at_least_one(f"--{name}", getattr(arguments, name))
    if arguments.slots is not None:
        at_least_one("--slots", arguments.slots)
    with _output.telling() as tell:
        report = measure(
            gguf_file(None),
            tell,
            threads=arguments.threads,
            tokens=max(3, arguments.tokens),
            rounds=arguments.rounds,
            slots=arguments.slots,
            precisions=(arguments.precision,) if arguments.precision else PRECISIONS,
        )
    _output.show(arguments, asdict(report), lambda: _table(report))


def _table(report: ServeReport) -> Table:
    out = _output.table(*_COLUMNS, right=_COLUMNS[1:])
    for row in report.rows:
        times = [row.first_ms, row.first_99_ms, row.between_ms, row.between_99_ms]
        times += [row.per_token_ms, row.per_token_99_ms]
        speed = f"{row.tokens_per_second:.1f}"
        out.add_row(row.server, str(row.clients), speed, *(f"{time:.1f} ms" for time in times))
    between = ", ".join(f"{name} {time:.0f} us" for name, time in report.between_us.items())
    overload = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in report.overload.items())
    lines = [f"between tokens of one client: {between}; over HTTP {report.overhead:+.1%}"]
    lines += [f"overload: {overload}", *(f"{name}: {fact}" for name, fact in report.facts.items())]
    out.caption, out.caption_justify = "\n".join(lines), "left"
    return out
